//! Replays what real servers answered: every status, body and content type must be the same, except where a
//! rule below says otherwise.

use std::net::SocketAddr;

use axum::Router;
use breakbulk_loro::http::serve_options;
use breakbulk_net::http::{Arrivals, Limits, Server};
use serde_json::Value;

use crate::common::{config, listen, message, open, send, verdict};
use crate::raw::{Open, ask};

/// Where this server differs, and why.
const RULES: &[(&str, &str, Differs)] = &[
    (
        "fragment 0 again (a retry)",
        "a retry over HTTP is no error",
        Differs::Answer(202, r#"{"pending":true}"#),
    ),
    (
        "body of 1 MiB + 1",
        "no error page of a framework, with the paths of its files",
        Differs::Words,
    ),
];

enum Differs {
    Answer(u16, &'static str),
    /// Only the status must be the same.
    Words,
}

fn transcript(name: &str) -> Vec<Value> {
    let file = format!(
        "{}/../../vectors/loro/transcript_{name}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn field<'v>(step: &'v Value, of: &str, name: &str) -> &'v str {
    step[of][name].as_str().unwrap_or_default()
}

/// Sends what the recorded server sent: the nth list after the nth message.
fn say(mut arrivals: Arrivals, script: Vec<Vec<String>>) {
    tokio::spawn(async move {
        while let Some(arrival) = arrivals.next().await {
            let (script, config) = (script.clone(), config(arrival.claim.way));
            let connection = open(arrival, config);
            tokio::spawn(async move {
                let mut script = script.into_iter();
                while let Some(message) = message(&connection).await {
                    let verdict = verdict(&message.bytes);
                    if verdict.is_ok() {
                        for text in script.next().unwrap_or_default() {
                            send(&connection, text);
                        }
                    }
                    connection.settle(message.id, verdict);
                }
            });
        }
    });
}

/// Sends the recorded request, and compares the answers.
async fn replay(address: SocketAddr, step: &Value) {
    let note = step["note"].as_str().unwrap();
    let request = &step["request"];
    let hex = field(step, "request", "body_hex");
    let digits: Vec<_> = hex.as_bytes().chunks_exact(2).collect();
    let byte = |pair: &&[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let mut body: Vec<_> = digits.iter().map(byte).collect();
    // Long bodies are recorded by their beginning.
    body.resize(request["body_len"].as_u64().unwrap_or(0) as usize, 0);
    let headers: Vec<_> = request["headers"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
        .collect();
    let path = field(step, "request", "path");
    let answer = ask(
        address,
        field(step, "request", "method"),
        path,
        &headers,
        &body,
    )
    .await;
    let recorded = &step["response"];
    let mut expected = (
        recorded["status"].as_u64().unwrap() as u16,
        recorded["body"].as_str().unwrap(),
    );
    match RULES.iter().find(|(of, ..)| *of == note) {
        Some((_, _, Differs::Words)) => {
            return assert_eq!(answer.status, expected.0, "{note}: {answer:?}");
        }
        Some((_, _, Differs::Answer(status, body))) => expected = (*status, body),
        None => {}
    }
    assert_eq!((answer.status, answer.body.as_str()), expected, "{note}");
    let kind = recorded["headers"]["content-type"].as_str();
    assert_eq!(answer.header("content-type"), kind, "{note}");
}

#[tokio::test]
async fn the_recorded_event_stream_and_posts() {
    let steps = transcript("sse");
    let stream = steps.last().unwrap();
    let events = field(stream, "response", "body");
    let said: Vec<_> = events
        .split("\n\n")
        .filter_map(|event| event.strip_prefix("data: "))
        .map(ToOwned::to_owned)
        .collect();
    let (server, arrivals) = Server::new(serve_options());
    say(arrivals, vec![said[..2].to_vec(), said[2..].to_vec()]);
    let router = Router::new().nest("/loro", server.sse());
    let (address, _serving) = listen(router, Limits::default()).await;
    let mut open: Option<Open> = None;
    for step in &steps[..steps.len() - 1] {
        if step["note"] == "establish" {
            let path = field(stream, "request", "path");
            let mut opened = Open::new(address, "GET", path, &[], &[]).await;
            let kind = opened.answer.header("content-type");
            assert_eq!(
                (opened.answer.status, kind),
                (200, Some("text/event-stream"))
            );
            assert_eq!(opened.answer.header("cache-control"), Some("no-cache"));
            assert_eq!(opened.until("\n\n").await, ": ok\n\n");
            open = Some(opened);
        }
        replay(address, step).await;
    }
    // Heartbeats come at times of their own.
    let rest = events.strip_prefix(": ok\n\n").unwrap();
    let rest = rest.replace(": heartbeat\n\n", "");
    assert_eq!(open.unwrap().until(&rest[rest.len() - 20..]).await, rest);
}

#[tokio::test]
async fn the_recorded_polls_and_posts() {
    let steps = transcript("poll");
    let said = |note: &str| {
        let step = steps.iter().find(|step| step["note"] == note).unwrap();
        let body = field(step, "response", "body");
        let inner = body.strip_prefix(r#"{"messages":["#).unwrap();
        let inner = inner.strip_suffix(r#"],"isNewConnection":false}"#).unwrap();
        inner.to_owned()
    };
    // One recorded answer has two messages: splits it where the second one begins.
    let two = said("second poll");
    let at = two.find(r#",{"type":"channel/sync-request""#).unwrap();
    let script = vec![
        vec![two[..at].to_owned(), two[at + 1..].to_owned()],
        vec![said("third poll")],
    ];
    let (server, arrivals) = Server::new(serve_options());
    say(arrivals, script);
    let router = Router::new().nest("/loro", server.poll());
    let (address, _serving) = listen(router, Limits::default()).await;
    let (last, others) = steps.split_last().unwrap();
    assert_eq!(last["note"], "two polls at once", "a defect: see below");
    for step in others {
        replay(address, step).await;
    }
}
