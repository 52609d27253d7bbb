//! Old events that a relay stored are neither served nor taken for an answer a second time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use breakbulk::contextvm::{
    Config, Encryption, Forgetful, Keys, Learned, Memory, PublicKey, Wraps,
};
use interop_contextvm::call::{Call, Outcome};
use interop_contextvm::ours::{Caller, serve_remembering};
use interop_contextvm::peer::{Peer, Sdk};
use interop_contextvm::text::Text;
use serde_json::json;

use super::relay;

/// Relays keep all events: gift wraps are of the persistent kind.
fn kept() -> Config {
    Config::default().with(|config| {
        config.encryption = Encryption::Required;
        config.wraps = Wraps::Persistent;
    })
}

/// Waits until the next second begins: the times of events are in seconds.
async fn next_second() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let rest = Duration::from_secs(1) - Duration::from_nanos(now.subsec_nanos().into());
    tokio::time::sleep(rest).await;
}

/// What a server has learned about its clients, kept across restarts.
#[derive(Default)]
struct Kept(Mutex<BTreeMap<PublicKey, Learned>>);

impl Memory for Kept {
    fn recall(&self, peer: &PublicKey) -> Option<Learned> {
        self.0.lock().unwrap().get(peer).copied()
    }

    fn keep(&self, peer: &PublicKey, learned: Learned) {
        self.0.lock().unwrap().insert(*peer, learned);
    }
}

/// The SDK's client announces its features only once: a server that has forgotten them answers with an
/// error where the answer is large.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn a_server_that_comes_back_serves_nothing_twice() {
    let memory = Arc::new(Kept::default());
    for (memory, remembers) in [
        (memory as Arc<dyn Memory>, true),
        (Arc::new(Forgetful), false),
    ] {
        let relay = relay().await;
        let keys = Keys::generate();
        let serve = async || {
            let serving = serve_remembering(relay.url(), keys.clone(), kept(), memory.clone());
            serving.await.unwrap()
        };
        let server = serve().await;
        let plan = json!({"relay": relay.url(), "encryption": "required"});
        let client = Peer::client(Sdk::Npm, &server.public_key(), &plan).await;
        let mut client = client.unwrap();
        let large = Call::new(Text::Ascii, 10, 200_000);
        client.call(large).await.unwrap().whole(large).unwrap();
        server.drained().await;
        server.close();
        next_second().await;

        relay.reset();
        let server = serve().await;
        let small = Call::new(Text::Cjk, 10, 100);
        client.call(small).await.unwrap().whole(small).unwrap();
        server.drained().await;
        assert_eq!(relay.events(), 2, "the request and its answer");
        match client.call(large).await.unwrap() {
            outcome if remembers => drop(outcome.whole(large).unwrap()),
            Outcome::Failed(error) => assert_eq!(error["data"]["reason"], "messageTooLarge"),
            Outcome::Answered(_) => panic!("nobody said that it can"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn a_client_that_comes_back_takes_no_old_answer() {
    let relay = relay().await;
    let server = Peer::server(
        Sdk::Npm,
        &json!({"relay": relay.url(), "wraps": "persistent", "chunk": 8_000}),
    )
    .await
    .unwrap();
    let keys = Keys::generate();
    // Each client uses the same request id, and expects another answer.
    for (text, down) in [
        (Text::Ascii, 50_000),
        (Text::Cjk, 100),
        (Text::Ascii, 200),
        (Text::Cjk, 49_000),
    ] {
        let client = Caller::connect(relay.url(), keys.clone(), server.key, kept()).await;
        let call = Call::new(text, 10, down);
        client
            .unwrap()
            .call(call)
            .await
            .unwrap()
            .whole(call)
            .unwrap();
    }
    assert_eq!(server.failures(), Vec::<String>::new());
}
