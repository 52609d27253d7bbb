//! Tests of mistakes that are found before anything starts, and of what clients are told.

use std::net::TcpListener;

use breakbulk_testkit::bad_path::{BadPath, Weather};
use breakbulk_testkit::http_path::HttpPath;

use crate::common::{Listening, gateway, run, said};

#[test]
fn what_must_be_mended_is_one_line_and_2() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let cannot_listen = format!("cannot listen at {}: ", taken.local_addr().unwrap());
    let taken_address = format!("ws://{}", taken.local_addr().unwrap());
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let nobody = format!("ws://{nobody}/");
    let far = Listening::new(&["--listen", "ws://0/here", "--to", "exec:cat"]);
    let elsewhere = far.address.replace("/here", "/elsewhere");
    let empty = std::env::temp_dir().join(format!("breakbulk-empty-{}", std::process::id()));
    std::fs::write(&empty, " \n").unwrap();
    let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&empty, owner_only).unwrap();
    let empty_token = format!("ws://0?token-file={}", empty.display());
    for (listen, to, more, words) in [
        (
            "nothing",
            "exec:cat",
            &[][..],
            "--listen: there is no colon",
        ),
        ("ws://0", "exec:", &[], "--to: there is no command"),
        (
            "ws://0",
            "exec:no-such-program",
            &[],
            "no program \"no-such-program\" in PATH",
        ),
        (
            "ws://0",
            "exec:/dev/null",
            &[],
            "/dev/null cannot be executed",
        ),
        (
            "exec:cat",
            "ws://x:1",
            &[],
            "clients cannot connect to a command",
        ),
        ("stdio:", "stdio:", &[], "a process has only one"),
        (
            "ws://0",
            "stdio:",
            &[],
            "--to: stdio: cannot be the target of a listener",
        ),
        (
            "stdio:",
            "loro+ws://x:1",
            &[],
            "loro+ws: carries loro's messages or bytes",
        ),
        (
            "ws://0?tunnel=never",
            "loro+ws://x:1",
            &[],
            "or loro+ws://HOST:PORT with loro+ws:",
        ),
        (&taken_address, "exec:cat", &[], &cannot_listen),
        (
            "stdio:",
            "ws://18099",
            &[],
            "--to: ws://18099 names no host; did you mean ws://127.0.0.1:18099?",
        ),
        (
            "ws://0",
            "exec:cat | tee",
            &[],
            "\"|\" means something to a shell, and exec: starts none; write exec:sh -c '…'",
        ),
        (
            "ws://0",
            "exec:cat",
            &["--max-sessions", "0"],
            "--max-sessions 0 accepts no client; give at least 1",
        ),
        ("ws://host", "exec:cat", &[], "write HOST:PORT"),
        (
            "ws://0?max-fram=1KB",
            "exec:cat",
            &[],
            "\"max-fram\" is no option",
        ),
        ("ws://0.0.0.0:0", "exec:cat", &[], "set BREAKBULK_TOKEN"),
        ("ws://[::]:0", "exec:cat", &[], "set BREAKBULK_TOKEN"),
        ("wss://0", "exec:cat", &[], "add ?cert=FILE&key=FILE"),
        ("wss://0?cert=/none", "exec:cat", &[], "give both"),
        (
            "wss://0?cert=/none&key=/none",
            "exec:cat",
            &[],
            "/none: no certificates in PEM",
        ),
        (
            "ws://0?token-file=/none",
            "exec:cat",
            &[],
            "token-file /none: No such file",
        ),
        (&empty_token, "exec:cat", &[], "is empty; put a token there"),
        ("ws://0", &nobody, &[], "cannot be reached"),
        (
            "stdio:",
            &nobody,
            &[],
            "refuses connections; is the server running",
        ),
        ("stdio:", &elsewhere, &[], "HTTP 404"),
        (
            "stdio:",
            "whole+ws://no-such-host.invalid:1",
            &[],
            "no-such-host.invalid has no address",
        ),
        (
            "ws://0",
            "exec:cat",
            &["--preset", "azure"],
            "nothing is known of \"azure\" (did you mean azure-web-pubsub?)",
        ),
        (
            "ws://0",
            "exec:cat",
            &["--max-frame", "100"],
            "must be at least 256",
        ),
        (
            "ws://0",
            "exec:cat",
            &["--memory", "1MB"],
            "raise --memory or lower --max-message",
        ),
        (
            "loro+ws://0",
            "whole+ws://x:1",
            &["--preset", "aws-api-gateway"],
            "aws-api-gateway lets no binary messages through",
        ),
    ] {
        let mut command = gateway(&["--listen", listen, "--to", to]);
        command.args(more);
        let output = run(command, Vec::new());
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{listen} {to}: {said}");
        assert!(said.contains(words), "{listen} {to}: {said}");
        assert_eq!(said.lines().count(), 1, "{listen} {to}: {said}");
        assert!(output.stdout.is_empty());
    }
    std::fs::remove_file(empty).unwrap();
}

