//! Sessions over HTTP whose requests reach any member of a fleet.

use std::time::Instant;

use serde_json::{Value, json};

use super::door::server;
use super::wire::{BOTH, ask, begin, begin_resumable, call, in_session, post};
use crate::common::PATIENCE;
use crate::fleet::{Members, fleet_at};
use crate::nats_server::NatsServer;

const LISTEN: &str = "http://127.0.0.1:0/mcp";

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

fn members(server_: &NatsServer) -> Members {
    Members::start(LISTEN, &fleet_at(server_), |_| server(), &[])
}

// FLEET-1
#[test]
fn a_session_is_found_from_every_member() {
    let nats = NatsServer::start("");
    let members = members(&nats);
    let url = |number: usize| members.members[number].address.as_str();
    let session = begin(url(0));
    let who = |number, id| {
        let answer = post(url(number), Some(&session), &call(id, "who", ""));
        assert_eq!(answer.status, 200);
        text(&answer.json()).to_owned()
    };
    let process = who(0, 1);
    assert_eq!(who(1, 2), process, "the same command behind every member");
    assert_eq!(who(2, 3), process);
    // A large message each way, a stream, a message of the server's own, and a cancellation's 202.
    let large = "ü".repeat(500_000);
    let echo = call(4, "echo", &format!(r#""text":"{large}""#));
    let answer = post(url(1), Some(&session), &echo).json();
    assert!(text(&answer) == large);
    let large = post(
        url(2),
        Some(&session),
        &call(5, "large", r#""size":3000000"#),
    )
    .json();
    assert_eq!(text(&large).len(), 3_000_000);
    let head = format!(
        "{}Accept: text/event-stream\r\n",
        in_session(Some(&session))
    );
    let mut own = ask(url(2), "GET", &head, "");
    assert_eq!(own.status, 200);
    let news = post(url(1), Some(&session), &call(6, "news", "")).json();
    assert_eq!(text(&news), "soon");
    let changed = own.events(|data| data.get("method").is_some());
    assert_eq!(
        changed.last().unwrap().1["method"],
        "notifications/tools/list_changed"
    );
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":6}}"#;
    assert_eq!(post(url(2), Some(&session), cancel).status, 202);
    // A wrong request is refused as by the member itself.
    let twice = format!("{BOTH}{}", in_session(Some(&session)));
    let wrong = ask(
        url(1),
        "POST",
        &format!("{twice}MCP-Protocol-Version: 1\r\n"),
        &call(7, "who", ""),
    );
    assert_eq!(wrong.status, 400);
    assert_eq!(wrong.json()["id"], json!(7));
    let ended = ask(url(1), "DELETE", &in_session(Some(&session)), "");
    assert_eq!(ended.status, 200);
    for number in 0..3 {
        let gone = post(url(number), Some(&session), &call(8, "who", ""));
        assert_eq!(gone.status, 404, "member {number}");
    }
}

/// A stream that was cut at one member is resumed at another.
// FLEET-1
#[test]
fn a_stream_is_resumed_at_another_member() {
    let nats = NatsServer::start("");
    let members = members(&nats);
    let url = |number: usize| members.members[number].address.as_str();
    let session = begin_resumable(url(0));
    let mut cut = post(url(1), Some(&session), &call(1, "wait", ""));
    let events = cut.events(|data| data.get("method").is_some());
    drop(cut);
    let last = &events[0].0;
    let head = format!(
        "{}Accept: text/event-stream\r\nLast-Event-ID: {last}\r\n",
        in_session(Some(&session))
    );
    let mut resumed = ask(url(2), "GET", &head, "");
    assert_eq!(resumed.status, 200);
    let again = resumed.events(|data| data.get("method").is_some());
    assert_eq!(again.last().unwrap(), events.last().unwrap());
}

// FLEET-2
#[test]
fn a_session_whose_member_was_killed_is_404_at_every_other() {
    let nats = NatsServer::start("");
    let mut members = members(&nats);
    let urls: Vec<_> = members
        .members
        .iter()
        .map(|it| it.address.clone())
        .collect();
    let session = begin(&urls[0]);
    // A request that is open when its member dies.
    let mut open = post(&urls[1], Some(&session), &call(1, "wait", ""));
    open.events(|data| data.get("method").is_some());
    members.kill(0);
    let begun = Instant::now();
    // A request that reached NATS before it noticed the death has no answer: try again later.
    let gone = loop {
        let answer = post(&urls[1], Some(&session), &call(2, "who", ""));
        assert!(begun.elapsed() < PATIENCE);
        if answer.status != 503 {
            break answer;
        }
    };
    println!("told after {:?}", begun.elapsed());
    assert_eq!(gone.status, 404);
    let error = gone.json();
    assert_eq!(error["error"]["code"], json!(-32001));
    let words = "the member of the fleet that had this session is gone";
    assert!(
        error["error"]["message"].as_str().unwrap().contains(words),
        "{error}"
    );
    // The next request is answered at once.
    let begun = Instant::now();
    assert_eq!(
        post(&urls[1], Some(&session), &call(3, "who", "")).status,
        404
    );
    assert!(begun.elapsed() < std::time::Duration::from_secs(1));
    members.members[1].line("a member of the fleet is gone");
    let answer = open.events(|data| data["id"] == json!(1));
    let error = &answer.last().unwrap().1["error"];
    assert_eq!(error["code"], json!(-32000), "{answer:?}");
    begin(&urls[2]);
}
