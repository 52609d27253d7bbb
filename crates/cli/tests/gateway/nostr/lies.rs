//! A relay that lies: it forges authors and repeats what it heard.

use std::path::Path;

use breakbulk::contextvm::envelope::{Draft, sign};
use breakbulk::contextvm::{Keys, PublicKey, Seal, npub};
use breakbulk_testkit::lying_relay::{Forged, LyingRelay};
use serde_json::json;
use tempfile::TempDir;

use super::{Program, keygen, server};
use crate::common::{Listening, Near, gateway};

fn keys(file: &Path) -> Keys {
    Keys::parse(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn forged(author: &PublicKey, to: &PublicKey, content: String) -> Forged {
    Forged {
        author: author.to_hex(),
        kind: Seal::Plain.kind(),
        tags: vec![vec!["p".to_owned(), to.to_hex()]],
        content,
    }
}

fn initialize(name: &str) -> String {
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": name, "version": "1"}});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string()
}

/// A gateway at the relay whose command adds a line to a file whenever it is started.
fn listening(relay: &LyingRelay, folder: &TempDir, options: &str) -> Listening {
    listening_with(relay, folder, options, &[])
}

fn listening_with(relay: &LyingRelay, folder: &TempDir, options: &str, more: &[&str]) -> Listening {
    let (key, count) = (folder.path().join("server"), folder.path().join("started"));
    let server = server();
    let server = server.strip_prefix("exec:").unwrap();
    let script = folder.path().join("script");
    std::fs::write(
        &script,
        format!("echo >> '{}'\nexec {server}\n", count.display()),
    )
    .unwrap();
    let listen = format!("cep22+nostr:{}?key={}{options}", relay.url(), key.display());
    let to = format!("exec:sh '{}'", script.display());
    let mut command = gateway(&["--listen", &listen, "--to", &to]);
    command.args(more);
    Listening::start(command)
}

/// How many commands were started.
fn started(folder: &TempDir) -> usize {
    let text = std::fs::read_to_string(folder.path().join("started"));
    text.unwrap_or_default().lines().count()
}

fn client(far: &Listening, options: &str) -> Program {
    let to = format!("{}{options}", far.address);
    Program(Near::new(&["--listen", "stdio:", "--to", &to]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_command_runs_for_an_allowed_key_that_did_not_ask() {
    let relay = LyingRelay::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let us = keys(&keygen(&folder, "server")).public_key();
    let friend = keygen(&folder, "friend");
    // Nobody has the secret of this one.
    let ghost = Keys::generate().public_key();
    let allow = format!(
        "&allow={},{}",
        npub(&ghost),
        npub(&keys(&friend).public_key())
    );
    let far = listening(&relay, &folder, &allow);
    relay
        .forge(&forged(&ghost, &us, initialize("ghost")))
        .unwrap();
    let mut client = client(&far, &format!("&key={}", friend.display()));
    client.initialize("friend");
    assert_eq!(client.about(1).0, "friend");
    assert_eq!(started(&folder), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_hears_an_answer_that_its_server_did_not_give() {
    let relay = LyingRelay::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (server, us) = (Keys::generate(), keygen(&folder, "client"));
    let to = format!(
        "cep22+nostr:{}?server={}&encryption=disabled&key={}",
        relay.url(),
        npub(&server.public_key()),
        us.display()
    );
    let us = keys(&us).public_key();
    let mut client = Program(Near::new(&["--listen", "stdio:", "--to", &to]));
    client.say(&json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}));
    relay.recorded(1).await;
    let answer = |text: &str| json!({"jsonrpc": "2.0", "id": 7, "result": text}).to_string();
    let lie = forged(&server.public_key(), &us, answer("forged"));
    relay.forge(&lie).unwrap();
    let honest = Draft {
        to: us,
        content: answer("honest"),
        tags: lie.tags,
        seal: Seal::Plain,
    };
    let event = sign(&server, honest).unwrap().event;
    relay.deliver(json!(event));
    assert_eq!(client.hear()["result"], "honest");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throw_away_keys_do_not_fill_all_places() {
    let relay = LyingRelay::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let us = keys(&keygen(&folder, "server")).public_key();
    let friend = keygen(&folder, "friend");
    let known = npub(&keys(&friend).public_key());
    std::fs::write(folder.path().join("server.clients"), known).unwrap();
    let far = listening_with(&relay, &folder, "", &["--max-sessions", "8"]);
    for number in 0..100 {
        let stranger = Draft {
            to: us,
            content: initialize(&format!("stranger {number}")),
            tags: vec![vec!["p".to_owned(), us.to_hex()]],
            seal: Seal::Plain,
        };
        let event = sign(&Keys::generate(), stranger).unwrap().event;
        relay.deliver(json!(event));
    }
    far.line("all 6 sessions for unknown clients, of 8 in all, are in use");
    let mut client = client(&far, &format!("&key={}", friend.display()));
    client.initialize("friend");
    assert_eq!(client.about(1).0, "friend");
    assert!(started(&folder) <= 7);
}

/// Sealed events too: what is inside is what was said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_heard_is_not_heard_again_after_a_restart() {
    for encryption in ["disabled", "required"] {
        let relay = LyingRelay::start().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        keygen(&folder, "server");
        let friend = keygen(&folder, "friend");
        let options = format!("&encryption={encryption}&key={}", friend.display());
        let far = listening(&relay, &folder, "");
        let mut first = client(&far, &options);
        first.initialize("friend");
        assert_eq!(first.about(1).0, "friend");
        drop(first);
        let recorded = relay.recorded(0).await;
        assert!(recorded.len() >= 5, "{recorded:?}");
        drop(far);
        assert_eq!(started(&folder), 1);
        let far = listening(&relay, &folder, "");
        for event in recorded {
            relay.deliver(event);
        }
        let mut second = client(&far, "&encryption=disabled");
        second.initialize("another");
        assert_eq!(second.about(1).0, "another");
        assert_eq!(started(&folder), 2, "{encryption}");
    }
}
