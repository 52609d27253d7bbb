//! Tests of how sessions end, and what becomes of their open requests.

use serde_json::{Value, json};

use super::{Scene, text};
use crate::common::{signal, wait};

fn error(answer: &Value) -> (&str, &str) {
    let error = &answer["error"];
    (
        error["message"].as_str().unwrap_or_default(),
        error["data"]["reason"].as_str().unwrap_or_default(),
    )
}

// PROG-10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_leaves_no_request_unanswered_and_another_takes_over() {
    let scene = Scene::start("", &[]).await;
    let mut client = scene.client("");
    client.initialize("mortal");
    let (_, first, _) = client.about(1);
    client.ask(2, "wait", json!({}));
    client.ask(3, "die", json!({}));
    let mut ids = Vec::new();
    for _ in 0..2 {
        let answer = client.hear();
        let (message, reason) = error(&answer);
        assert_eq!(reason, "serverEnded", "{answer}");
        // Clients are not told the exit status.
        assert_eq!(message, "the server has ended", "{answer}");
        ids.push(answer["id"].as_u64().unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, [2, 3]);
    // The operator is told.
    scene
        .far
        .line("session ended: the command exited with status");
    // The gateway sends the client's `initialize` to the next process too.
    let (name, second, _) = client.about(4);
    assert_eq!(name, "mortal");
    assert_ne!(first, second);
}

// PROG-9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_session_ends_and_begins_again_when_it_speaks() {
    let scene = Scene::start("&idle=1", &[]).await;
    let mut client = scene.client("");
    client.initialize("sleeper");
    let (_, first, _) = client.about(1);
    scene
        .far
        .line("ended a session after 1 s without a message");
    let (name, second, _) = client.about(2);
    assert_eq!(name, "sleeper");
    assert_ne!(first, second);
}

// PROG-9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_initializes_is_not_introduced_by_the_gateway() {
    // MCP 2026-07-28: no `initialize`; a client begins with `server/discover`, and every request says
    // its version. A server of both versions is held to the old one by the first `initialize`.
    let scene = Scene::start("&idle=1", &[]).await;
    let mut client = scene.client("");
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    for (id, method) in [(1, "server/discover"), (2, "tools/call"), (3, "tools/call")] {
        let params = json!({"name": "heard", "arguments": {}, "_meta": meta});
        client.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let answer = client.hear();
        assert_eq!(answer["id"], id, "{answer}");
        let result = &answer["result"];
        match id {
            1 => assert_eq!(
                result["supportedVersions"],
                json!(["2026-07-28", "2025-06-18"])
            ),
            2 => assert_eq!(result["content"][0]["text"], "server/discover tools/call"),
            // Another command, which has heard nothing of the first one.
            _ => assert_eq!(result["content"][0]["text"], "tools/call"),
        }
        if id == 2 {
            scene
                .far
                .line("ended a session after 1 s without a message");
        }
    }
    // A client of the old version that sends none is answered by its server.
    let mut old = scene.client("");
    let answer = old.call(1, "about", json!({}));
    assert_eq!(answer["error"]["message"], "not initialized", "{answer}");
}

// PROG-9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_comes_again_gets_another_server() {
    let scene = Scene::start("", &[]).await;
    let key = super::keygen(&scene.folder, "client");
    let options = format!("&key={}", key.display());
    let mut client = scene.client(&options);
    client.initialize("first");
    let (_, first, _) = client.about(1);
    // The answer that the first session still waits for must not reach the second one.
    client.ask(2, "wait", json!({}));
    drop(client);
    let mut client = scene.client(&options);
    client.initialize("second");
    let (name, second, _) = client.about(2);
    assert_eq!(name, "second");
    assert_ne!(first, second);
    // The client's gateway keeps what it learned about the server.
    let kept = std::fs::read_to_string(scene.folder.path().join("client.servers")).unwrap();
    assert!(
        kept.ends_with(" oversized,encryption,ephemeral\n"),
        "{kept}"
    );
}

// PROG-9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_clients_than_there_is_room_for_are_told() {
    let scene = Scene::start("", &["--max-sessions", "1"]).await;
    let mut first = scene.client("");
    first.initialize("first");
    let mut second = scene.client("");
    let answer = second.call(1, "about", json!({}));
    let (message, reason) = error(&answer);
    assert_eq!(reason, "busy", "{answer}");
    assert!(message.contains("try again later"), "{answer}");
    scene
        .far
        .line("refused a client: all 1 sessions are in use");
    // The first client is still served.
    assert_eq!(first.about(1).0, "first");
}

