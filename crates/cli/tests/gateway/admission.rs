//! Tests of which clients a listener accepts.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::{Listening, gateway, run, said};

#[test]
fn only_who_has_the_token_is_let_in() {
    let token = std::env::temp_dir().join(format!("breakbulk-token-{}", std::process::id()));
    std::fs::write(&token, "s3cret\n").unwrap();
    set_mode(&token, 0o600);
    let listen = format!("ws://0?token-file={}", token.display());
    let far = Listening::new(&["--listen", &listen, "--to", "exec:cat"]);
    let near = || gateway(&["--listen", "stdio:", "--to", &far.address]);
    for (sent, code, words) in [
        (None, 2, "it wants a bearer token"),
        (Some("wrong"), 2, "does not accept this bearer token"),
        (Some("s3cret"), 0, ""),
    ] {
        let mut command = near();
        command.envs(sent.map(|token| ("BREAKBULK_TOKEN", token)));
        let output = run(command, b"{}\n".to_vec());
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{sent:?}: {said}");
        assert!(said.contains(words), "{sent:?}: {said}");
        assert!(!said.contains("s3cret"), "{said}");
    }
    std::fs::remove_file(token).unwrap();
    far.line("a client is refused: 401 Unauthorized: Send the bearer token of this server.");
    // A token opens a listener to others.
    let mut open = gateway(&["--listen", "ws://0.0.0.0:0", "--to", "exec:cat"]);
    open.env("BREAKBULK_TOKEN", "t");
    assert!(Listening::start(open).address.starts_with("ws://0.0.0.0:"));
}

fn set_mode(file: &std::path::Path, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(file, mode).unwrap();
}

#[test]
fn a_token_file_has_names_is_read_again_and_is_its_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    std::fs::write(&file, "anna a1\n").unwrap();
    set_mode(&file, 0o644);
    let listen = format!("ws://0?token-file={}", file.display());
    let refused = run(
        gateway(&["--listen", &listen, "--to", "exec:cat"]),
        Vec::new(),
    );
    assert_eq!(refused.status.code(), Some(2));
    let words = said(&refused);
    assert!(words.contains("is open to others (mode 0644)"), "{words}");
    set_mode(&file, 0o600);
    let far = Listening::new(&["--listen", &listen, "--to", "exec:cat"]);
    let code = |token: &str| {
        let mut near = gateway(&["--listen", "stdio:", "--to", &far.address]);
        near.env("BREAKBULK_TOKEN", token);
        run(near, b"{}\n".to_vec()).status.code()
    };
    assert_eq!(code("a1"), Some(0));
    far.line("session{peer=anna@127.0.0.1:");
    assert_eq!(code("b2"), Some(2));
    std::fs::write(&file, "anna a1\nbert b2\n").unwrap();
    // The gateway checks once a second whether the file has changed.
    let since = std::time::Instant::now();
    while code("b2") != Some(0) {
        assert!(since.elapsed() < crate::common::PATIENCE);
    }
    far.line("session{peer=bert@127.0.0.1:");
}

#[test]
fn who_is_refused_is_in_the_log() {
    for (request, more, code, words) in [
        (
            "Origin: https://example.org\r\n",
            &[][..],
            "403",
            "a client is refused: 403 Forbidden",
        ),
        (
            "",
            &["--max-sessions", "1"],
            "503",
            "a client is refused: all 1 connections are in use",
        ),
    ] {
        let mut command = gateway(&["--listen", "whole+ws://0", "--to", "exec:cat"]);
        command.args(more);
        let far = Listening::start(command);
        let address = far.address.strip_prefix("ws://").unwrap();
        let asked = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{request}\r\n"
        );
        // With one place, the first client has it.
        let clients: Vec<_> = (0..1 + more.len() / 2)
            .map(|_| {
                let mut client = TcpStream::connect(address).unwrap();
                client.write_all(asked.as_bytes()).unwrap();
                let mut status = [0; 12];
                client.read_exact(&mut status).unwrap();
                (client, String::from_utf8_lossy(&status).into_owned())
            })
            .collect();
        let line = far.line(words);
        let (refused, status) = clients.last().unwrap();
        assert_eq!(&status[9..], code);
        let peer = refused.local_addr().unwrap().to_string();
        assert!(line.contains(&peer), "{line} does not name {peer}");
    }
}
