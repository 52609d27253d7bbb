//! A program at the standard streams, a gateway, HTTP, another gateway, and a server behind pipes; and the
//! same with a tunnel between two HTTP ends.

use serde_json::{Value, json};

use super::door::server;
use super::wire::{INITIALIZE, INITIALIZED, begin, call, modern, post};
use crate::common::{Listening, Near};

fn far() -> Listening {
    Listening::new(&["--listen", "http://127.0.0.1:0/mcp", "--to", &server()])
}

pub(super) fn read(near: &mut Near) -> Value {
    let line = near.read_line();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:.300}"))
}

pub(super) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

pub(super) fn begun(url: &str) -> Near {
    let mut near = Near::new(&["--listen", "stdio:", "--to", url, "--quiet"]);
    near.write(format!("{INITIALIZE}\n").as_bytes());
    assert_eq!(read(&mut near)["id"], 0);
    near.write(format!("{INITIALIZED}\n").as_bytes());
    near
}

// MCPH-8
#[test]
fn twenty_megabytes_progress_and_questions_cross_http_both_ways() {
    let far = far();
    let mut near = begun(&far.address);
    let large = "ü".repeat(10 << 20);
    let sent = call(1, "echo", &format!(r#""text":"{large}""#));
    near.write(format!("{sent}\n").as_bytes());
    assert!(text(&read(&mut near)) == large);
    // Progress, in its order.
    let steps = call(2, "steps", "").replace(
        "\"arguments\"",
        r#""_meta":{"progressToken":5},"arguments""#,
    );
    near.write(format!("{steps}\n").as_bytes());
    for step in 1..=3 {
        assert_eq!(read(&mut near)["params"]["progress"], step);
    }
    assert_eq!(text(&read(&mut near)), "done");
    // The server asks the program.
    near.write(format!("{}\n", call(3, "ask", "")).as_bytes());
    let asked = read(&mut near);
    assert_eq!(
        (&asked["method"], &asked["id"]),
        (&json!("sampling/createMessage"), &json!("s1"))
    );
    near.write(b"{\"jsonrpc\":\"2.0\",\"id\":\"s1\",\"result\":{\"a\":1}}\n");
    assert_eq!(text(&read(&mut near)), r#"{"a": 1}"#);
    // A notification of the server's own.
    near.write(format!("{}\n", call(4, "news", "")).as_bytes());
    let both = [read(&mut near), read(&mut near)];
    assert!(
        both.iter()
            .any(|it| it["method"] == "notifications/tools/list_changed")
    );
    // A cancellation reaches the server, which answers the next request.
    near.write(format!("{}\n", call(5, "wait", "")).as_bytes());
    assert_eq!(read(&mut near)["method"], "notifications/message");
    near.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":5}}\n");
    far.line("cancelled 5");
    near.write(format!("{}\n", call(6, "echo", r#""text":"b""#)).as_bytes());
    assert_eq!(text(&read(&mut near)), "b");
    drop(near.stdin.take());
    assert_eq!(crate::common::wait(&mut near.child), Some(0));
    far.line("the client closed with 1000");
}

#[test]
fn calls_side_by_side_are_answered_each_by_its_own() {
    let far = far();
    let mut near = begun(&far.address);
    let mut sent = String::new();
    for id in 1..=40 {
        sent.push_str(&call(
            id,
            "echo",
            &format!(r#""text":"{}""#, id.to_string().repeat(1000)),
        ));
        sent.push('\n');
    }
    near.write(sent.as_bytes());
    let mut seen: Vec<u64> = (0..40)
        .map(|_| {
            let answer = read(&mut near);
            let id = answer["id"].as_u64().unwrap();
            assert_eq!(text(&answer), id.to_string().repeat(1000));
            id
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=40).collect::<Vec<_>>());
}

// MCPH-8
#[test]
fn a_tunnel_between_two_http_ends_carries_both_eras() {
    let server = far();
    let tunnel = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        &server.address,
        "--max-frame",
        "64KB",
    ]);
    let door = Listening::new(&[
        "--listen",
        "http://127.0.0.1:0/mcp",
        "--to",
        &tunnel.address,
        "--max-frame",
        "64KB",
    ]);
    let url = &door.address;
    let session = begin(url);
    let large = "y".repeat(2 << 20);
    let arguments = format!(r#""text":"{large}""#);
    let answer = post(url, Some(&session), &call(1, "echo", &arguments)).json();
    assert!(text(&answer) == large);
    let mut stream = post(url, Some(&session), &call(2, "ask", ""));
    assert_eq!(
        stream.events(|data| data["id"] == "s1").last().unwrap().1["id"],
        "s1"
    );
    let answer = r#"{"jsonrpc":"2.0","id":"s1","result":{}}"#;
    assert_eq!(post(url, Some(&session), answer).status, 202);
    assert_eq!(
        text(&stream.events(|data| data["id"] == 2).last().unwrap().1),
        "{}"
    );
    let discovered = modern(url, 1, "server/discover", "").json();
    assert_eq!(
        discovered["result"]["supportedVersions"],
        json!(["2026-07-28"])
    );
    let params = format!(r#""name":"echo","arguments":{{"text":"{large}"}}"#);
    assert!(text(&modern(url, 1, "tools/call", &params).json()) == large);
    assert_eq!(modern(url, 1, "no/such", "").status, 404);
}

#[test]
fn https_is_trusted_by_its_authority_and_needs_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(file("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(file("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let listen = format!(
        "https://127.0.0.1:0/mcp?cert={}&key={}",
        file("cert.pem"),
        file("key.pem")
    );
    let far = Listening::new(&["--listen", &listen, "--to", &server()]);
    let mut near = begun(&format!("{}?ca={}", far.address, file("cert.pem")));
    near.write(format!("{}\n", call(1, "echo", r#""text":"a""#)).as_bytes());
    assert_eq!(text(&read(&mut near)), "a");
    // A client that trusts only another authority refuses the server's certificate.
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(file("other.pem"), other.cert.pem()).unwrap();
    let untrusted = format!("{}?ca={}", far.address, file("other.pem"));
    let mut stranger = Near::new(&["--listen", "stdio:", "--to", &untrusted, "--quiet"]);
    stranger.write(format!("{INITIALIZE}\n").as_bytes());
    let error = read(&mut stranger);
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("cannot be reached"),
        "{error}"
    );
}