/// One key for both would mix their answers.
// PROG-11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_one_web_socket_listener_have_keys_of_their_own() {
    let scene = Scene::start("", &[]).await;
    let near = crate::common::Listening::new(&["--listen", "ws://0", "--to", &scene.to("")]);
    let mut both = ["one", "two"].map(|name| {
        let program = crate::common::Near::new(&["--listen", "stdio:", "--to", &near.address]);
        let mut program = super::Program(program);
        program.initialize(name);
        program
    });
    let [one, two] = both.each_mut().map(|program| program.about(1));
    assert_eq!((one.0.as_str(), two.0.as_str()), ("one", "two"));
    assert_ne!(one.1, two.1, "each key has a command of its own");
}

// CEP22-23
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_learns_why_its_server_does_not_answer() {
    let nobody = "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e";
    let allowing = Scene::start(&format!("&allow={nobody}"), &[]).await;
    let bare = Scene::start("&encryption=disabled", &[]).await;
    let sealed = Scene::start("&encryption=required", &[]).await;
    let ours = bare.far.address.split_once('=').unwrap().1;
    let unknown = bare.far.address.replace(ours, nobody);
    for (to, listener, expected, words) in [
        (
            allowing.to(""),
            Some(&allowing),
            "notAllowed",
            "allow= of a gateway",
        ),
        (
            bare.to(""),
            Some(&bare),
            "encryptionDisabled",
            "encryption=disabled of a gateway",
        ),
        (
            sealed.to("&encryption=disabled"),
            Some(&sealed),
            "encryptionRequired",
            "encryption=optional or required of a gateway",
        ),
        (
            format!("{unknown}&timeout=1"),
            None,
            "timeout",
            "is the other end at these relays",
        ),
    ] {
        let near = crate::common::Near::new(&["--listen", "stdio:", "--to", &to]);
        let mut client = super::Program(near);
        let answer = client.call(1, "about", json!({}));
        let (message, reason) = error(&answer);
        assert_eq!(reason, expected, "{answer}");
        assert!(message.contains(words), "{answer}");
        if let Some(listener) = listener {
            let line = listener.far.line("event refused");
            assert!(line.contains(words), "{line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_loses_its_connections_in_the_middle_is_found_again() {
    let scene = Scene::start("", &[]).await;
    let mut client = scene.client("&timeout=5");
    client.initialize("patient");
    scene.relay.reset();
    client.ask(1, "text", json!({"kind": "ascii", "size": 5_000_000}));
    while scene.relay.events() < 20 {
        tokio::task::yield_now().await;
    }
    scene.relay.cut();
    // Events that nobody was there for are lost: then the request has an error, but it has an answer.
    let answer = client.hear();
    assert_eq!(answer["id"], 1, "{}", answer["error"]);
    println!("after the cut: {}", answer["error"]);
    let mut id = 1;
    let text = text("ascii", 1_000_000);
    let got = loop {
        id += 1;
        let answer = client.call(id, "text", json!({"kind": "ascii", "size": 1_000_000}));
        match answer["result"]["content"][0]["text"].as_str() {
            Some(got) => break got == text,
            None => assert!(id < 10, "{}", answer["error"]),
        }
    };
    assert!(got);
    assert_eq!(client.about(id + 1).0, "patient");
    let line = "sent recent events again after an outage of the relay";
    scene.far.line(line);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_ends_both_gateways_and_what_is_owed_is_answered() {
    let mut scene = Scene::start("", &[]).await;
    let mut client = scene.client("");
    client.initialize("witness");
    let (_, process, _) = client.about(1);
    client.ask(2, "wait", json!({}));
    // The server has the request, since it has the next one.
    client.about(3);
    scene.far.signal("-TERM");
    let answer = client.hear();
    assert_eq!(answer["id"], 2, "{answer}");
    let (message, _) = error(&answer);
    assert!(message.contains("the gateway is stopping"), "{answer}");
    assert_eq!(scene.far.exit_code(), Some(0));
    let gone = std::process::Command::new("kill")
        .args(["-0", &process])
        .output()
        .unwrap();
    assert!(!gone.status.success(), "the server still runs");
    signal(&client.0.child, "-TERM");
    assert_eq!(wait(&mut client.0.child), Some(0));
}
