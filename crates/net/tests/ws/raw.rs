//! The bytes on the socket, one by one, and the errors that hostile bytes lead to.

use std::time::Duration;

use breakbulk_link::{Budget, Closed, Frame};
use breakbulk_net::ws::{ConnectOptions, ListenOptions};
use breakbulk_net::{Incoming, Sink, Source, Transport};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{RawFrame, next, next_frame, raw_client, raw_frame, raw_server, soon};

#[tokio::test]
async fn a_server_writes_these_bytes() {
    let options = ListenOptions {
        fragment: Some(4),
        ..ListenOptions::default()
    };
    let (websocket, mut wire) = raw_client(options).await;
    let (_source, mut sink) = websocket.split();
    for (frame, bytes) in [
        (Frame::Text(Bytes::new()), &b"\x81\x00"[..]),
        (Frame::Text("four".into()), b"\x81\x04four"),
        (Frame::Text("fives".into()), b"\x01\x04five\x80\x01s"),
        (
            Frame::Binary("123456789".into()),
            b"\x02\x041234\x00\x045678\x80\x019",
        ),
        (
            Frame::Binary("12345678".into()),
            b"\x02\x041234\x80\x045678",
        ),
    ] {
        sink.send(frame.clone()).await.unwrap();
        let mut came = vec![0; bytes.len()];
        soon("the bytes", wire.read_exact(&mut came)).await.unwrap();
        assert_eq!(came, bytes, "{frame:?}");
    }
    sink.ping().await.unwrap();
    sink.close(4000, "end").await;
    let mut came = [0; 9];
    soon("the bytes", wire.read_exact(&mut came)).await.unwrap();
    assert_eq!(&came, b"\x89\x00\x88\x05\x0f\xa0end");
}

#[tokio::test]
async fn a_client_masks_and_fragments_at_the_size_given() {
    let options = ConnectOptions {
        fragment: Some(32_000),
        ..ConnectOptions::default()
    };
    let (websocket, mut wire) = raw_server(&options).await;
    let (_source, mut sink) = websocket.split();
    let message: Bytes = (0..70_001u32)
        .map(|index| b'a' + (index % 26) as u8)
        .collect();
    // The caller still holds these bytes, so masking must not change them.
    let kept = message.clone();
    let sending = tokio::spawn(async move { sink.send(Frame::Text(message)).await });
    let mut joined = Vec::new();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let RawFrame {
            first,
            masked,
            payload,
        } = raw_frame(&mut wire).await;
        seen.push((first, masked, payload.len()));
        joined.extend(payload);
    }
    soon("the sender", sending).await.unwrap().unwrap();
    assert_eq!(
        seen,
        [
            (0x01, true, 32_000),
            (0x00, true, 32_000),
            (0x80, true, 6001)
        ]
    );
    assert!(joined == kept);
}

#[tokio::test]
async fn masks_differ_from_frame_to_frame() {
    let (websocket, mut wire) = raw_server(&ConnectOptions::default()).await;
    let (_source, mut sink) = websocket.split();
    let mut masks = Vec::new();
    for _ in 0..8 {
        // A payload of zeros becomes the mask itself.
        sink.send(Frame::Binary(vec![0; 4].into())).await.unwrap();
        let mut bytes = [0; 10];
        soon("a frame", wire.read_exact(&mut bytes)).await.unwrap();
        assert_eq!(bytes[..2], [0x82, 0x84]);
        assert_eq!(bytes[2..6], bytes[6..]);
        masks.push(bytes[2..6].to_owned());
    }
    masks.sort();
    masks.dedup();
    assert!(masks.len() > 6, "{masks:?}");
}

#[tokio::test]
async fn what_breaks_the_protocol_is_told_with_its_code() {
    let masked = |first: u8, payload: &[u8]| {
        // With a mask of zeros the bytes stay readable here.
        let mut frame = vec![first, 0x80 | payload.len() as u8, 0, 0, 0, 0];
        frame.extend(payload);
        frame
    };
    for (what, bytes, code) in [
        ("not UTF-8", masked(0x81, b"\xff\xfe"), 1007),
        ("a lone continuation", masked(0x80, b"x"), 1002),
        ("a reserved bit", masked(0xc1, b"x"), 1002),
        ("a reserved opcode", masked(0x83, b"x"), 1002),
        ("a fragmented ping", masked(0x09, b"x"), 1002),
        ("a close of one byte", masked(0x88, b"x"), 1002),
        (
            "a ping of 126 bytes",
            b"\x89\xfe\x00\x7e\0\0\0\0".to_vec(),
            1002,
        ),
        ("a reserved control frame", masked(0x8b, b""), 1002),
        ("a close with 1005", masked(0x88, b"\x03\xed"), 1002),
        ("a close with 999", masked(0x88, b"\x03\xe7"), 1002),
        (
            "a close that is not UTF-8",
            masked(0x88, b"\x03\xe8\xff"),
            1007,
        ),
        (
            "half a character",
            [masked(0x01, b"\xc3"), masked(0x80, b"x")].concat(),
            1007,
        ),
        ("an unmasked frame", b"\x81\x01x".to_vec(), 1002),
        (
            "a message in a message",
            [masked(0x01, b"x"), masked(0x01, b"y")].concat(),
            1002,
        ),
        (
            "a length beyond all bounds",
            b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0".to_vec(),
            1009,
        ),
    ] {
        let (websocket, mut wire) = raw_client(ListenOptions::default()).await;
        let (mut source, mut sink) = websocket.split();
        wire.write_all(&bytes).await.unwrap();
        let told = next(&mut source).await;
        let Incoming::Broken(closed) = told else {
            panic!("{what}: {told:?}");
        };
        assert_eq!(closed.code, code, "{what}: {closed}");
        sink.close(closed.code, &closed.reason).await;
        let last = raw_frame(&mut wire).await;
        assert_eq!(last.first, 0x88, "{what}");
        assert_eq!(last.payload[..2], code.to_be_bytes(), "{what}");
        // Further bytes are not read as frames any more.
        wire.write_all(&masked(0x81, b"late")).await.unwrap();
        let end = soon("the end", wire.read(&mut [0; 16])).await;
        assert_eq!(end.unwrap(), 0, "{what}: the connection is ended");
        wire.shutdown().await.unwrap();
        let end = next(&mut source).await;
        assert!(
            matches!(end, Incoming::Closed(Closed { code: 1006, .. })),
            "{what}: {end:?}"
        );
    }
}

