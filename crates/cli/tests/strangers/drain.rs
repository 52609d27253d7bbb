//! How a server ends: what was begun is finished, and nothing that it started outlives it.

use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Server, program, status};

fn signal(server: &Server, signal: &str) {
    let pid = server.child.id().to_string();
    assert!(
        Command::new("kill")
            .args([signal, &pid])
            .status()
            .unwrap()
            .success()
    );
}

// PROG-16
#[test]
fn requests_in_progress_are_answered_before_the_end() {
    for name in ["-TERM", "-HUP"] {
        let mut server = Server::documents(&[]);
        let poll = |peer: &str, wait: &str| {
            let mut stream = server.connect();
            let head =
                format!("GET /poll?peerId={peer}&wait={wait} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            stream
        };
        assert_eq!(status(&mut poll("1", "0")), 200);
        let mut waiting = poll("1", "50000");
        let mut events = server.connect();
        events
            .write_all(b"GET /events?peerId=2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let mut begun = Vec::new();
        while !String::from_utf8_lossy(&begun).contains(": ok") {
            let mut byte = [0];
            events.read_exact(&mut byte).unwrap();
            begun.push(byte[0]);
        }
        // The body comes after the signal.
        let mut posting = server.connect();
        posting
            .write_all(b"POST /sync HTTP/1.1\r\nHost: localhost\r\nX-Peer-Id: 2\r\nContent-Type: application/octet-stream\r\nContent-Length: 2\r\n\r\n")
            .unwrap();
        // The server has read the head by the time that it answers somebody who came later.
        assert_eq!(status(&mut poll("3", "0")), 200);
        signal(&server, name);
        let refused = Instant::now();
        while std::net::TcpStream::connect(&server.address).is_ok() {
            assert!(refused.elapsed() < PATIENCE, "it still listens");
        }
        posting.write_all(&[0, 0]).unwrap();
        assert_eq!(status(&mut posting), 400, "{name}: the POST");
        assert_eq!(status(&mut waiting), 200, "{name}: the poll");
        let mut rest = Vec::new();
        events.read_to_end(&mut rest).unwrap();
        assert!(
            rest.ends_with(b"0\r\n\r\n"),
            "{name}: the events are cut off: {rest:?}"
        );
        assert!(
            server.child.wait().unwrap().success(),
            "{name}: {}",
            server.log()
        );
    }
}

// PROG-15
#[test]
fn commands_that_ignore_the_end_of_their_input_do_not_outlive_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let script = format!(
        "trap \"\" TERM; sleep 1000 & echo $! > {0}.new; echo $$ >> {0}.new; mv {0}.new {0}; while :; do sleep 1000; done",
        pids.display()
    );
    for name in ["-KILL", "-TERM", "-HUP"] {
        let _ = std::fs::remove_file(&pids);
        let to = format!("exec:sh -c '{script}'");
        let arguments = ["gateway", "--listen", "whole+ws://0", "--to", &to];
        let mut server = Server::start(&mut program(&arguments, &["--grace", "1"]));
        let (status, _socket) = server.web_socket("/", "");
        assert_eq!(status, 101);
        let since = Instant::now();
        let started = loop {
            match std::fs::read_to_string(&pids) {
                Ok(started) => break started,
                Err(_) => assert!(since.elapsed() < PATIENCE, "no command"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        signal(&server, name);
        server.child.wait().unwrap();
        for pid in started.split_whitespace() {
            let since = Instant::now();
            while is_running(pid) {
                assert!(since.elapsed() < PATIENCE, "{name}: {pid} runs on");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Whether a process runs; one that only waits to be reaped does not.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default();
    !matches!(state.trim_start().chars().next(), None | Some('Z' | 'X'))
}
