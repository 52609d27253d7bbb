//! A program at the standard streams, and an MCP server over HTTP as the target.

use std::net::TcpStream;

use serde_json::{Value, json};

use super::scripted::{Asked, Scripted, events, json, write};
use super::wire::{INITIALIZE, INITIALIZED, META};
use crate::common::{Near, gateway, run, said};

fn near(url: &str) -> Near {
    Near::new(&["--listen", "stdio:", "--to", url, "--quiet"])
}

/// A gateway before this target with these options, whose log can be read.
fn told(url: &str, options: &[&str]) -> Near {
    Near::new(&[&["--listen", "stdio:", "--to", url], options].concat())
}

/// What a program says, and the answer that it gets.
fn answered(near: &mut Near, message: &str) -> Value {
    near.write(format!("{message}\n").as_bytes());
    let line = near.read_line();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn method(asked: &Asked) -> String {
    let body: Value = serde_json::from_str(&asked.body).unwrap_or_default();
    body["method"].as_str().unwrap_or_default().to_owned()
}

/// A server of the session era that answers `initialize`, and everything else by a function.
fn in_session(
    answer: impl Fn(&Asked, &mut TcpStream) + Clone + Send + 'static,
) -> impl Fn(&Asked, &mut TcpStream) + Clone + Send + 'static {
    move |asked, stream| match (&*asked.method, &*method(asked)) {
        ("POST", "initialize") => write(
            stream,
            "200 OK",
            "Content-Type: application/json\r\nMcp-Session-Id: one\r\n",
            r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18"}}"#,
        ),
        ("POST", "notifications/initialized") => write(stream, "202 Accepted", "", ""),
        ("DELETE", _) => write(stream, "200 OK", "", ""),
        _ => answer(asked, stream),
    }
}

const LIST: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;

// MCPH-8
#[test]
fn a_session_is_named_listened_to_and_ended() {
    let server = Scripted::new(in_session(|asked, stream| match &*asked.method {
        "GET" => events(
            stream,
            "id: 5\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n",
        ),
        _ => json(
            stream,
            "200 OK",
            r#"{ "jsonrpc":"2.0" ,"id":7,"result":{}}"#,
        ),
    }));
    let mut near = near(&server.url);
    assert_eq!(answered(&mut near, INITIALIZE)["id"], 0);
    let first = server.next("POST");
    assert_eq!(first.header("mcp-session-id"), None);
    assert_eq!(
        first.header("accept"),
        Some("application/json, text/event-stream")
    );
    assert_eq!(first.body, INITIALIZE);
    // The stream for the server's own messages is opened after the session has begun.
    assert_eq!(
        answered(&mut near, INITIALIZED)["method"],
        "notifications/x"
    );
    let initialized = server.next("POST");
    assert_eq!(initialized.header("mcp-session-id"), Some("one"));
    assert_eq!(
        initialized.header("mcp-protocol-version"),
        Some("2025-06-18")
    );
    let listening = server.next("GET");
    assert_eq!(listening.header("mcp-session-id"), Some("one"));
    assert_eq!(listening.header("last-event-id"), None);
    // The stream ended, and is opened again after the last event that was seen.
    assert_eq!(server.next("GET").header("last-event-id"), Some("5"));
    near.write(format!("{LIST}\n").as_bytes());
    // Nothing of an answer is rewritten; the stream's notification may come once more before it.
    let answer = loop {
        let line = near.read_line();
        if !line.contains("notifications/x") {
            break line;
        }
    };
    assert_eq!(answer, "{ \"jsonrpc\":\"2.0\" ,\"id\":7,\"result\":{}}\n");
    drop(near.stdin.take());
    assert_eq!(server.next("DELETE").header("mcp-session-id"), Some("one"));
}