#[tokio::test]
async fn fragments_and_pings_between_them_are_put_together() {
    let (websocket, mut wire) = raw_client(ListenOptions::default()).await;
    let (mut source, _sink) = websocket.split();
    // "é" cut in two, with a ping in between, then an empty last fragment; masked with "abcd".
    let bytes = [
        &b"\x01\x82abcd\x09\xa1"[..],
        b"\x89\x81abcd\x11",
        b"\x00\x82abcd\xc8\x43",
        b"\x80\x80abcd",
    ];
    // Byte by byte, as a path may deliver it.
    let writing = tokio::spawn(async move {
        for byte in bytes.concat() {
            wire.write_all(&[byte]).await.unwrap();
            wire.flush().await.unwrap();
        }
        wire
    });
    assert_eq!(next(&mut source).await, Incoming::Alive);
    let frame = Frame::Text(Bytes::from_static(b"h\xc3\xa9!"));
    assert_eq!(next(&mut source).await, Incoming::Frame(frame));
    let mut wire = soon("the writer", writing).await.unwrap();
    assert_eq!(raw_frame(&mut wire).await.payload, b"p");
}

#[tokio::test]
async fn a_close_without_words_is_1005_and_is_answered() {
    let (websocket, mut wire) = raw_client(ListenOptions::default()).await;
    let (mut source, mut sink) = websocket.split();
    wire.write_all(b"\x88\x80\0\0\0\0").await.unwrap();
    let closed = Closed {
        code: 1005,
        reason: String::new(),
    };
    assert_eq!(next(&mut source).await, Incoming::Closed(closed));
    sink.close(1005, "").await;
    let answer = raw_frame(&mut wire).await;
    assert_eq!((answer.first, answer.payload.len()), (0x88, 0));
}

#[tokio::test]
async fn frames_that_come_with_the_end_of_the_handshake_are_not_lost() {
    let (mut listener, _) = crate::common::listen(ListenOptions::default()).await;
    let mut wire = tokio::net::TcpStream::connect(listener.local_addr())
        .await
        .unwrap();
    let request =
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\
        \x81\x85\0\0\0\0early";
    wire.write_all(request).await.unwrap();
    let accepted = soon("the handshake", listener.accept()).await.unwrap();
    let (mut source, _sink) = accepted.websocket.split();
    assert_eq!(
        next(&mut source).await,
        Incoming::Frame(Frame::Text("early".into()))
    );
}

/// The memory of an unfinished message is released at once, although the other end may keep the socket open
/// until the grace period is over.
#[tokio::test]
async fn what_came_of_a_message_is_given_up_when_the_connection_ends() {
    let too_long = [&[0x80, 0xff][..], &200_000_u64.to_be_bytes(), &[0; 4]].concat();
    let within_another = vec![0x81, 0x80, 0, 0, 0, 0];
    let close = vec![0x88, 0x80, 0, 0, 0, 0];
    for (what, last) in [
        ("too long", too_long),
        ("within another", within_another),
        ("a close", close),
    ] {
        let (mut websocket, mut stream) = raw_client(ListenOptions::default()).await;
        let budget = Budget::new(1 << 20);
        websocket.charge_to(&budget);
        websocket.limit_frames(300_000);
        let (mut source, _sink) = websocket.split();
        let begun = [&[0x02, 0xff][..], &200_000_u64.to_be_bytes(), &[0; 4]].concat();
        stream.write_all(&begun).await.unwrap();
        stream.write_all(&[0; 200_000]).await.unwrap();
        while budget.used() < 200_000 {
            tokio::select! {
                incoming = source.next() => assert_eq!(incoming, Incoming::Alive, "{what}"),
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        }
        stream.write_all(&last).await.unwrap();
        let incoming = next_frame(&mut source).await;
        assert!(
            matches!(incoming, Incoming::Broken(_) | Incoming::Closed(_)),
            "{what}: {incoming:?}"
        );
        assert_eq!(budget.used(), 0, "{what}");
    }
}
