//! What the operator and the other side see of messages that fail: `docs/FAILURES.md`.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Instant;

use serde_json::{Value, json};

use super::door::server;
use super::scripted::Scripted;
use super::wire::{BOTH, INITIALIZE, ask, begin, call, in_session, parts, post};
use crate::common::{Listening, Near, PATIENCE};

fn door(listen: &str, more: &[&str]) -> Listening {
    let to = server();
    let mut arguments = vec!["--listen", listen, "--to", &to];
    arguments.extend(more);
    Listening::new(&arguments)
}

const LISTEN: &str = "http://127.0.0.1:0/mcp";

// MCPH-2
#[test]
fn a_refused_request_is_in_the_log_with_its_status_and_the_reason() {
    let door = door(LISTEN, &["--max-message", "10KB", "--verbose"]);
    let url = &door.address;
    let session = in_session(Some(&begin(url)));
    let large = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":"{}"}}"#,
        "y".repeat(20_000)
    );
    let wait = call(1, "wait", "");
    let waiting = ask(url, "POST", &format!("{BOTH}{session}"), &wait);
    assert_eq!(waiting.status, 200);
    let json_alone = "Content-Type: application/json\r\n";
    for (headers, body, words) in [
        (
            BOTH.to_owned(),
            &*large,
            "413 Payload Too Large: message too large: 20049 bytes, and the gateway takes 10000; send less, or start the gateway with a larger --max-message",
        ),
        (BOTH.to_owned(), "{", "400 Bad Request: the body is no JSON"),
        (
            BOTH.to_owned(),
            "{}",
            "400 Bad Request: the body is no JSON-RPC 2.0 message",
        ),
        (
            format!("{BOTH}{session}"),
            &*wait,
            "400 Bad Request: a request with this id is open in this session; use another id",
        ),
        (json_alone.to_owned(), INITIALIZE, "406 Not Acceptable: "),
        (
            format!("{BOTH}Mcp-Session-Id: x\r\n"),
            &*wait,
            "404 Not Found: there is no such session",
        ),
        (
            format!("{BOTH}Origin: http://evil.example\r\n"),
            INITIALIZE,
            "403 Forbidden: ",
        ),
    ] {
        let status: u16 = words[..3].parse().unwrap();
        assert_eq!(ask(url, "POST", &headers, body).status, status, "{words}");
        let told = door.line(words);
        assert!(told.contains("127.0.0.1"), "{told}");
    }
}

// MCPH-7
#[test]
fn a_limit_that_clients_reach_is_a_warning() {
    let door = door(LISTEN, &["--max-message", "10KB"]);
    let large = format!(
        r#"{{"jsonrpc":"2.0","method":"m","params":"{}"}}"#,
        "y".repeat(20_000)
    );
    assert_eq!(post(&door.address, None, &large).status, 413);
    door.line("a client is refused: 413 Payload Too Large: message too large");
}

// MCPH-7
#[test]
fn a_body_without_memory_is_refused_with_503_and_a_warning() {
    let door = door(LISTEN, &["--max-message", "400KB", "--memory", "4MB"]);
    let url = &door.address;
    let (address, path) = parts(url);
    // Bodies that never end take all that is there for bodies.
    let held: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: {address}\r\n{BOTH}Content-Length: 400000\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&vec![b' '; 390_000]).unwrap();
            stream
        })
        .collect();
    let body = format!(
        r#"{{"jsonrpc":"2.0","method":"m","params":"{}"}}"#,
        "y".repeat(390_000)
    );
    let since = Instant::now();
    let refused = loop {
        let answer = post(url, None, &body);
        if answer.status == 503 {
            break answer;
        }
        assert!(since.elapsed() < PATIENCE, "{}", answer.status);
    };
    assert_eq!(refused.header("retry-after"), Some("5"));
    let told = refused.json();
    let message = told["error"]["message"].as_str().unwrap();
    let words = "the gateway has no memory left for this body of 39";
    let remedy = " bytes: try again later, or start it with a larger --memory";
    assert!(
        message.starts_with(words) && message.ends_with(remedy),
        "{told}"
    );
    door.line("a client is refused: 503 Service Unavailable: ");
    drop(held);
}

/// The client of `mcp` 2.x takes events of 1 MiB, and gives up the whole stream for a larger one.
#[test]
fn what_a_client_over_http_does_not_take_becomes_an_error_for_that_call() {
    let door = door(&format!("{LISTEN}?client=mcp-python-sse"), &[]);
    let url = &door.address;
    let session = begin(url);
    let large = |id, size| call(id, "large", &format!(r#""size":{size}"#));
    let told = post(url, Some(&session), &large(1, 1_100_000)).json();
    assert_eq!(told["error"]["code"], -32011, "{told:.300}");
    let message = told["error"]["message"].as_str().unwrap();
    assert!(message.contains("client=mcp-python-sse"), "{message}");
    let fits = post(url, Some(&session), &large(2, 1_000_000)).json();
    let text = fits["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(text.len(), 1_000_000);
}

// MCPH-9
#[test]
fn an_answer_over_the_limit_is_an_error_a_warning_and_the_end_of_its_connection() {
    // Each answer goes on until nobody reads it any more.
    let declared = "Content-Type: application/json\r\nContent-Length: 100000000\r\n";
    let undeclared = "Content-Type: application/json\r\nConnection: close\r\n";
    for headers in [declared, undeclared] {
        let (gone, cut) = mpsc::channel();
        let server = Scripted::new(move |_, stream| {
            let head = format!("HTTP/1.1 200 OK\r\n{headers}\r\n{{");
            let mut outcome = stream.write_all(head.as_bytes());
            let part = [b' '; 10_000];
            for _ in 0..10_000 {
                outcome = outcome.and_then(|()| stream.write_all(&part));
            }
            let _ = gone.send(outcome.is_err());
        });
        let mut near = Near::new(&[
            "--listen",
            "stdio:",
            "--to",
            &server.url,
            "--max-message",
            "100KB",
        ]);
        near.write(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/list\"}\n");
        let answer: Value = serde_json::from_str(&near.read_line()).unwrap();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(7), &json!(-32011))
        );
        assert_eq!(
            answer["error"]["data"]["maxMessageBytes"], 100_000,
            "{answer}"
        );
        let told = near.log.line("message too large");
        assert!(told.contains("the gateway takes 100000"), "{told}");
        assert!(
            cut.recv_timeout(PATIENCE).unwrap(),
            "{headers}: the server sent all"
        );
    }
}

// MCPH-5
#[test]
fn a_cancelled_request_ends_its_stream_and_is_not_waited_for() {
    let mut door = door(LISTEN, &["--grace", "50"]);
    let url = door.address.clone();
    let session = begin(&url);
    let mut stream = post(&url, Some(&session), &call(1, "wait", ""));
    stream.events(|data| data["method"] == "notifications/message");
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(post(&url, Some(&session), cancel).status, 202);
    assert!(stream.events(|_| false).is_empty(), "nothing answers it");
    door.line("cancelled 1");
    // When the gateway stops, it does not wait for the cancelled request.
    let since = Instant::now();
    door.signal("-TERM");
    assert_eq!(door.exit_code(), Some(0));
    assert!(since.elapsed().as_secs() < 40, "it was waited for");
}
