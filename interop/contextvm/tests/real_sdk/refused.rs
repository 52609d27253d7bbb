//! A relay that refuses events of a usual size: this project's sender ends the transfer and begins it anew
//! with smaller pieces, and the SDK receives it whole.

use breakbulk::contextvm::{Encryption, Keys};
use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use interop_contextvm::call::{Call, Outcome};
use interop_contextvm::ours::{self, Caller};
use interop_contextvm::peer::{Peer, Sdk};
use interop_contextvm::spy::{Seen, Spy};
use interop_contextvm::text::Text;
use serde_json::json;

use super::plain;

const SIZE: usize = 1_000_000;

/// Starts a relay with a low limit for events; the SDK's own frames fit it.
async fn small_relay(event_max: usize) -> BadRelay {
    let weather = Weather {
        event_max,
        ..Weather::default()
    };
    BadRelay::start(weather).await.unwrap()
}

/// The tokens of frames of this kind.
fn tokens<'a>(frames: &'a [Seen], kind: &str) -> Vec<&'a str> {
    let frames = frames.iter().filter(|frame| frame.kind == kind);
    frames.map(|frame| frame.token.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn a_request_begins_anew_under_another_token() {
    let relay = small_relay(30_000).await;
    let keys = Keys::generate();
    let mut spy = Spy::listen(relay.url(), &keys).await.unwrap();
    let key = keys.to_secret_hex();
    let plan = json!({"relay": relay.url(), "key": key});
    let mut server = Peer::server(Sdk::Npm, &plan).await.unwrap();
    let client = Caller::connect(relay.url(), Keys::generate(), server.key, plain()).await;
    let mut client = client.unwrap();
    let call = Call::new(Text::Ascii, SIZE, 10);
    client.call(call).await.unwrap().whole(call).unwrap();
    assert!(relay.refused() > 0);
    let failure = server.failure().await.unwrap();
    assert!(failure.contains("aborted"), "{failure}");

    let frames = spy.frames_with("end").await.unwrap();
    let starts = tokens(&frames, "start");
    assert_eq!(starts.len(), 2, "{starts:?}");
    assert_ne!(starts[0], starts[1]);
    assert_eq!(tokens(&frames, "abort"), starts[..1]);
    assert_eq!(tokens(&frames, "end"), starts[1..]);
    // The smaller size is remembered: the next transfer fits at once.
    let refused = relay.refused();
    client.call(call).await.unwrap().whole(call).unwrap();
    assert_eq!(relay.refused(), refused);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn an_answer_begins_anew_under_its_own_token() {
    for encryption in [Encryption::Disabled, Encryption::Required] {
        let relay = small_relay(30_000).await;
        let keys = Keys::generate();
        let mut spy = Spy::listen(relay.url(), &keys).await.unwrap();
        let server = ours::serve(relay.url(), Keys::generate(), Default::default());
        let server = server.await.unwrap();
        let encryption = match encryption {
            Encryption::Disabled => "disabled",
            _ => "required",
        };
        let key = keys.to_secret_hex();
        let plan = json!({"relay": relay.url(), "key": key, "encryption": encryption});
        let client = Peer::client(Sdk::Npm, &server.public_key(), &plan).await;
        let mut client = client.unwrap();
        let call = Call::new(Text::Ascii, 10, SIZE);
        client.call(call).await.unwrap().whole(call).unwrap();
        assert!(relay.refused() > 0);
        let failure = client.failure().await.unwrap();
        assert!(failure.contains("aborted"), "{failure}");

        let frames = spy.frames_with("end").await.unwrap();
        let starts = tokens(&frames, "start");
        assert_eq!(starts.len(), 2, "{starts:?}");
        assert_eq!(starts[0], starts[1]);
        assert_eq!(tokens(&frames, "abort").len(), 1);
        assert_eq!(tokens(&frames, "end").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn an_answer_that_is_refused_twice_is_an_error() {
    let relay = small_relay(15_000).await;
    let server = ours::serve(relay.url(), Keys::generate(), plain())
        .await
        .unwrap();
    let plan = json!({"relay": relay.url(), "encryption": "disabled"});
    let client = Peer::client(Sdk::Npm, &server.public_key(), &plan).await;
    let mut client = client.unwrap();
    let outcome = client.call(Call::new(Text::Ascii, 10, SIZE)).await.unwrap();
    let Outcome::Failed(error) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(error["data"]["reason"], "messageTooLarge", "{error}");
    let small = Call::new(Text::Ascii, 10, 100);
    client.call(small).await.unwrap().whole(small).unwrap();
}
