//! An MCP server and an MCP client, both as published on npm, over a path that lets 128 KB through:
//! between two gateways that cut, and between two that do not.
//!
//! They need the program `breakbulk` and node, and are run by `cargo xtask interop mcp`.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod published;

use std::path::PathBuf;

use breakbulk_testkit::bad_path::{BadPath, Counts, Refusal, Way, Weather};
use interop_ahp::program::Gateway;
use interop_ahp::text::text;
use published::{call, client, server, write};

/// The limits of the path, which are those of Amazon API Gateway: text only.
const WAY: Way = Way {
    frame_cap: Some(32_768),
    message_cap: Some(131_072),
    refusal: Refusal::Close(1009),
    text_only: true,
    delay: std::time::Duration::ZERO,
    pace: None,
};
/// The same limits read as multiples of 1,000, which the gateways keep to.
const FRAME: u64 = 32_000;
const MESSAGE: u64 = 128_000;

/// Size of the large text in an answer. The server sends it twice in the answer.
const BIG: usize = 20_000_000;
/// Size of the large text in a request: the published server accepts no message above 10 MiB.
const SENT: usize = 8_000_000;
const SMALL: &str = "small: \"漢\" \\ 🚢\n";

struct Folder {
    folder: tempfile::TempDir,
    big: PathBuf,
    big_text: String,
    small: PathBuf,
}

fn folder() -> Folder {
    let folder = tempfile::tempdir().unwrap();
    let (big, small) = (
        folder.path().join("big.txt"),
        folder.path().join("small.txt"),
    );
    let big_text = text(1, BIG);
    std::fs::write(&big, &big_text).unwrap();
    std::fs::write(&small, SMALL).unwrap();
    Folder {
        folder,
        big,
        big_text,
        small,
    }
}

async fn capped_path(to: &Gateway) -> BadPath {
    let weather = Weather::both_ways(WAY);
    BadPath::start(&to.address, weather).await.unwrap()
}

fn struck(counts: &Counts) -> (u64, u64) {
    (counts.from_client.blocked, counts.from_target.blocked)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop mcp"]
async fn a_result_of_20_mb_passes_a_path_of_128_kb() {
    let files = folder();
    let from = tempfile::NamedTempFile::new().unwrap();
    let sent_text = text(2, SENT);
    std::fs::write(from.path(), &sent_text).unwrap();
    let sent = files.folder.path().join("sent.txt");

    let options = "tunnel=always&preset=aws-api-gateway&max-message=64MiB";
    let listen = format!("ws://127.0.0.1:0?{options}");
    let gateway = Gateway::start(&listen, &server(files.folder.path()))
        .await
        .unwrap();
    let path = capped_path(&gateway).await;
    let to = format!("ws://{}?{options}", path.address());
    let told = client(
        &to,
        &[
            call("read_text_file", &files.small),
            call("read_text_file", &files.big),
            write(&sent, from.path()),
            call("list_directory", files.folder.path()),
        ],
    )
    .await;

    assert!(told.tools.iter().any(|name| name == "read_text_file"));
    let [small, big, written, listed] = &told.calls[..] else {
        panic!("{told:?}");
    };
    small.is(SMALL);
    big.is(&files.big_text);
    written.is(&format!("Successfully wrote to {}", sent.display()));
    assert!(
        std::fs::read(&sent).unwrap() == sent_text.as_bytes(),
        "what was written is not what was sent"
    );
    listed.is("[FILE] big.txt\n[FILE] sent.txt\n[FILE] small.txt");

    let counts = path.until(|counts| counts.open == 0).await;
    for (way, least) in [
        (counts.from_target, 2 * BIG as u64),
        (counts.from_client, SENT as u64),
    ] {
        assert!(way.bytes > least, "{way:?}");
        assert!(way.messages > least / MESSAGE, "{way:?}");
        assert!(way.largest_message <= MESSAGE, "{way:?}");
        assert!(way.largest_frame <= FRAME, "{way:?}");
    }
    assert_eq!(struck(&counts), (0, 0));
    assert_eq!((counts.accepted, counts.cuts), (1, 0));
    println!(
        "read {BIG} bytes in {:.1} s, wrote {SENT} in {:.1} s\nfrom the server: {:?}\nfrom the client: {:?}",
        big.seconds, written.seconds, counts.from_target, counts.from_client
    );
    gateway.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop mcp"]
async fn a_whole_result_of_20_mb_ends_the_connection_and_the_client_hears_of_it() {
    let files = folder();
    let options = "max-message=64MiB";
    let listen = format!("whole+ws://127.0.0.1:0?{options}");
    let gateway = Gateway::start(&listen, &server(files.folder.path()))
        .await
        .unwrap();
    let path = capped_path(&gateway).await;
    let to = format!("whole+ws://{}?{options}", path.address());
    let calls = [&files.small, &files.big].map(|file| call("read_text_file", file));
    let told = client(&to, &calls).await;

    told.calls[0].is(SMALL);
    let error = told.calls[1].error();
    // The gateway answers for the lost server, and says which option to change.
    assert_eq!(error.code, Some(-32000), "{error:?}");
    let words = "too large for the path, whose limit seems to be 32768; whole+ sends each message as one frame, whatever its size: leave out whole+ at this end";
    assert!(error.message.contains(words), "{error:?}");
    assert!(told.gateway.contains("closed with 1009"), "{told:?}");
    let counts = path.until(|counts| counts.open == 0).await;
    assert_eq!(struck(&counts), (0, 1));
    println!(
        "an error after {:.1} s: {error:?}\ngateway: {}from the server: {:?}",
        told.calls[1].seconds, told.gateway, counts.from_target
    );
    gateway.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop mcp"]
async fn where_the_cap_is_known_and_nothing_is_cut_a_call_gets_an_error_and_the_session_lives() {
    let files = folder();
    let options = "preset=aws-api-gateway&max-message=64MiB";
    let listen = format!("whole+ws://127.0.0.1:0?{options}");
    let gateway = Gateway::start(&listen, &server(files.folder.path()))
        .await
        .unwrap();
    let path = capped_path(&gateway).await;
    let to = format!("whole+ws://{}?{options}", path.address());
    let written = files.folder.path().join("written.txt");
    let told = client(
        &to,
        &[
            call("read_text_file", &files.big),
            write(&written, &files.big),
            call("read_text_file", &files.small),
        ],
    )
    .await;

    // The answer has the text twice, the request once.
    for (large, least) in [(&told.calls[0], 2 * BIG), (&told.calls[1], BIG)] {
        let error = large.error();
        assert_eq!(error.code, Some(-32011), "{error:?}");
        let data = &error.data;
        assert_eq!(data["reason"], "messageTooLarge", "{error:?}");
        assert_eq!(data["maxFrameBytes"], MESSAGE, "{error:?}");
        assert!(
            data["messageBytes"].as_u64() > Some(least as u64),
            "{error:?}"
        );
        println!("an error after {:.1} s: {error:?}", large.seconds);
    }
    told.calls[2].is(SMALL);
    assert!(!written.exists());
    let counts = path.until(|counts| counts.open == 0).await;
    assert_eq!(struck(&counts), (0, 0));
    gateway.stop().await.unwrap();
}
