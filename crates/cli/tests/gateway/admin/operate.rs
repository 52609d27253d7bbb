//! What an operator sees and does.

use serde_json::json;

use super::{Admin, listening, pause, with_admin};
use crate::common::{Listening, Near, gateway, run, said};

// ADMIN-5
#[test]
fn a_session_is_found_by_its_name_in_the_log_looked_at_and_ended() {
    let (mut far, admin) = listening(&["--listen", "whole+ws://0", "--to", "exec:cat"]);
    let mut near = Near::new(&[
        "--listen",
        "stdio:",
        "--to",
        &format!("whole+{}", far.address),
    ]);
    let note = "{\"jsonrpc\":\"2.0\",\"method\":\"tools/changed\"}\n";
    let answer = "{\"jsonrpc\":\"2.0\",\"id\":\"a\\u0001\",\"result\":1}\n";
    for line in [note, answer] {
        near.write(line.as_bytes());
        assert_eq!(near.read_line(), line);
    }
    let state = admin.json("/api/state");
    assert_eq!(state["routes"][0]["name"], "gateway");
    assert_eq!(state["routes"][0]["state"], "listening");
    assert_eq!(state["routes"][0]["to"], "exec:cat");
    let session = &state["sessions"][0];
    let id = session["id"].as_str().unwrap();
    let path = format!("/api/sessions/{id}");
    let detail = loop {
        // What came back is counted as sent a moment after it was read.
        let detail = admin.json(&path);
        if detail["messages"][3]["ms"].is_number() {
            break detail;
        }
        pause();
    };
    let messages = detail["messages"].as_array().unwrap();
    let shown: Vec<_> = messages
        .iter()
        .map(|it| {
            let head = [&it["direction"], &it["method"], &it["id"]];
            json!([head, it["bytes"], it["frames"], it.get("body")])
        })
        .collect();
    let (noted, answered) = (note.len() - 1, answer.len() - 1);
    assert_eq!(
        json!(shown),
        json!([
            [["in", "tools/changed", null], noted, 1, null],
            [["out", "tools/changed", null], noted, 1, null],
            [["in", null, "\"a\\u0001\""], answered, 1, null],
            [["out", null, "\"a\\u0001\""], answered, 1, null]
        ])
    );
    assert_eq!(detail["open_requests"], 0);
    let (status, _) = admin.ask(&format!("GET {path}/close"));
    assert_eq!(status, 405);
    let (status, _) = admin.ask(&format!("POST {path}/close"));
    assert_eq!(status, 202);
    let line = far.line("the operator of the gateway ended the session");
    for word in [
        &format!("session={id}"),
        "messages_in=2",
        "messages_out=2",
        &format!("bytes_in={}", noted + answered),
        "frames_in=2",
        &format!("longest={}", noted.max(answered)),
    ] {
        assert!(line.contains(word), "{word}: {line}");
    }
    let (status, body) = admin.ask(&format!("POST {path}/close"));
    assert_eq!(status, 404, "{body}");
    // The gateway goes on.
    assert_eq!(admin.get("/readyz"), "ready\n");
    far.signal("-TERM");
    assert_eq!(far.exit_code(), Some(0));
}

// ADMIN-6
#[test]
fn bodies_are_shown_only_if_asked_for() {
    for (more, expected) in [
        (&[][..], json!(null)),
        (&["--show-bodies"], json!("{\"a\":1}")),
    ] {
        let mut command = with_admin(&["--listen", "whole+ws://0", "--to", "exec:cat"]);
        command.args(more);
        let far = Listening::start(command);
        let admin = Admin::of(&far.before);
        let mut near = Near::new(&[
            "--listen",
            "stdio:",
            "--to",
            &format!("whole+{}", far.address),
        ]);
        near.write(b"{\"a\":1}\n");
        assert_eq!(near.read_line(), "{\"a\":1}\n");
        let state = admin.json("/api/state");
        let id = state["sessions"][0]["id"].as_str().unwrap();
        let detail = admin.json(&format!("/api/sessions/{id}"));
        assert_eq!(detail["messages"][0]["body"], expected);
    }
}

// ADMIN-2, ADMIN-3
#[test]
fn it_is_ready_until_it_drains_and_its_token_is_its_own() {
    let mut command = with_admin(&[
        "--listen",
        "whole+ws://0",
        "--to",
        "exec:sh -c 'read line; sleep 600'",
        "--grace",
        "60",
    ]);
    command.env("BREAKBULK_ADMIN_TOKEN", "admin");
    let far = Listening::start(command);
    let mut admin = Admin::of(&far.before);
    for (token, status) in [(None, 401), (Some("other"), 401), (Some("admin"), 200)] {
        admin.token = token;
        assert_eq!(admin.ask("GET /metrics").0, status, "{token:?}");
    }
    assert_eq!(admin.ask("GET /readyz"), (200, "ready\n".to_owned()));
    let mut near = Near::new(&[
        "--listen",
        "stdio:",
        "--to",
        &format!("whole+{}", far.address),
    ]);
    near.write(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\n");
    far.line("session started");
    let open = "breakbulk_open_requests";
    admin.until("asked", |metrics| {
        metrics.of(open, &["side=\"listen\""]) == 1.0
    });
    far.signal("-TERM");
    far.line("stopping");
    let (status, why) = admin.ask("GET /readyz");
    assert_eq!((status, &*why), (503, "the route gateway is draining\n"));
    assert_eq!(admin.ask("GET /healthz").0, 200);
}

// ADMIN-2
#[test]
fn an_admin_port_that_cannot_be_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (arguments, words) in [
        (&["--admin", "nowhere"][..], "write PORT for 127.0.0.1:PORT"),
        (
            &["--admin", "0.0.0.0:0"],
            "--admin-token-file or BREAKBULK_ADMIN_TOKEN",
        ),
        (&["--admin", &port], "--admin: "),
        (&["--admin-token-file", "x"], "--admin"),
        (
            &["--admin", "0", "--admin-token-file", "missing"],
            "--admin-token-file: ",
        ),
    ] {
        let mut command = gateway(&["--listen", "whole+ws://0", "--to", "exec:cat"]);
        command.args(arguments).env_remove("BREAKBULK_ADMIN_TOKEN");
        let output = run(command, Vec::new());
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            said(&output)
        );
        assert!(
            said(&output).contains(words),
            "{arguments:?}: {}",
            said(&output)
        );
    }
}
