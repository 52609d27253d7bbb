//! Tests of mistakes that are found before anything begins.

use std::os::unix::fs::PermissionsExt;

use super::keygen;
use crate::common::{gateway, run, said};

const SERVER: &str = "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e";

#[test]
fn what_cannot_work_is_one_line_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let key = keygen(&folder, "key").display().to_string();
    let open = keygen(&folder, "open");
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o644)).unwrap();
    let open = open.display().to_string();
    let secret = std::fs::read_to_string(&key).unwrap().trim().to_owned();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let away = format!("ws://{}", taken.local_addr().unwrap());
    drop(taken);
    let at = |options: &str| format!("cep22+nostr:ws://127.0.0.1:1{options}");
    let to = |options: &str| format!("cep22+nostr:ws://127.0.0.1:1?server={SERVER}{options}");
    let cat = || "exec:cat".to_owned();
    let stdio = || "stdio:".to_owned();
    for (listen, to, words) in [
        (
            at(""),
            cat(),
            "--listen: a server needs a key by which others find it; add ?key=FILE (breakbulk keygen FILE makes one), or set BREAKBULK_NOSTR_KEY",
        ),
        (
            at("?key=/none"),
            cat(),
            "--listen: key /none: there is no such file; make one with breakbulk keygen /none",
        ),
        (
            at(&format!("?key={open}")),
            cat(),
            "is open to others (mode 0644), who could act under it; chmod 600",
        ),
        (
            at(&format!("?key={secret}")),
            cat(),
            "a key on the command line is seen by every program; use ?key=FILE",
        ),
        (
            at(&format!("?key={key}&server={SERVER}")),
            cat(),
            "--listen: server is for --to",
        ),
        (
            at(&format!("?key={key}&timeout=1")),
            cat(),
            "--listen: timeout is for --to",
        ),
        (
            at(&format!("?key={key}&allow=me")),
            cat(),
            "allow: this is no public key; write it as 64 hex digits or as npub1…",
        ),
        (
            at(&format!("?key={key}")),
            stdio(),
            "--to: stdio: cannot be",
        ),
        (
            at(&format!("?key={key}&max-frame=1KB")),
            cat(),
            "max-frame must be at least 4096",
        ),
        (
            at(&format!("?key={key}")),
            "exec:no-such-program".to_owned(),
            "no program \"no-such-program\" in PATH",
        ),
        (
            format!("nostr:{away}?key={key}"),
            cat(),
            "cannot be reached: connection refused",
        ),
        (
            stdio(),
            at(""),
            "--to: there is no server; add ?server=PUBKEY",
        ),
        (
            stdio(),
            at("?server=npub1x"),
            "server: this is no public key",
        ),
        (
            stdio(),
            at(&format!("?server={secret}x")),
            "server: this is no public key",
        ),
        (stdio(), to("&allow=a"), "allow: this is no public key"),
        (
            stdio(),
            to(&format!("&allow={SERVER}")),
            "--to: allow is for --listen",
        ),
        (stdio(), to("&idle=1"), "--to: idle is for --listen"),
        (stdio(), to(&format!("&key={open}")), "--to: key"),
        (
            stdio(),
            to("&encryption=on"),
            "encryption: \"on\" is none of disabled, optional, required",
        ),
        (
            stdio(),
            to("&wraps=1059"),
            "wraps: \"1059\" is none of any, persistent, ephemeral",
        ),
        (
            stdio(),
            to("&timeout=0"),
            "timeout: \"0\" is no number of seconds, at least 1",
        ),
        (stdio(), to("&token=x"), "seen by every program"),
        (
            stdio(),
            to("&cert=x"),
            "\"cert\" is no option; use key, server, allow",
        ),
        (
            stdio(),
            format!("nostr:{away}?server={SERVER}"),
            "cannot be reached: connection refused: nothing listens there; is the relay running, and is this its address?",
        ),
        (
            stdio(),
            format!("nostr:relay.example?server={SERVER}"),
            "a relay is written as wss://HOST or ws://HOST:PORT",
        ),
        (
            stdio(),
            format!("ahp+nostr:{away}?server={SERVER}"),
            "write cep22+nostr:",
        ),
        (
            stdio(),
            "cep22+ws://127.0.0.1:1".to_owned(),
            "cep22 is for relays; write cep22+nostr:wss://RELAY",
        ),
        (
            "ws://0".to_owned(),
            to(&format!("&key={key}")),
            "a key stands for one client at the relays, and many may connect to the listener",
        ),
        ("ws://0".to_owned(), to(""), "cannot be reached"),
        (
            "loro+ws://0".to_owned(),
            to(""),
            "loro+ws: carries loro's messages or bytes, and cep22+nostr: carries text (JSON-RPC)",
        ),
    ] {
        let output = run(gateway(&["--listen", &listen, "--to", &to]), Vec::new());
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{listen} {to}: {said}");
        assert!(said.contains(words), "{listen} {to}: {said}");
        assert_eq!(said.lines().count(), 1, "{listen} {to}: {said}");
        assert!(!said.contains(&secret), "{said}");
    }
    let mut command = gateway(&["--listen", &at(""), "--to", "exec:cat"]);
    command.env("BREAKBULK_NOSTR_KEY", "rubbish");
    let output = run(command, Vec::new());
    assert_eq!(output.status.code(), Some(2));
    let said = said(&output);
    assert!(
        said.contains("BREAKBULK_NOSTR_KEY: this is no secret key"),
        "{said}"
    );
    assert!(!said.contains("rubbish"), "{said}");
}
