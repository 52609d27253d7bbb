//! Tests of what the log repeats of hostile clients, and of what they are told.

use std::io::{Read, Write};

use crate::common::{Server, program};

#[test]
fn a_close_reason_forges_no_line_and_gives_no_orders() {
    let server = Server::gateway(&[]);
    let (status, mut socket) = server.web_socket("/", "");
    assert_eq!(status, 101);
    let reason = "bye\nFORGED a line\r\u{1b}[2J\u{9b}31m\u{202e}";
    let mut frame = vec![0x88, 0x80 | (reason.len() + 2) as u8, 0, 0, 0, 0];
    frame.extend(4000_u16.to_be_bytes());
    frame.extend(reason.as_bytes());
    socket.write_all(&frame).unwrap();
    let line = server.line("FORGED");
    assert!(line.contains("bye FORGED a line"), "{line:?}");
    let is_unsafe = |it: char| (it.is_control() && it != '\n') || it == '\u{202e}';
    assert!(!server.log().contains(is_unsafe), "{:?}", server.log());
}

#[test]
fn a_client_is_not_told_how_a_command_ended() {
    let to = "exec:sh -c 'echo secret >&2; exit 3'";
    let arguments = ["gateway", "--listen", "whole+ws://0", "--to", to];
    let server = Server::start(&mut program(&arguments, &[]));
    let (status, mut socket) = server.web_socket("/", "");
    assert_eq!(status, 101);
    let mut told = Vec::new();
    let mut bytes = [0; 1024];
    while !String::from_utf8_lossy(&told).contains("log says how") {
        match socket.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(read) => told.extend_from_slice(&bytes[..read]),
        }
    }
    let told = String::from_utf8_lossy(&told).into_owned();
    assert!(
        told.contains("the log of that gateway says why"),
        "{told:?}"
    );
    for word in ["status", "secret", "exit"] {
        assert!(!told.contains(word), "{word}: {told:?}");
    }
    server.line("exited with status 3");
}