/// A relay takes connections, and reaches nothing behind it: what is missing is said, and how to start it.
#[tokio::test]
async fn a_missing_gateway_behind_a_relay_is_named_in_plain_words() {
    let nobody = "127.0.0.1:1".to_owned();
    let web_sockets = BadPath::start(nobody.clone(), Weather::default())
        .await
        .unwrap();
    let (here, nobody) = ("127.0.0.1:0".parse().unwrap(), nobody.parse().unwrap());
    let http = HttpPath::start_at(here, nobody, 1 << 20).await.unwrap();
    let (web_sockets, http) = (web_sockets.address(), http.address());
    for (to, expected) in [
        (
            format!("ws://{web_sockets}"),
            "the other gateway (start one: breakbulk gateway --listen ws://PORT --to 'exec:SERVER') or an AHP host",
        ),
        (format!("whole+ws://{web_sockets}"), "a WebSocket server"),
        (
            format!("ahp+http://{http}"),
            "the other gateway (start one: breakbulk gateway --listen ahp+http://PORT --to 'exec:SERVER')",
        ),
        (
            "ws://127.0.0.1:1".to_owned(),
            "the other gateway (start one: breakbulk gateway --listen ws://PORT --to 'exec:SERVER') or an AHP host",
        ),
    ] {
        let near = gateway(&["--listen", "stdio:", "--to", &to]);
        let ran = tokio::task::spawn_blocking(|| run(near, Vec::new()));
        let output = ran.await.unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{to}: {said}");
        assert!(
            said.contains(&format!("xpected there: {expected}")),
            "{to}: {said}"
        );
        assert!(!said.contains("os error"), "{to}: {said}");
        assert_eq!(said.lines().count(), 1, "{to}: {said}");
    }
}

// PROG-8
#[test]
fn a_target_that_fails_is_told_to_the_client_and_named_in_the_log_alone() {
    let far = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        "ws://127.0.0.1:1/",
        "--no-check",
    ]);
    let output = run(
        gateway(&["--listen", "stdio:", "--to", &far.address]),
        Vec::new(),
    );
    assert_eq!(output.status.code(), Some(2));
    let said = said(&output);
    let words = "the gateway has no connection to its target; its log says why";
    assert!(said.contains(words), "{said}");
    assert!(!said.contains("127.0.0.1:1 "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    far.line("127.0.0.1:1 refuses connections");
}

#[test]
fn of_a_preset_and_a_maximum_the_smaller_counts_and_is_told() {
    for (max_frame, words) in [
        (
            "500KB",
            Some(
                "--listen: max-frame 500000 is over the 128000 bytes of the preset aws-api-gateway: the smaller one applies",
            ),
        ),
        ("100KB", None),
    ] {
        let far = Listening::new(&[
            "--listen",
            "ws://0",
            "--to",
            "exec:cat",
            "--preset",
            "aws-api-gateway",
            "--max-frame",
            max_frame,
        ]);
        let warned = far.before.iter().find(|line| line.contains("max-frame"));
        match words {
            Some(words) => assert!(warned.unwrap().contains(words), "{warned:?}"),
            None => assert_eq!(warned, None),
        }
    }
}
