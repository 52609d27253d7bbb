//! Clients that hold as much as they can: others go on.

use std::io::Write;

use crate::common::{Server, program, status};
use crate::raw::{frame, read_frame, request, skip_head};

#[test]
fn stalled_targets_and_floods_leave_others_their_share() {
    // While this file is there, commands read nothing. Each adds a line to the other file.
    let folder = tempfile::tempdir().unwrap();
    let (stalls, started) = (folder.path().join("stalls"), folder.path().join("started"));
    std::fs::write(&stalls, "").unwrap();
    let command = format!(
        "exec:sh -c 'if [ -e {} ]; then echo >> {}; exec sleep 1000; else exec cat; fi'",
        stalls.display(),
        started.display()
    );
    let arguments = ["gateway", "--listen", "whole+ws://0", "--to", &command];
    let limits = [
        "--memory",
        "12MB",
        "--max-message",
        "2MB",
        "--max-sessions",
        "16",
    ];
    let server = Server::start(&mut program(&arguments, &limits));
    let mut greedy = Vec::new();
    for _ in 0..8 {
        let (status, mut socket) = server.web_socket("/", "");
        assert_eq!(status, 101);
        skip_head(&mut socket);
        socket.set_nonblocking(true).unwrap();
        greedy.push(socket);
    }
    while std::fs::read(&started).unwrap_or_default().len() < greedy.len() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::fs::remove_file(&stalls).unwrap();
    let flood = frame(&request(0, 1_900_000));
    let mut sent = vec![0; greedy.len()];
    // They send until nothing is taken any more, for a while.
    let since = std::time::Instant::now();
    while since.elapsed() < std::time::Duration::from_secs(2) {
        for (socket, sent) in greedy.iter_mut().zip(&mut sent) {
            match socket.write(&flood[*sent % flood.len()..]) {
                Ok(written) => *sent += written,
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        }
    }
    for number in 0..10 {
        let (status, mut socket) = server.web_socket("/", "");
        assert_eq!(status, 101);
        skip_head(&mut socket);
        for id in 0..11 {
            let text = request(id, 700_000);
            socket.write_all(&frame(&text)).unwrap();
            let answer = read_frame(&mut socket);
            assert!(answer == text.as_bytes(), "client {number}, request {id}");
        }
    }
}

#[test]
fn unfinished_posts_keep_no_other_writer_out() {
    let server = Server::documents(&[]);
    let open = |peer: usize| {
        let head = format!("GET /poll?peerId={peer} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(server.ask(&head).0, 200);
    };
    let post = |peer: usize, length: usize, body: &[u8]| {
        let mut stream = server.connect();
        let head = format!(
            "POST /sync HTTP/1.1\r\nHost: localhost\r\nX-Peer-Id: {peer}\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n"
        );
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
        stream
    };
    let almost = vec![0; (1 << 20) - 1];
    let mut unfinished = Vec::new();
    for peer in 1..=16 {
        open(peer);
        for _ in 0..5 {
            unfinished.push(post(peer, 1 << 20, &almost));
        }
    }
    // By the time that one of them is refused the others hold what there is.
    let refused = unfinished.iter_mut().rev().any(|stream| {
        let soon = std::time::Duration::from_millis(200);
        stream.set_read_timeout(Some(soon)).unwrap();
        status(stream) == 503
    });
    assert!(refused, "{}", server.log());
    open(100);
    // A frame of version 2 without messages in it is wrong, but it was read.
    let mut answered = post(100, 1_000_000, &vec![0; 1_000_000]);
    let status = status(&mut answered);
    assert_eq!(status, 400, "{}", server.log());
}
