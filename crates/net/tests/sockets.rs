//! Streams over TCP and Unix sockets: how much memory and time a hostile peer can take, and that the last
//! bytes arrive.

#![cfg(all(feature = "process", feature = "ws"))]
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use breakbulk_link::{Budget, Frame};
use breakbulk_net::process::{Framing, SocketStream, StreamListener};
use breakbulk_net::{AddressLimits, Incoming, ListenAddress, Sink, Source, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

const LIMIT: usize = 1 << 20;

/// A client's socket, and the server's side of it.
async fn pair() -> (TcpStream, SocketStream) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut listener = StreamListener::new(socket, 8, AddressLimits::default()).unwrap();
    let ListenAddress::Tcp(address) = listener.address().clone() else {
        panic!("no TCP address")
    };
    let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    let stream = accepted.unwrap().frames(Framing::Lines, LIMIT);
    (client.unwrap(), stream)
}

// STREAM-4
#[tokio::test]
async fn a_message_that_does_not_become_whole_is_given_up() {
    for (bytes, seconds) in [(1, 60), (20 << 10, 80)] {
        let (mut client, stream) = pair().await;
        let (mut source, _sink) = stream.split();
        client.write_all(b"{}\n").await.unwrap();
        client.write_all(&vec![b'x'; bytes]).await.unwrap();
        assert_eq!(
            source.next().await,
            Incoming::Frame(Frame::Text("{}".into()))
        );
        // Reads all bytes that have come before the clock is paused: a paused clock advances only if nothing
        // is left to read.
        tokio::select! {
            incoming = source.next() => panic!("{incoming:?}"),
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
        tokio::time::pause();
        let began = Instant::now();
        let incoming = source.next().await;
        let Incoming::Broken(closed) = incoming else {
            panic!("{incoming:?}")
        };
        let reason = format!(
            "a message was not complete after {seconds} s, {bytes} bytes had come: send faster, or in smaller frames"
        );
        assert_eq!((closed.code, closed.reason), (1008, reason));
        let took = began.elapsed().as_secs();
        assert!((seconds - 2..=seconds).contains(&took), "{took} s");
        tokio::time::resume();
    }
}

// STREAM-4
#[tokio::test]
async fn an_unfinished_message_is_charged_and_refused_without_memory() {
    let budget = Budget::new(400 << 10);
    let (mut client, mut stream) = pair().await;
    stream.charge_to(&budget);
    let (mut source, _sink) = stream.split();
    client.write_all(&vec![b'x'; 200 << 10]).await.unwrap();
    let held = async {
        while budget.used() < 200 << 10 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        incoming = source.next() => panic!("{incoming:?}"),
        () = held => {}
    }
    client.write_all(b"\n").await.unwrap();
    let incoming = source.next().await;
    assert!(matches!(incoming, Incoming::Frame(_)), "{incoming:?}");
    assert_eq!(budget.used(), 0, "the link charges what is whole");
    let writing = tokio::spawn(async move {
        // The reader may end before all of it is written.
        let _ = client.write_all(&vec![b'x'; 600 << 10]).await;
        client
    });
    let incoming = source.next().await;
    let Incoming::Broken(closed) = incoming else {
        panic!("{incoming:?}")
    };
    assert_eq!(closed.code, 1013, "{closed:?}");
    assert_eq!(budget.used(), 0);
    writing.abort();
}

/// This side may write for long to a program that says nothing more.
// STREAM-4
#[tokio::test]
async fn what_came_of_a_message_is_given_up_when_the_input_ends() {
    let budget = Budget::new(1 << 20);
    let (mut client, mut stream) = pair().await;
    stream.charge_to(&budget);
    let (mut source, _sink) = stream.split();
    client.write_all(&vec![b'x'; 200 << 10]).await.unwrap();
    client.shutdown().await.unwrap();
    let incoming = source.next().await;
    let Incoming::Closed(closed) = incoming else {
        panic!("{incoming:?}")
    };
    assert_ne!(closed.code, 1000, "{closed:?}");
    assert_eq!(budget.used(), 0);
}

/// Closing a socket with unread bytes would reset it, and the client would lose what was written before.
// STREAM-1
#[tokio::test]
async fn the_last_bytes_arrive_although_the_client_still_writes() {
    let (client, stream) = pair().await;
    let (mut source, mut sink) = stream.split();
    let (mut reader, mut writer) = client.into_split();
    writer.write_all(b"{}\nhalf a line").await.unwrap();
    let last: String = "x".repeat(300 << 10);
    let frame = Frame::Text(last.clone().into());
    let sending = tokio::spawn(async move {
        sink.send(frame).await.unwrap();
        sink.close(1001, "").await;
        source.next().await
    });
    writer.write_all(&vec![b'y'; 100 << 10]).await.unwrap();
    let mut got = String::new();
    reader.read_to_string(&mut got).await.unwrap();
    assert!(got == last + "\n", "{} bytes", got.len());
    drop(writer);
    let incoming = sending.await.unwrap();
    assert!(matches!(incoming, Incoming::Closed(_)), "{incoming:?}");
}
