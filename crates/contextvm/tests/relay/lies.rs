//! A lying relay: it can neither forge an author without that author's signature, nor make an event
//! count twice by repeating it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use breakbulk_contextvm::envelope::{Draft, sign};
use breakbulk_contextvm::{
    Client, ClientConfig, Config, Encryption, Heard, Journal, Keys, PublicKey, Seal, Server,
    ServerConfig,
};
use breakbulk_testkit::log::{Level, Log};
use breakbulk_testkit::lying_relay::{Forged, LyingRelay};
use nostr_sdk::{EventBuilder, Kind, Tag};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{PATIENCE, relay_options};

fn plain() -> Config {
    Config::default().with(|config| config.encryption = Encryption::Disabled)
}

fn message(author: &PublicKey, to: &PublicKey, text: &str) -> Forged {
    Forged {
        author: author.to_hex(),
        kind: Seal::Plain.kind(),
        tags: vec![vec!["p".to_owned(), to.to_hex()]],
        content: text.to_owned(),
    }
}

/// An event that a key has really signed.
fn signed(keys: &Keys, to: &PublicKey, text: &str, seal: Seal) -> Value {
    let draft = Draft {
        to: *to,
        content: text.to_owned(),
        tags: vec![vec!["p".to_owned(), to.to_hex()]],
        seal,
    };
    json!(sign(keys, draft).unwrap().event)
}

async fn server(relay: &LyingRelay, keys: &Keys, config: Config) -> Server {
    let mut setup = ServerConfig::new(keys.clone(), vec![relay.url().to_owned()]);
    setup.config = config;
    setup.relay_options = relay_options();
    Server::bind(setup).await.unwrap()
}

async fn next(server: &Server) -> String {
    let message = timeout(PATIENCE, server.recv()).await.unwrap().unwrap();
    String::from_utf8(message.bytes.to_vec()).unwrap()
}

// CEP22-26
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_never_says_that_it_has_sent_all_holds_nothing_back() {
    let silent = LyingRelay::start_without_end().await.unwrap();
    let honest = LyingRelay::start().await.unwrap();
    let (keys, friend) = (Keys::generate(), Keys::generate());
    let relays = [&silent, &honest].map(|relay| relay.url().to_owned());
    let mut setup = ServerConfig::new(keys.clone(), relays.to_vec());
    setup.config = plain();
    setup.relay_options = relay_options();
    let server = Server::bind(setup).await.unwrap();
    silent.is_subscribed_to().await;
    let says = |method: &str| {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#);
        let event = signed(&friend, &keys.public_key(), &text, Seal::Plain);
        (text, event)
    };
    // An event that the honest relay delivers as well is handled at once.
    let (text, event) = says("both");
    silent.deliver(event.clone());
    honest.deliver(event);
    let soon = timeout(Duration::from_secs(4), next(&server)).await;
    assert_eq!(soon.unwrap(), text);
    // An event of the silent relay alone is handled after a while.
    let (text, event) = says("one");
    silent.deliver(event);
    assert_eq!(next(&server).await, text);
}

// CEP22-16
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_cannot_forge_an_allowed_client() {
    let relay = LyingRelay::start().await.unwrap();
    let (keys, friend) = (Keys::generate(), Keys::generate());
    let config =
        plain().with(|config| config.allowed = Some(BTreeSet::from([friend.public_key()])));
    let server = server(&relay, &keys, config).await;
    let (us, them) = (keys.public_key(), friend.public_key());
    let forged = r#"{"jsonrpc":"2.0","id":1,"method":"forged"}"#;
    let honest = r#"{"jsonrpc":"2.0","id":1,"method":"honest"}"#;
    relay.forge(&message(&them, &us, forged)).unwrap();
    relay.deliver(signed(&friend, &us, honest, Seal::Plain));
    assert_eq!(next(&server).await, honest);
}

// CEP22-16
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_cannot_forge_a_servers_answer() {
    let relay = LyingRelay::start().await.unwrap();
    let (server, keys) = (Keys::generate(), Keys::generate());
    let us = keys.public_key();
    let relays = vec![relay.url().to_owned()];
    let mut setup = ClientConfig::new(keys, server.public_key(), relays);
    setup.config = plain();
    setup.relay_options = relay_options();
    let client = Client::connect(setup).await.unwrap();
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;
    client.send(request).await.unwrap();
    relay.recorded(1).await;
    let answer = |text: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{text}"}}"#);
    let forged = message(&server.public_key(), &us, &answer("forged"));
    relay.forge(&forged).unwrap();
    relay.deliver(signed(&server, &us, &answer("honest"), Seal::Plain));
    let heard = timeout(PATIENCE, client.recv()).await.unwrap().unwrap();
    assert_eq!(heard.bytes, answer("honest"));
}

