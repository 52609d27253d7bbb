//! Tests of peers that break the rules, over a stream.

use std::time::Duration;

use breakbulk_vscode::machine::rpc;
use breakbulk_vscode::{Ended, Endpoint};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{config, id};

fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
    bytes.extend_from_slice(message);
    bytes
}

/// A stream that ends anywhere, or declares too much: the session ends, and a call with it.
#[tokio::test]
async fn broken_streams_end_the_session_and_every_call() {
    let whole = framed(b"\x01\0\0\0\x01\x02\x04$add\0\0\0\x05[4,1]");
    let mut table: Vec<(Vec<u8>, &str)> = (1..whole.len())
        .map(|cut| (whole[..cut].to_vec(), "ended inside a message"))
        .collect();
    table.push((Vec::new(), "the other end disconnected"));
    table.push((
        b"\x01\0\0\0\0\0\0\0\0\xff\xff\xff\xff".to_vec(),
        "over the limit of 104857600",
    ));
    for (bytes, words) in table {
        let (left, mut right) = tokio::io::duplex(1 << 16);
        let endpoint = Endpoint::over_stream(left, config());
        let call = endpoint.remote(id()).call("$x", &[0]);
        right.write_all(&bytes).await.unwrap();
        if words.starts_with("over the limit") {
            // A peer that declares too much sees its stream end.
            let mut rest = Vec::new();
            right.read_to_end(&mut rest).await.unwrap();
        } else {
            drop(right);
        }
        let error = call.await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        let ended = endpoint.ended().await.to_string();
        assert!(ended.contains(words), "{ended}");
    }
}

#[tokio::test]
async fn junk_between_messages_changes_nothing() {
    let (left, mut right) = tokio::io::duplex(1 << 16);
    let endpoint = Endpoint::over_stream(left, config());
    let junk: [&[u8]; 8] = [
        b"",
        b"\x01",
        b"\0\0\0\0\x01",
        b"\x0d\0\0\0\x01",
        b"\x05\0\0\0\x09",
        b"\x06\0\0\0\x09",
        b"\x07\0\0\0\x09",
        b"\x09\0\0\0\x09\xff\xff\xff\xff",
    ];
    for junk in junk {
        right.write_all(&framed(junk)).await.unwrap();
    }
    // Frames that carry no message.
    for kind in [0, 2, 3, 4, 5, 6, 7, 8, 9, 255] {
        let mut frame = framed(b"?");
        frame[0] = kind;
        right.write_all(&frame).await.unwrap();
    }
    right
        .write_all(&framed(b"\x01\0\0\0\x07\x02\x04$add\0\0\0\x05[4,1]"))
        .await
        .unwrap();
    let expected = [
        framed(b"\x05\0\0\0\x07"),
        framed(b"\x09\0\0\0\x07\0\0\0\x015"),
    ]
    .concat();
    let mut answer = vec![0; expected.len()];
    right.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, expected);
    drop(endpoint);
}

/// A peer that sends requests without end and reads nothing has to wait, and its requests stay bounded.
#[tokio::test(start_paused = true)]
async fn a_peer_that_never_reads_is_held_up() {
    let (left, mut right) = tokio::io::duplex(1 << 12);
    let endpoint = Endpoint::over_stream(
        left,
        config().with(|config| {
            config.rpc = rpc::Config::default().with(|config| {
                config.running = 16;
                config.queued_bytes = 10_000;
            })
        }),
    );
    let request = framed(b"\x01\0\0\0\x07\x02\x04$add\0\0\0\x05[4,1]");
    let mut written = 0;
    // On a paused clock the timeout fires only when nothing else can happen.
    while let Ok(Ok(())) =
        tokio::time::timeout(Duration::from_secs(60), right.write_all(&request)).await
    {
        written += 1;
        assert!(written < 10_000);
    }
    assert!(endpoint.status().borrow().ended.is_none());
    drop(right);
    assert!(matches!(
        endpoint.ended().await,
        Ended::Left | Ended::Lost(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_persistent_session_without_a_stream_is_given_up_after_its_grace() {
    let (left, right) = tokio::io::duplex(1 << 12);
    let config = config().with(|config| config.grace = Duration::from_secs(300));
    let endpoint = Endpoint::persistent(left, config);
    let call = endpoint.remote(id()).call("$x", &[0]);
    let begun = tokio::time::Instant::now();
    drop(right);
    let error = call.await.unwrap_err().to_string();
    assert!(error.contains("no new connection within 300 s"), "{error}");
    assert_eq!(begun.elapsed().as_secs(), 300);
}

/// A peer that reads everything and acknowledges nothing.
#[tokio::test(start_paused = true)]
async fn a_persistent_peer_that_never_acknowledges_ends_the_session() {
    let (left, mut right) = tokio::io::duplex(1 << 16);
    let config = config().with(|config| config.persistent.replay_messages = 100);
    let endpoint = Endpoint::persistent(left, config);
    let calls: Vec<_> = (0..1000)
        .map(|number| tokio::spawn(endpoint.remote(id()).call("$x", &[number])))
        .collect();
    let (mut reads, mut writes) = {
        let (reads, writes) = tokio::io::split(&mut right);
        (reads, writes)
    };
    let swallow = async {
        let mut sink = [0; 4096];
        while reads.read(&mut sink).await.is_ok_and(|count| count > 0) {}
    };
    let live = async {
        // Keep-alive frames with ack 0, every second.
        while writes
            .write_all(b"\x09\0\0\0\0\0\0\0\0\0\0\0\0")
            .await
            .is_ok()
        {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let ended = tokio::select! {
        ended = endpoint.ended() => ended.to_string(),
        _ = async { tokio::join!(swallow, live) } => String::new(),
    };
    assert!(ended.contains("acknowledged nothing for 20 s"), "{ended}");
    for call in calls {
        assert!(call.await.unwrap().is_err());
    }
}
