//! Answers to polls that take long to read: neither side takes the other for gone.

use std::time::Duration;

use breakbulk_loro::http::{client_options, serve_options};
use breakbulk_net::http::Way;
use breakbulk_net::{Incoming, Source, Transport, poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{all_ways, config, open, send, soon};
use crate::raw::{Open, ask};

/// The next poll, read up to the end of its head.
async fn next_poll(listener: &TcpListener) -> TcpStream {
    let (mut socket, _) = listener.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    socket
}

async fn answer(socket: &mut TcpStream, length: usize, part: &str) {
    let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(part.as_bytes()).await.unwrap();
}

// LORO-24
#[tokio::test]
async fn a_polling_client_is_alive_while_it_reads_an_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let options = client_options("2000");
    let first = async {
        let new = r#"{"messages":[],"isNewConnection":true}"#;
        answer(&mut next_poll(&listener).await, new.len(), new).await;
    };
    let connecting = async { tokio::join!(poll::connect(&url, &options), first) };
    let (transport, ()) = soon("connecting", connecting).await;
    let (mut source, _sink) = transport.unwrap().split();
    let body = format!(r#"{{"messages":[{{"a":"{}"}}]}}"#, "x".repeat(100));
    let (begin, rest) = body.split_at(20);
    let second = async {
        let mut socket = next_poll(&listener).await;
        answer(&mut socket, body.len(), begin).await;
        socket
    };
    let both = async { tokio::join!(source.next(), second) };
    let (incoming, mut socket) = soon("a part", both).await;
    assert_eq!(incoming, Incoming::Alive);
    let (more, last) = rest.split_at(20);
    socket.write_all(more.as_bytes()).await.unwrap();
    assert_eq!(soon("a part", source.next()).await, Incoming::Alive);
    socket.write_all(last.as_bytes()).await.unwrap();
    loop {
        match soon("the answer", source.next()).await {
            Incoming::Alive => {}
            Incoming::Frame(_) => break,
            other => panic!("{other:?}"),
        }
    }
}

// LORO-24
#[tokio::test]
async fn a_client_that_reads_an_answer_is_not_taken_for_one_that_left() {
    let mut options = serve_options();
    options.stale = Duration::from_secs(5);
    let stale = options.stale;
    let (address, mut arrivals, _serving) = all_ways(options).await;
    let path = "/loro/poll?peerId=2000&wait=60000";
    ask(address, "GET", path, &[], &[]).await;
    let connection = open(arrivals.next().await.unwrap(), config(Way::Poll));
    // More than the sockets buffer, and the client reads only the head: the message stays charged.
    send(&connection, format!("\"{}\"", "x".repeat(30 << 20)));
    let _reading = Open::new(address, "GET", path, &[], &[]).await;
    assert!(
        connection.with(|link| link.queued_bytes() == 0),
        "a poll has taken it"
    );
    tokio::time::pause();
    tokio::time::advance(stale * 2).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let closed = connection.with(|link| link.closed().cloned());
    assert_eq!(closed, None);
}
