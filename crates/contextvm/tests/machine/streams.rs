//! Open-ended streams (CEP-41) use the envelope and the token of transfers. They are passed on to an
//! application that gave a token, and refused for one that gave none.

use std::time::Duration;

use breakbulk_contextvm::{Config, Encryption, Learned, Machine, Prepared, Role};
use serde_json::Value;

use crate::sim::{Sim, Weather, call, key};

const LONG: Duration = Duration::from_secs(10_000);

fn plain() -> Config {
    Config::default().with(|config| config.encryption = Encryption::Disabled)
}

fn frame(token: &str, progress: u64, kind: &str, rest: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress},"cvm":{{"type":"open-stream","frameType":"{kind}"{rest}}}}}}}"#
    )
}

/// Sends a request; returns its token as the server sees it, as JSON.
fn ask(sim: &mut Sim, request: &str) -> String {
    sim.send(1, 0, request);
    let (to, _, heard) = sim.run(LONG).unwrap();
    assert_eq!(to, 0, "{heard}");
    let heard: Value = serde_json::from_str(&heard).unwrap();
    heard["params"]["_meta"]["progressToken"].to_string()
}

fn send(sim: &mut Sim, from: usize, to: usize, text: &str) {
    let (now, to) = (sim.time(), sim.keys[to]);
    let message = Prepared::outgoing(text.to_owned().into(), None).unwrap();
    sim.machines[from].send(now, to, message).unwrap();
}

// CEP22-21
#[test]
fn a_stream_passes_both_ways_under_the_applications_token() {
    let mut sim = Sim::new(1, Weather::CALM, vec![plain(), plain()]);
    let request =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":7}}}"#;
    let token = ask(&mut sim, request);
    assert_ne!(token, "7");
    for (progress, kind, rest) in [
        (1, "start", ""),
        (2, "chunk", r#","chunkIndex":0,"data":"x\u0041""#),
        (3, "ping", r#","nonce":"n""#),
        (4, "close", r#","lastChunkIndex":0"#),
    ] {
        send(&mut sim, 0, 1, &frame(&token, progress, kind, rest));
        let (to, _, heard) = sim.run(LONG).unwrap();
        assert_eq!((to, heard), (1, frame("7", progress, kind, rest)));
    }
    // In the application's own frame the token is replaced by the one that the server knows.
    let pong = r#","nonce":"n""#;
    send(&mut sim, 1, 0, &frame("7", 1, "pong", pong));
    sim.run(sim.now + Duration::from_secs(1));
    let sent = &sim.tape.last().unwrap().content;
    assert_eq!(*sent, frame(&token, 1, "pong", pong));
}

// CEP22-21
#[test]
fn a_stream_that_nobody_asked_for_is_refused_once() {
    let mut sim = Sim::new(1, Weather::CALM, vec![plain(), plain()]);
    let token = ask(&mut sim, &call(1, "x", 1));
    for (progress, kind, rest) in [(1, "start", ""), (2, "chunk", r#","data":"x""#)] {
        send(&mut sim, 0, 1, &frame(&token, progress, kind, rest));
        assert!(sim.run(sim.now + Duration::from_secs(1)).is_none());
    }
    let (client, abort) = (sim.keys[1], r#""frameType":"abort""#);
    let from_client = sim.tape.iter().filter(|seen| seen.from == client);
    let aborts: Vec<&str> = from_client
        .map(|seen| seen.content.as_str())
        .filter(|content| content.contains(abort))
        .collect();
    assert_eq!(aborts.len(), 1, "{aborts:?}");
    assert!(aborts[0].contains(&token), "{aborts:?}");
    assert!(aborts[0].contains("takes no stream"), "{aborts:?}");
}

// CEP22-21
#[test]
fn a_tool_call_gets_no_token_from_us_where_the_server_would_open_a_stream() {
    let learned = |streams| Learned {
        oversized: true,
        streams,
        ..Learned::default()
    };
    let now = std::time::Instant::now();
    let call = |size: usize| call(1, &"x".repeat(size), 1);
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#.to_owned();
    for (streams, request, adds) in [
        (Some(true), call(1), false),
        (Some(true), list.clone(), true),
        // Such a request only fits in chunks, and chunks need a token.
        (Some(true), call(100_000), true),
        (Some(false), call(1), true),
        (None, call(1), true),
    ] {
        let role = Role::Client { server: key(0) };
        let machine = Machine::new(role, plain(), streams.map(learned), [3; 32], now);
        let message = Prepared::outgoing(request.clone().into(), None).unwrap();
        let shown: String = request.chars().take(80).collect();
        assert_eq!(
            machine.adds_token(&key(0), &message),
            adds,
            "{streams:?} {shown}"
        );
    }
}
