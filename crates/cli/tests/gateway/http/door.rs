//! The listener, with raw requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::wire::{
    BOTH, INITIALIZE, INITIALIZED, ask, begin, begin_resumable, call, in_session, modern,
    modern_body, modern_head, parts, post,
};
use crate::common::{Listening, PATIENCE};

/// The server in Python behind the gateway.
pub(crate) fn server() -> String {
    format!(
        "exec:python3 {}/tests/gateway/http/server.py",
        env!("CARGO_MANIFEST_DIR")
    )
}

fn door(more: &[&str]) -> Listening {
    let to = server();
    let mut arguments = vec!["--listen", "http://127.0.0.1:0/mcp", "--to", &to];
    arguments.extend(more);
    Listening::new(&arguments)
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

// MCPH-2
#[test]
fn what_is_wrong_is_refused_with_the_status_of_the_specification() {
    let door = door(&["--max-message", "10KB"]);
    let url = &door.address;
    let session = begin(url);
    let id = in_session(Some(&session));
    let large = format!(
        r#"{{"method":"m","params":{{"t":"{}"}},"jsonrpc":"2.0","id":"x"}}"#,
        "y".repeat(20_000)
    );
    let modern_list = modern_body(3, "tools/list", "");
    let head = modern_head("tools/list", "");
    for (method, headers, body, status, code, id) in [
        ("POST", String::new(), INITIALIZE, 415, -32000, Value::Null),
        (
            "POST",
            "Content-Type: application/json\r\n".to_owned(),
            INITIALIZE,
            406,
            -32000,
            Value::Null,
        ),
        ("POST", BOTH.to_owned(), "{", 400, -32700, Value::Null),
        ("POST", BOTH.to_owned(), "{}", 400, -32600, Value::Null),
        (
            "POST",
            BOTH.to_owned(),
            &call(5, "who", ""),
            400,
            -32000,
            json!(5),
        ),
        (
            "POST",
            format!("{BOTH}Mcp-Session-Id: x\r\n"),
            &call(5, "who", ""),
            404,
            -32001,
            json!(5),
        ),
        (
            "POST",
            format!("{BOTH}{id}MCP-Protocol-Version: 1\r\n"),
            &call(5, "who", ""),
            400,
            -32000,
            json!(5),
        ),
        ("POST", BOTH.to_owned(), &large, 413, -32011, json!("x")),
        ("POST", BOTH.to_owned(), &modern_list, 400, -32020, json!(3)),
        (
            "POST",
            head.replace("tools/list", "x"),
            &modern_list,
            400,
            -32020,
            json!(3),
        ),
        (
            "POST",
            head.clone(),
            &modern_list.replace("clientCapabilities", "x"),
            400,
            -32602,
            json!(3),
        ),
        (
            "POST",
            modern_head("no/such", ""),
            &modern_body(4, "no/such", ""),
            404,
            -32601,
            json!(4),
        ),
        (
            "GET",
            "Accept: text/event-stream\r\n".to_owned(),
            "",
            400,
            -32000,
            Value::Null,
        ),
        (
            "GET",
            "Accept: application/json\r\n".to_owned(),
            "",
            406,
            -32000,
            Value::Null,
        ),
        (
            "GET",
            "Accept: text/event-stream\r\nMcp-Session-Id: x\r\n".to_owned(),
            "",
            404,
            -32001,
            Value::Null,
        ),
        (
            "GET",
            format!("Accept: text/event-stream\r\n{id}Last-Event-ID: 99-1\r\n"),
            "",
            400,
            -32000,
            Value::Null,
        ),
        (
            "DELETE",
            "Mcp-Session-Id: x\r\n".to_owned(),
            "",
            404,
            -32001,
            Value::Null,
        ),
    ] {
        let answer = ask(url, method, &headers, body);
        assert_eq!(answer.status, status, "{method} {headers} {body:.100}");
        let error = answer.json();
        assert_eq!(
            (&error["error"]["code"], &error["id"]),
            (&json!(code), &id),
            "{error}"
        );
    }
    let (address, _) = parts(url);
    let elsewhere = format!("http://{address}/else");
    for (url, method, headers, status) in [
        (url, "PUT", "", 405),
        (&elsewhere, "POST", BOTH, 404),
        (url, "POST", "Origin: http://evil.example\r\n", 403),
        (url, "POST", "Host: evil.example\r\n", 403),
        (url, "GET", "Sec-Fetch-Site: cross-site\r\n", 403),
        (
            url,
            "OPTIONS",
            "Origin: http://localhost\r\nAccess-Control-Request-Method: POST\r\n",
            204,
        ),
    ] {
        assert_eq!(
            ask(url, method, headers, "").status,
            status,
            "{method} {headers}"
        );
    }
}

// MCPH-5
#[test]
fn a_session_has_a_server_of_its_own_and_ends_by_delete() {
    let door = door(&[]);
    let url = &door.address;
    let (one, other) = (begin(url), begin(url));
    assert_ne!(one, other);
    let pid =
        |session: &str| text(&post(url, Some(session), &call(1, "who", "")).json()).to_owned();
    assert_eq!(pid(&one), pid(&one));
    assert_ne!(pid(&one), pid(&other));
    // Nothing of an answer is rewritten.
    let answer = post(url, Some(&one), &call(2, "echo", r#""text":"ü""#));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(
        answer.body(),
        r#"{"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": "ü"}]}}"#
    );
    // Progress belongs to the stream of its request.
    let progress = call(3, "steps", "").replace(
        "\"arguments\"",
        r#""_meta":{"progressToken":"t"},"arguments""#,
    );
    let mut stream = post(url, Some(&one), &progress);
    let events = stream.events(|data| data["id"] == 3);
    let steps: Vec<_> = events
        .iter()
        .filter_map(|(_, data)| data["params"]["progress"].as_u64())
        .collect();
    assert_eq!(steps, [1, 2, 3]);
    assert_eq!(ask(url, "DELETE", &in_session(Some(&one)), "").status, 200);
    assert_eq!(post(url, Some(&one), &call(4, "who", "")).status, 404);
    assert_eq!(post(url, Some(&other), &call(4, "who", "")).status, 200);
}

// MCPH-5
#[test]
fn what_a_server_asks_reaches_its_client_and_the_answer_comes_back() {
    let door = door(&[]);
    let url = &door.address;
    let session = begin(url);
    // The server's request comes on the stream of the only open request.
    let mut stream = post(url, Some(&session), &call(1, "ask", ""));
    let asked = stream.events(|data| data["method"] == "sampling/createMessage");
    assert_eq!(asked.last().unwrap().1["id"], "s1");
    let answer = r#"{"jsonrpc":"2.0","id":"s1","result":{"model":"m"}}"#;
    assert_eq!(post(url, Some(&session), answer).status, 202);
    let answered = stream.events(|data| data["id"] == 1);
    assert_eq!(text(&answered.last().unwrap().1), r#"{"model": "m"}"#);
    // Without an open request a message waits for a stream of the client's own.
    assert_eq!(
        text(&post(url, Some(&session), &call(2, "news", "")).json()),
        "soon"
    );
    let get = format!(
        "{}Accept: text/event-stream\r\n",
        in_session(Some(&session))
    );
    let mut own = ask(url, "GET", &get, "");
    let news = own.events(|data| data["method"] == "notifications/tools/list_changed");
    assert_eq!(news.len(), 1);
}

// MCPH-6
#[test]
fn a_stream_that_broke_goes_on_after_the_last_event() {
    let door = door(&[]);
    let url = &door.address;
    let session = begin_resumable(url);
    let mut stream = post(url, Some(&session), &call(1, "ask", ""));
    let asked = stream.events(|data| data["method"] == "sampling/createMessage");
    // The first event has no data: it makes the stream resumable before anything is said.
    assert_eq!(asked[0].1, Value::Null);
    let last = asked.last().unwrap().0.clone();
    drop(stream);
    // The end of the connection cancels nothing.
    let answer = r#"{"jsonrpc":"2.0","id":"s1","result":{}}"#;
    assert_eq!(post(url, Some(&session), answer).status, 202);
    let get = |last: &str| {
        let session = in_session(Some(&session));
        format!("{session}Accept: text/event-stream\r\nLast-Event-ID: {last}\r\n")
    };
    let events = ask(url, "GET", &get(&last), "").events(|_| false);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].1["id"], 1);
    // From the begin of the stream all of it comes again.
    let events = ask(url, "GET", &get(&asked[0].0), "").events(|_| false);
    assert_eq!(events.len(), 2);
}

// MCPH-11
#[test]
fn requests_that_stand_alone_share_servers_one_at_a_time() {
    let door = door(&[]);
    let url = &door.address;
    let who = || {
        let answer = modern(url, 1, "tools/call", r#""name":"who""#);
        assert_eq!(answer.header("mcp-session-id"), None);
        text(&answer.json()).to_owned()
    };
    // One after another they use one server.
    let first = who();
    let since = Instant::now();
    while who() != first {
        assert!(since.elapsed() < PATIENCE);
    }
    // Side by side each has its own, so that one id stands for many requests.
    let all: Vec<String> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..6)
            .map(|number| {
                scope.spawn(move || {
                    let params = format!(r#""name":"echo","arguments":{{"text":"{number}"}}"#);
                    text(&modern(url, 1, "tools/call", &params).json()).to_owned()
                })
            })
            .collect();
        asked.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert_eq!(all, ["0", "1", "2", "3", "4", "5"]);
    // A subscription stays open, and its end cancels it.
    let mut stream = modern(url, 1, "subscriptions/listen", "");
    let acknowledged = stream.events(|_| true);
    assert_eq!(
        acknowledged[0].1["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(acknowledged[0].0, "", "nothing of it can be resumed");
    drop(stream);
    door.line("cancelled 1");
}

// MCPH-4
#[test]
fn arguments_that_belong_into_headers_are_checked_once_the_tool_is_known() {
    let door = door(&[]);
    let url = &door.address;
    let params = r#""name":"echo","arguments":{"text":"a"}"#;
    let (head, body) = (
        modern_head("tools/call", params),
        modern_body(1, "tools/call", params),
    );
    assert_eq!(ask(url, "POST", &head, &body).status, 200);
    assert_eq!(modern(url, 1, "tools/list", "").status, 200);
    for (header, status) in [
        ("", 400),
        ("Mcp-Param-Region: b\r\n", 400),
        ("Mcp-Param-Region: a\r\n", 200),
    ] {
        let answer = ask(url, "POST", &format!("{head}{header}"), &body);
        assert_eq!(answer.status, status, "{header}");
    }
}

// MCPH-5
#[test]
fn a_session_belongs_to_the_holder_of_its_token() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    std::fs::write(&file, "anna a1\nbert b2\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (listen, to) = (
        format!("http://127.0.0.1:0/mcp?token-file={}", file.display()),
        server(),
    );
    let door = Listening::new(&["--listen", &listen, "--to", &to]);
    let url = &door.address;
    let ask = |token: &str, session: &str, body: &str| {
        let token = match token {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        ask(url, "POST", &format!("{BOTH}{token}{session}"), body)
    };
    assert_eq!(ask("", "", INITIALIZE).status, 401);
    assert_eq!(ask("x", "", INITIALIZE).status, 401);
    let begun = ask("a1", "", INITIALIZE);
    let session = in_session(begun.header("mcp-session-id"));
    assert_eq!(ask("a1", &session, INITIALIZED).status, 202);
    assert_eq!(ask("b2", &session, INITIALIZED).status, 404);
    assert_eq!(ask("", &session, INITIALIZED).status, 401);
}

// MCPH-7
#[test]
fn what_clients_take_is_bounded_and_silent_ones_make_room() {
    let door = door(&["--max-sessions", "2"]);
    let url = &door.address;
    let (one, two) = (begin(url), begin(url));
    let refused = post(url, None, INITIALIZE);
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("5"))
    );
    door.line("a client is refused: all 2 sessions are in use (max-sessions)");
    assert_eq!(ask(url, "DELETE", &in_session(Some(&one)), "").status, 200);
    let since = Instant::now();
    while post(url, None, INITIALIZE).status != 200 {
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    // 64 requests of a session may be open.
    let mut waiting = Vec::new();
    let statuses = (0..70).map(|id| {
        let answer = post(url, Some(&two), &call(id, "wait", ""));
        let status = answer.status;
        waiting.push(answer);
        status
    });
    let statuses: Vec<u16> = statuses.collect();
    let count = |status| statuses.iter().filter(|it| **it == status).count();
    assert_eq!((count(200), count(429)), (64, 6), "{statuses:?}");
    door.line("429 Too Many Requests: 64 requests of this session are open, which is the limit; wait for an answer");
}

// MCPH-7
#[test]
fn an_idle_session_ends_and_an_open_stream_keeps_one() {
    let to = server();
    let door = Listening::new(&["--listen", "http://127.0.0.1:0/mcp?idle=1", "--to", &to]);
    let url = &door.address;
    let (idle, used) = (begin(url), begin(url));
    let answer = post(url, Some(&idle), &call(1, "who", "")).json();
    let pid = text(&answer).to_owned();
    let get = format!("{}Accept: text/event-stream\r\n", in_session(Some(&used)));
    let stream = ask(url, "GET", &get, "");
    assert_eq!(stream.status, 200);
    let since = Instant::now();
    // A version that no session has is refused, and does not count as use of the session.
    let probe = |session: &str| {
        let headers = format!(
            "{BOTH}{}MCP-Protocol-Version: x\r\n",
            in_session(Some(session))
        );
        ask(url, "POST", &headers, INITIALIZED).status
    };
    while probe(&idle) != 404 {
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(probe(&used), 400);
    door.line("no message for 1 s");
    // Its server has ended with it.
    while std::path::Path::new(&format!("/proc/{pid}")).exists() {
        assert!(since.elapsed() < PATIENCE, "the server still runs");
        std::thread::sleep(Duration::from_millis(20));
    }
}

// MCPH-7
#[test]
fn a_body_that_never_ends_and_a_stream_that_is_never_read_hold_up_nobody() {
    let door = door(&[]);
    let url = &door.address;
    let (address, path) = parts(url);
    let session = begin(url);
    let mut drips: Vec<TcpStream> = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\n{BOTH}Content-Length: 1000000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).unwrap();
        drips.push(stream);
    }
    // A stream with 20 MB that is not read, in a session that goes on.
    let mut unread = TcpStream::connect(address).unwrap();
    let body = call(1, "large", r#""size":20000000"#);
    let (length, headers) = (body.len(), in_session(Some(&session)));
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\n{headers}{BOTH}Content-Length: {length}\r\n\r\n{body}"
    );
    unread.write_all(head.as_bytes()).unwrap();
    for id in 2..5 {
        let answer = post(url, Some(&session), &call(id, "echo", r#""text":"a""#));
        assert_eq!(text(&answer.json()), "a");
    }
    let mut first = [0; 12];
    unread.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
}

#[test]
fn a_target_that_cannot_be_reached_is_told() {
    let door = Listening::new(&[
        "--listen",
        "http://127.0.0.1:0/mcp",
        "--to",
        "whole+ws://127.0.0.1:1/",
        "--no-check",
    ]);
    for answer in [
        post(&door.address, None, INITIALIZE),
        modern(&door.address, 0, "server/discover", ""),
    ] {
        assert_eq!(answer.status, 502);
        let error = answer.json();
        assert_eq!(
            (&error["id"], &error["error"]["code"]),
            (&json!(0), &json!(-32000))
        );
        assert!(!error.to_string().contains("127.0.0.1"), "{error}");
        let told = door.line("closed a client: the gateway got no connection to its target (--to)");
        assert!(told.contains("127.0.0.1:1"), "{told}");
    }
}

#[test]
fn a_stop_waits_for_open_requests_and_tells_them() {
    let mut door = door(&["--grace", "1"]);
    let url = door.address.clone();
    let session = begin(&url);
    let mut stream = post(&url, Some(&session), &call(1, "wait", ""));
    assert!(
        !stream
            .events(|data| data["method"] == "notifications/message")
            .is_empty()
    );
    door.signal("-TERM");
    let error = stream.events(|data| data["id"] == 1);
    let error = &error.last().unwrap().1["error"];
    assert!(
        error["message"].as_str().unwrap().contains("stopping"),
        "{error}"
    );
    door.line("input ended");
    assert_eq!(door.exit_code(), Some(0));
}