/// The relay repeats the client's `initialize` after more other events than a table of a fixed size
/// would remember.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_initialize_does_not_end_a_session() {
    for seal in [Seal::Plain, Seal::Persistent, Seal::Ephemeral] {
        let relay = LyingRelay::start().await.unwrap();
        let (keys, friend) = (Keys::generate(), Keys::generate());
        let us = keys.public_key();
        let mut setup = ServerConfig::new(keys, vec![relay.url().to_owned()]);
        setup.config.limits.remembered = 16;
        setup.relay_options = relay_options();
        setup.relay_options.remembered = 16;
        let server = Server::bind(setup).await.unwrap();
        let mut sessions = server.sessions();
        let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
        let initialize = signed(&friend, &us, initialize, seal);
        relay.deliver(initialize.clone());
        let mut session = timeout(PATIENCE, sessions.recv()).await.unwrap().unwrap();
        assert_eq!(session.peer, friend.public_key());
        timeout(PATIENCE, session.recv()).await.unwrap().unwrap();
        // While a request is open, another with its id would be refused anyway.
        let answer = r#"{"jsonrpc":"2.0","id":0,"result":{}}"#;
        session.send(answer).await.unwrap();
        let notification = r#"{"jsonrpc":"2.0","method":"m"}"#;
        let stranger = Keys::generate();
        for number in 0..50 {
            let other = format!(r#"{{"jsonrpc":"2.0","method":"m{number}"}}"#);
            relay.deliver(signed(&stranger, &us, &other, seal));
        }
        relay.deliver(initialize);
        // A stranger's request after the repeated event, to know when that has been handled.
        let last = Keys::generate();
        let request = r#"{"jsonrpc":"2.0","id":0,"method":"m"}"#;
        relay.deliver(signed(&last, &us, request, seal));
        loop {
            let session = timeout(PATIENCE, sessions.recv()).await.unwrap().unwrap();
            assert_ne!(session.peer, friend.public_key(), "{seal:?}");
            if session.peer == last.public_key() {
                break;
            }
        }
        relay.deliver(signed(&friend, &us, notification, seal));
        let next = timeout(PATIENCE, session.recv()).await.unwrap();
        assert!(next.is_some(), "{seal:?}");
    }
}

/// A journal in memory that outlives its server.
#[derive(Default)]
struct Kept(Mutex<Vec<Heard>>);

impl Journal for Kept {
    fn load(&self) -> Option<Vec<Heard>> {
        Some(self.0.lock().unwrap().clone())
    }

    fn add(&self, heard: &Heard) -> bool {
        let mut kept = self.0.lock().unwrap();
        kept.push(*heard);
        kept.len().is_multiple_of(2)
    }

    fn replace(&self, all: Vec<Heard>) {
        *self.0.lock().unwrap() = all;
    }
}

// CEP22-18
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_heard_before_a_restart_is_not_heard_again() {
    let relay = LyingRelay::start().await.unwrap();
    for seal in [Seal::Plain, Seal::Persistent, Seal::Ephemeral] {
        let (keys, friend) = (Keys::generate(), Keys::generate());
        let us = keys.public_key();
        let journal = Arc::new(Kept::default());
        let events: Vec<Value> = (0..5)
            .map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#))
            .map(|text| signed(&friend, &us, &text, seal))
            .collect();
        for round in 1..5 {
            let mut setup = ServerConfig::new(keys.clone(), vec![relay.url().to_owned()]);
            setup.relay_options = relay_options();
            setup.journal = Some(journal.clone());
            let server = Server::bind(setup).await.unwrap();
            for event in &events[..=round] {
                relay.deliver(event.clone());
            }
            // All events but the last are repeated ones; in the first round two are new.
            let mut heard = next(&server).await;
            if round == 1 {
                heard = next(&server).await;
            }
            assert!(heard.contains(&format!(r#""id":{round},"#)), "{heard}");
        }
    }
}

// CEP22-17
#[tokio::test]
async fn an_event_of_another_time_is_refused_and_its_author_is_told() {
    for (seconds, taken) in [(-500, true), (-700, false), (500, true), (700, false)] {
        let log = Log::capture();
        let relay = LyingRelay::start().await.unwrap();
        let (keys, friend) = (Keys::generate(), Keys::generate());
        let us = keys.public_key();
        let mut setup = ServerConfig::new(keys, vec![relay.url().to_owned()]);
        setup.config = plain();
        setup.relay_options = relay_options();
        setup.journal = Some(Arc::new(Kept::default()));
        let server = Server::bind(setup).await.unwrap();
        let request = |id: u64| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
        let now = nostr_sdk::Timestamp::now().as_secs();
        let event = EventBuilder::new(Kind::from_u16(Seal::Plain.kind()), request(1))
            .tag(Tag::parse(["p", &us.to_hex()]).unwrap())
            .custom_created_at(now.saturating_add_signed(seconds).into())
            .sign_with_keys(friend.as_nostr())
            .unwrap();
        relay.deliver(json!(event));
        relay.deliver(signed(&friend, &us, &request(2), Seal::Plain));
        let first = if taken { 1 } else { 2 };
        assert_eq!(next(&server).await, request(first), "{seconds}");
        if !taken {
            let told = relay.recorded(1).await[0]["content"].to_string();
            assert!(told.contains("wrongTime"), "{seconds}: {told}");
            let made = format!("the event's time is {}", event.created_at.as_secs());
            let warning = ["event refused", &made, &friend.public_key().to_hex()];
            log.assert_line(Level::WARN, &warning);
        }
    }
}
