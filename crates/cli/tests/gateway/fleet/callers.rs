//! Tests that only its own caller resumes a session, at whichever member the caller comes back.

use breakbulk::link::Frame;
use breakbulk::net::ws::{Bearer, ConnectOptions, WebSocket, connect};
use breakbulk::net::{Incoming, Sink, Source, Transport};
use serde_json::{Value, json};

use super::{Members, fleet_at, noted_echo};
use crate::nats_server::NatsServer;

async fn line(url: &str, token: &str) -> WebSocket {
    let options = ConnectOptions {
        bearer: Some(Bearer::new(token)),
        subprotocols: vec!["breakbulk.v2".to_owned()],
        ..ConnectOptions::default()
    };
    connect(url, &options).await.unwrap()
}

/// Sends a control frame, and returns the method and params of the answer.
async fn say(line: WebSocket, method: &str, params: Value) -> (String, Value) {
    let (mut source, mut sink) = line.split();
    let frame =
        json!({"jsonrpc": "2.0", "method": format!("breakbulk/{method}"), "params": params});
    sink.send(Frame::Text(frame.to_string().into()))
        .await
        .unwrap();
    loop {
        match source.next().await {
            Incoming::Frame(frame) => {
                let answer: Value = serde_json::from_slice(frame.bytes()).unwrap();
                let method = answer["method"].as_str().unwrap().to_owned();
                return (method, answer["params"].clone());
            }
            Incoming::Alive => {}
            other => panic!("{other:?}"),
        }
    }
}

// FLEET-3
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_resumed_by_its_own_caller_alone_at_every_member() {
    let server = NatsServer::start("");
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "anna first\nbob second\n").unwrap();
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&tokens, own).unwrap();
    let listen = format!("ws://127.0.0.1:0?token-file={}", tokens.display());
    let members = Members::start(&listen, &fleet_at(&server), noted_echo, &[]);
    let url = |number: usize| members.members[number].address.clone();
    let hello = json!({"version": 2, "carries": "text", "resumeMs": 60_000, "window": 1 << 20, "frame": 10_000, "message": 100_000});
    let (method, hello) = say(line(&url(0), "first").await, "hello", hello).await;
    assert_eq!(method, "breakbulk/hello");
    let session = hello["session"].as_str().unwrap();
    let resume = json!({"version": 2, "session": session, "received": 0});
    for (number, token, expected) in [
        (0, "second", ("gone", json!({"why": "expired"}))),
        (1, "second", ("gone", json!({"why": "expired"}))),
        (2, "first", ("resumed", json!({"received": 0}))),
        (1, "first", ("resumed", json!({"received": 0}))),
        (0, "first", ("resumed", json!({"received": 0}))),
    ] {
        let line = line(&url(number), token).await;
        let (method, params) = say(line, "resume", resume.clone()).await;
        let expected = (format!("breakbulk/{}", expected.0), expected.1);
        assert_eq!((method, params), expected, "{token} at member {number}");
    }
    // No member made this session: none has the name that the session's begins with.
    let made_up = json!({"version": 2, "session": "A".repeat(32), "received": 0});
    let (method, params) = say(line(&url(1), "first").await, "resume", made_up).await;
    assert_eq!(
        (&*method, params),
        ("breakbulk/gone", json!({"why": "member"}))
    );
    members.owner();
}