// MCPH-9
#[test]
fn what_a_server_refuses_is_told_with_its_status_and_the_remedy() {
    for (status, headers, body, code, words) in [
        (
            "401 Unauthorized",
            "WWW-Authenticate: Bearer\r\n",
            "",
            -32000,
            "HTTP 401; the gateway needs another token",
        ),
        (
            "413 Payload Too Large",
            "",
            "",
            -32011,
            "HTTP 413; send less",
        ),
        (
            "500 Internal Server Error",
            "",
            "secret stack trace",
            -32000,
            "HTTP 500; see the server's log",
        ),
        (
            "301 Moved",
            "Location: http://127.0.0.1:1/\r\n",
            "",
            -32000,
            "HTTP 301; the target has moved",
        ),
        ("404 Not Found", "", "", -32000, "HTTP 404; check the path"),
        ("202 Accepted", "", "", -32000, "it only accepted it"),
        (
            "200 OK",
            "Content-Type: text/html\r\n",
            "<p>",
            -32000,
            "neither JSON nor an event stream",
        ),
        (
            "400 Bad Request",
            "Content-Type: application/json\r\n",
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32022,"message":"its own"}}"#,
            -32022,
            "its own",
        ),
        (
            "400 Bad Request",
            "Content-Type: application/json\r\n",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"not so"}}"#,
            -32000,
            "HTTP 400 (not so)",
        ),
    ] {
        let server = Scripted::new(move |_, stream| write(stream, status, headers, body));
        let mut near = told(&server.url, &[]);
        let error = answered(&mut near, LIST);
        // An error of the server's own is passed on, and not logged for the operator.
        if code != -32022 {
            near.log.line(words);
        }
        assert_eq!(error["id"], 7, "{status}");
        assert_eq!(error["error"]["code"], code, "{status}: {error}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{status}: {message}");
        assert!(
            !message.contains("secret") && !message.contains("127.0.0.1"),
            "{message}"
        );
    }
    // A server that is not there any more.
    let server = Scripted::new(|_, _| {});
    let mut near = told(&server.url, &[]);
    let error = answered(&mut near, LIST);
    near.log.line("the target could not be asked");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("the target cannot be reached"),
        "{message}"
    );
}

// MCPH-9
#[test]
fn a_session_that_is_gone_is_told_and_ends_the_gateway() {
    let server = Scripted::new(in_session(|_, stream| {
        write(stream, "404 Not Found", "", "")
    }));
    let mut near = near(&server.url);
    answered(&mut near, INITIALIZE);
    let error = answered(&mut near, LIST);
    assert_eq!(error["error"]["code"], -32001, "{error}");
    assert_eq!(crate::common::wait(&mut near.child), Some(1));
}

// MCPH-9
#[test]
fn a_notification_that_is_refused_counts_as_lost() {
    let server = Scripted::new(|_, stream| write(stream, "400 Bad Request", "", ""));
    let arguments = ["--listen", "stdio:", "--to", &server.url];
    let input = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
    let output = run(gateway(&arguments), format!("{input}\n").into_bytes());
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("HTTP 400"), "{}", said(&output));
    assert!(
        said(&output).contains("1 message was not sent"),
        "{}",
        said(&output)
    );
}

// MCPH-6
#[test]
fn a_broken_stream_is_resumed_in_the_session_era_alone() {
    let server = Scripted::new(in_session(|asked, stream| {
        match (&*asked.method, asked.header("last-event-id")) {
            ("GET", Some("a")) => events(
                stream,
                "id: b\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"text\":\"whole\"}}\n\n",
            ),
            ("GET", _) => write(stream, "405 Method Not Allowed", "", ""),
            _ => events(stream, "id: a\nretry: 10\ndata: \n\ndata: {\"cut"),
        }
    }));
    let mut near = told(&server.url, &[]);
    answered(&mut near, INITIALIZE);
    assert_eq!(answered(&mut near, LIST)["result"]["text"], "whole");
    // In the stateless era the request is not sent again, since the server may have carried it out.
    let request = format!(r#"{{"jsonrpc":"2.0","id":8,"method":"m","params":{{{META}}}}}"#);
    let error = answered(&mut near, &request);
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("broke before it answered"), "{message}");
    near.log.line("broke before it answered");
}

// MCPH-3
#[test]
fn requests_of_the_stateless_era_repeat_themselves_in_headers() {
    let server = Scripted::new(|asked, stream| {
        let listed = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"grün","inputSchema":{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]}}"#;
        match &*method(asked) {
            "tools/list" => json(stream, "200 OK", listed),
            _ => json(stream, "200 OK", r#"{"jsonrpc":"2.0","id":2,"result":{}}"#),
        }
    });
    let mut near = near(&server.url);
    let list = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META}}}}}"#);
    answered(&mut near, &list);
    let asked = server.next("POST");
    assert_eq!(asked.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(asked.header("mcp-method"), Some("tools/list"));
    assert_eq!(
        (asked.header("mcp-name"), asked.header("mcp-session-id")),
        (None, None)
    );
    assert_eq!(asked.body, list);
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"grün","arguments":{{"region":"us"}},{META}}}}}"#
    );
    answered(&mut near, &call);
    let asked = server.next("POST");
    assert_eq!(asked.header("mcp-name"), Some("=?base64?Z3LDvG4=?="));
    assert_eq!(asked.header("mcp-param-region"), Some("us"));
}

