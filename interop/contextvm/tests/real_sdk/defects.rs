//! Known defects of the SDK, and how this project works around them. The numbers are those of the protocol's
//! page; the third defect is the Rust crate's, and the test with the crate's own client is in `long.rs`.

use std::time::Duration;

use breakbulk::contextvm::{Config, Encryption, Keys, Timeouts};
use interop_contextvm::call::{Call, Outcome};
use interop_contextvm::ours::{self, Caller};
use interop_contextvm::peer::{Peer, Sdk};
use interop_contextvm::spy::Spy;
use interop_contextvm::text::Text;
use serde_json::json;

use super::{patient, plain, relay};

/// A text that takes more than 21 chunks at either end's chunk size.
const CHUNKS: usize = 1_500_000;

/// 1. A client that never waits for `accept`: it reserves a number for `accept` and sends its chunks at once.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn a_client_that_does_not_wait_for_leave() {
    let relay = relay().await;
    let keys = Keys::generate();
    let mut spy = Spy::listen(relay.url(), &keys).await.unwrap();
    let server = ours::serve(relay.url(), keys, plain()).await.unwrap();
    // Without a session the client's first message is the large request itself.
    let plan = json!({"relay": relay.url(), "encryption": "disabled", "stateless": true});
    let client = Peer::client(Sdk::Npm, &server.public_key(), &plan).await;
    let mut client = client.unwrap();
    let call = Call::new(Text::Cjk, CHUNKS, 10);
    client.call(call).await.unwrap().whole(call).unwrap();
    let frames = spy.frames_with("end").await.unwrap();
    let first: Vec<_> = frames.iter().take(2).map(|frame| frame.progress).collect();
    assert_eq!(first, [1, 3], "it left a place for leave");
}

/// 2. A server that fails uploads of over 21 chunks with a number reserved for `accept`: none is reserved.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn a_server_that_fails_uploads_with_leave() {
    let relay = relay().await;
    let mut server = Peer::server(Sdk::Npm, &json!({"relay": relay.url()}))
        .await
        .unwrap();
    let call = Call::new(Text::Ascii, CHUNKS, 10);
    let connect = async |config| {
        Caller::connect(relay.url(), Keys::generate(), server.key, config)
            .await
            .unwrap()
    };
    let mut client = connect(plain()).await;
    client.call(call).await.unwrap().whole(call).unwrap();
    assert_eq!(server.failures(), Vec::<String>::new());
    // With `unasked` the upload has the number reserved for `accept`: it fails, and the caller gets an error.
    let unasked = patient(plain(), Duration::from_secs(2)).with(|config| config.unasked = true);
    let mut client = connect(unasked).await;
    let outcome = client.call(call).await.unwrap();
    let failure = server.failure().await.unwrap();
    assert!(failure.contains("exceeds policy limit 21"), "{failure}");
    assert_eq!(reason(&outcome), "timeout");
}

/// 3. A server that knows the client's key from before sends neither `accept` nor discovery tags.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn a_server_that_knew_us_before_is_not_waited_for() {
    let relay = relay().await;
    let server = Peer::server(Sdk::Npm, &json!({"relay": relay.url()}))
        .await
        .unwrap();
    let keys = Keys::generate();
    let call = Call::new(Text::Ascii, CHUNKS, 10);
    for round in 0..2 {
        let client = Caller::connect(relay.url(), keys.clone(), server.key, plain()).await;
        let outcome = client.unwrap().call(call).await.unwrap();
        outcome
            .whole(call)
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    // With `fresh_key` silence means: the server has no support. Here it knows the key: no `accept` comes.
    let config = plain().with(|config| {
        config.fresh_key = true;
        config.timeouts = Timeouts::default().with(|config| config.accept = Duration::from_secs(1));
    });
    let client = Caller::connect(relay.url(), keys, server.key, config).await;
    let outcome = client.unwrap().call(call).await.unwrap();
    assert_eq!(reason(&outcome), "notAccepted");
}

