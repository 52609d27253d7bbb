//! A relay that lies: nobody is believed to be an author whose signature is not there, and nothing
//! that was heard is heard again.

use std::collections::BTreeSet;

use breakbulk_contextvm::envelope::{Draft, sign};
use breakbulk_contextvm::{
    Client, ClientConfig, Config, Encryption, Keys, PublicKey, Seal, Server, ServerConfig,
};
use breakbulk_testkit::lying_relay::{Forged, LyingRelay};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{PATIENCE, relay_options};

fn plain() -> Config {
    Config {
        encryption: Encryption::Disabled,
        ..Config::default()
    }
}

fn message(author: &PublicKey, to: &PublicKey, text: &str) -> Forged {
    Forged {
        author: author.to_hex(),
        kind: Seal::Plain.kind(),
        tags: vec![vec!["p".to_owned(), to.to_hex()]],
        content: text.to_owned(),
    }
}

/// The event by which a key really says something.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_cannot_forge_an_allowed_client() {
    let relay = LyingRelay::start().await.unwrap();
    let (keys, friend) = (Keys::generate(), Keys::generate());
    let config = Config {
        allowed: Some(BTreeSet::from([friend.public_key()])),
        ..plain()
    };
    let server = server(&relay, &keys, config).await;
    let (us, them) = (keys.public_key(), friend.public_key());
    let forged = r#"{"jsonrpc":"2.0","id":1,"method":"forged"}"#;
    let honest = r#"{"jsonrpc":"2.0","id":1,"method":"honest"}"#;
    relay.forge(&message(&them, &us, forged)).unwrap();
    relay.deliver(signed(&friend, &us, honest, Seal::Plain));
    assert_eq!(next(&server).await, honest);
}

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