// MCPH-11
#[test]
fn a_cancelled_request_of_the_stateless_era_is_cut_off_and_a_later_answer_is_none() {
    let (gone, cut) = std::sync::mpsc::channel();
    let server = Scripted::new(move |asked, stream| {
        match &*method(asked) {
            "slow" => {
                events(stream, ": wait\n\n");
                let mut rest = [0];
                // Returns when the gateway ends the connection.
                let _ = std::io::Read::read(stream, &mut rest);
                let _ = gone.send(());
            }
            _ => json(stream, "200 OK", r#"{"jsonrpc":"2.0","id":9,"result":{}}"#),
        }
    });
    let mut near = near(&server.url);
    let request = |id: u32, method: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{META}}}}}"#)
    };
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}"#;
    near.write(format!("{}\n", request(8, "slow")).as_bytes());
    assert_eq!(method(&server.next("POST")), "slow");
    near.write(format!("{cancel}\n").as_bytes());
    cut.recv_timeout(crate::common::PATIENCE).unwrap();
    assert_eq!(answered(&mut near, &request(9, "quick"))["id"], 9);
    assert_eq!(
        method(&server.next("POST")),
        "quick",
        "no cancellation is posted"
    );
}

// MCPH-11
#[test]
fn a_late_cancellation_harms_no_later_request_with_its_id() {
    let server = Scripted::new(|asked, stream| match &*method(asked) {
        "slow" => {
            // Longer than a cancelled request is waited for.
            std::thread::sleep(std::time::Duration::from_secs(12));
            json(stream, "200 OK", r#"{"jsonrpc":"2.0","id":8,"result":{}}"#);
        }
        _ => json(stream, "202 Accepted", ""),
    });
    let mut near = near(&server.url);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}"#;
    near.write(format!("{cancel}\n").as_bytes());
    assert_eq!(method(&server.next("POST")), "notifications/cancelled");
    let request = format!(r#"{{"jsonrpc":"2.0","id":8,"method":"slow","params":{{{META}}}}}"#);
    assert_eq!(answered(&mut near, &request)["result"], json!({}));
}

// MCPH-10
#[test]
fn a_target_gets_the_token_and_the_headers_of_their_files() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let (token, headers) = (file("token", "t0ken"), file("headers", "X-Tenant: a\n"));
    let server = Scripted::new(|_, stream| {
        json(stream, "200 OK", r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    });
    let url = format!(
        "{}?tenant=b&token-file={token}&headers-file={headers}",
        server.url
    );
    assert_eq!(answered(&mut near(&url), LIST)["result"], json!({}));
    let asked = server.next("POST");
    assert_eq!(asked.header("authorization"), Some("Bearer t0ken"));
    assert_eq!(asked.header("x-tenant"), Some("a"));
}

// MCPH-8
#[test]
fn no_message_is_posted_before_the_servers_own_stream_is_asked_for() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let seen = Arc::new(AtomicBool::new(false));
    let (answered_list, list_answered) = std::sync::mpsc::channel();
    let listed = Arc::new(std::sync::Mutex::new(list_answered));
    let server = Scripted::new(in_session(move |asked, stream| match &*asked.method {
        "GET" => {
            seen.store(true, Ordering::SeqCst);
            // As some servers do, it sends the head only with the first event.
            let _ = listed.lock().unwrap().recv_timeout(crate::common::PATIENCE);
            events(stream, ": open\n\n");
        }
        _ => {
            let seen = seen.load(Ordering::SeqCst);
            let answer = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"seen":{seen}}}}}"#);
            json(stream, "200 OK", &answer);
            let _ = answered_list.send(());
        }
    }));
    let mut near = near(&server.url);
    answered(&mut near, INITIALIZE);
    let answer = answered(&mut near, &format!("{INITIALIZED}\n{LIST}"));
    assert_eq!(answer["result"]["seen"], true);
    let listening = server.next("GET");
    assert_eq!(listening.header("transfer-encoding"), None);
    assert_eq!(listening.header("content-length"), None);
}