/// 4. A server that tells transfers apart by their tokens alone: this project's tokens always differ.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn a_server_that_mixes_up_clients_with_one_token() {
    let relay = relay().await;
    let server = Peer::server(Sdk::Npm, &json!({"relay": relay.url()}))
        .await
        .unwrap();
    // Both applications use the same id and the same token, at the same time.
    let calls = [Text::Ascii, Text::Cjk].map(|text| Call::new(text, CHUNKS, 300_000));
    let run = async |call: Call| {
        let client = Caller::connect(relay.url(), Keys::generate(), server.key, plain())
            .await
            .unwrap();
        let mut request: serde_json::Value = serde_json::from_str(&call.request(1)).unwrap();
        request["params"]["_meta"] = json!({"progressToken": 1});
        let answer = client.ask(request.to_string()).await.unwrap().whole(call);
        assert!(answer.unwrap().progress > 0, "its own progress was told");
    };
    tokio::join!(run(calls[0]), run(calls[1]));
    assert_eq!(server.failures(), Vec::<String>::new());
}

/// 4, from the other side: two clients of the SDK use the same tokens, and this project's server keeps
/// them apart.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn two_clients_with_one_token() {
    let relay = relay().await;
    let server = ours::serve(relay.url(), Keys::generate(), plain())
        .await
        .unwrap();
    let plan = json!({"relay": relay.url(), "encryption": "disabled"});
    let run = async |call: Call| {
        let client = Peer::client(Sdk::Npm, &server.public_key(), &plan).await;
        let mut client = client.unwrap();
        client.call(call).await.unwrap().whole(call).unwrap();
        assert_eq!(client.failures(), Vec::<String>::new());
    };
    let call = |text| Call::new(text, CHUNKS, 300_000);
    tokio::join!(run(call(Text::Ascii)), run(call(Text::Cjk)));
}

/// 5. An SDK that cannot encrypt a large message, and one half as large only in small chunks: the caller
/// gets an error, and the next call succeeds.
// CEP22-15
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn an_sdk_that_cannot_seal_what_is_large() {
    let relay = relay().await;
    let sealed = Config::default().with(|config| config.encryption = Encryption::Required);
    let small = Call::new(Text::Ascii, 10, 10);
    for (chunk, size, can) in [
        (48_000, 50_000, false),
        (8_000, 50_000, true),
        (8_000, 200_000, false),
    ] {
        let plan = json!({"relay": relay.url(), "chunk": chunk});
        let up = Call::new(Text::Ascii, size, 10);
        let down = Call::new(Text::Ascii, 10, size);

        let mut server = Peer::server(Sdk::Npm, &plan).await.unwrap();
        let connect = async |config| {
            let client = Caller::connect(relay.url(), Keys::generate(), server.key, config).await;
            client.unwrap()
        };
        let mut client = connect(sealed.clone()).await;
        client.call(up).await.unwrap().whole(up).unwrap();
        if can {
            client.call(down).await.unwrap().whole(down).unwrap();
        } else {
            // The SDK's server sends no error to the client: the request must end by its timeout.
            let soon = patient(sealed.clone(), Duration::from_secs(2));
            let outcome = connect(soon).await.call(down).await.unwrap();
            assert_eq!(reason(&outcome), "timeout");
            let failure = server.failure().await.unwrap();
            assert!(failure.contains("invalid plaintext size"), "{failure}");
        }
        client.call(small).await.unwrap().whole(small).unwrap();

        let server = ours::serve(relay.url(), Keys::generate(), sealed.clone());
        let server = server.await.unwrap();
        let client = Peer::client(Sdk::Npm, &server.public_key(), &plan).await;
        let mut client = client.unwrap();
        client.call(down).await.unwrap().whole(down).unwrap();
        let outcome = client.call(up).await.unwrap();
        match outcome {
            outcome if can => drop(outcome.whole(up).unwrap()),
            Outcome::Failed(error) => {
                let message = error["message"].as_str().unwrap();
                assert!(message.contains("invalid plaintext size"), "{message}");
            }
            Outcome::Answered(_) => panic!("its version can seal {size} bytes"),
        }
        client.call(small).await.unwrap().whole(small).unwrap();
        client.stop().await.unwrap();
    }
}

/// Why a call of this project's client failed.
fn reason(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed(error) => error["data"]["reason"].as_str().unwrap_or("no reason"),
        Outcome::Answered(_) => "it was answered",
    }
}
