//! Streams and commands as transports, with a link on top.

#![cfg(feature = "process")]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Budget, Cap, Carries, Closed, Config, Event, Frame, Limits, Link, Outgoing};
use breakbulk_net::process::{ExecError, Exited, Framing, Stream, Unreadable, exec, find, split};
use breakbulk_net::{Connection, Incoming, Options, Sink, Source, Transport};
use breakbulk_wire::Whole;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LIMIT: usize = 8 << 20;

fn link(framing: Framing) -> Link {
    let mut config = Config::new(Whole::rules());
    config.limits = Limits::default().with(|limits| {
        limits.frame = LIMIT;
        limits.message = LIMIT;
    });
    let wire = Arc::new(Whole::TEXT);
    let mut link = Link::new(wire.clone(), wire, config, Budget::unlimited(), [1; 32]);
    link.set_cap(match framing {
        Framing::Lines => Cap::frame(LIMIT).lines(),
        _ => Cap::frame(LIMIT),
    });
    link
}

fn options() -> Options {
    Options {
        keepalive: None,
        silence: None,
        grace: Duration::from_millis(300),
        ..Options::default()
    }
}

fn open(framing: Framing, transport: impl Transport) -> Connection {
    Connection::open(link(framing), transport, options()).unwrap()
}

async fn message(connection: &Connection) -> String {
    loop {
        match connection.event().await.unwrap() {
            Event::Message(message) => return String::from_utf8(message.bytes.to_vec()).unwrap(),
            Event::Closed(closed) => panic!("closed: {closed:?}"),
            _ => {}
        }
    }
}

fn words(line: &str) -> Vec<String> {
    split(line).unwrap()
}

fn started(line: &str, framing: Framing) -> (Connection, Exited) {
    let (exec, exited) = exec(&words(line), framing, LIMIT).unwrap();
    assert!(exec.id().is_some());
    (open(framing, exec), exited)
}

fn closed(code: u16, reason: &str) -> Closed {
    Closed {
        code,
        reason: reason.to_owned(),
    }
}

#[tokio::test]
async fn frames_go_both_ways_over_any_stream() {
    for framing in [Framing::Lines, Framing::ContentLength] {
        let (near, far) = tokio::io::duplex(1000);
        let (near_read, near_write) = tokio::io::split(near);
        let (far_read, far_write) = tokio::io::split(far);
        let near = open(framing, Stream::new(near_read, near_write, framing, LIMIT));
        let far = open(framing, Stream::new(far_read, far_write, framing, LIMIT));
        let large = format!("{{\"x\":\"{}\"}}", "ü".repeat(1_000_000));
        for text in ["{}", "[1]", &large, "{\"a\":1}"] {
            near.send(Outgoing::new(text.to_owned())).unwrap();
            assert_eq!(message(&far).await, text, "{framing}");
            far.send(Outgoing::new(text.to_owned())).unwrap();
            assert_eq!(message(&near).await, text, "{framing}");
        }
    }
}

#[tokio::test]
async fn the_end_of_a_stream_is_told() {
    for (input, code, reason) in [
        (&b"{}\n"[..], 1000, "end of input"),
        (
            b"{}\n{\"unfin",
            1006,
            "the input ends within a message: 7 bytes, \"{\\\"unfin\"…, are dropped; why did the program stop?",
        ),
        (b"{}\n\xff\n", 1007, "a frame of 1 bytes is not UTF-8"),
    ] {
        let (near, mut far) = tokio::io::duplex(1000);
        let (read, write) = tokio::io::split(near);
        let (mut source, _sink) = Stream::new(read, write, Framing::Lines, 100).split();
        far.write_all(input).await.unwrap();
        far.shutdown().await.unwrap();
        assert_eq!(
            source.next().await,
            Incoming::Frame(Frame::Text("{}".into()))
        );
        let end = source.next().await;
        let expected = closed(code, reason);
        if code == 1007 {
            assert_eq!(end, Incoming::Broken(expected));
            assert!(matches!(source.next().await, Incoming::Closed(_)));
        } else {
            assert_eq!(end, Incoming::Closed(expected));
        }
    }
}

#[tokio::test]
async fn the_last_line_of_a_command_needs_no_line_break() {
    let (connection, _exited) = started("printf '[1]\\n[2]'", Framing::Lines);
    assert_eq!(message(&connection).await, "[1]");
    assert_eq!(message(&connection).await, "[2]");
    let expected = closed(1000, "the command exited with status 0");
    assert_eq!(connection.closed().await, expected);
}

#[tokio::test]
async fn what_is_over_the_limit_is_told_to_who_asked() {
    let large = format!(r#"{{"id":1,"method":"m","params":"{}"}}"#, "x".repeat(200));
    let input = format!("{large}\n{{}}\n");
    // Without a listener for skipped messages, a message over the limit ends the connection.
    let stream = |input: &str| {
        let input = std::io::Cursor::new(input.as_bytes().to_vec());
        Stream::new(input, tokio::io::sink(), Framing::Lines, 100)
    };
    let (mut source, _sink) = stream(&input).split();
    let Incoming::Broken(end) = source.next().await else {
        panic!("it was taken")
    };
    assert_eq!(end.code, 1009);

    let mut asked = stream(&input);
    let mut skipped = asked.ends().skipped(&["id", "method"]);
    let (mut source, _sink) = asked.split();
    assert_eq!(
        source.next().await,
        Incoming::Frame(Frame::Text("{}".into()))
    );
    let expected = Unreadable::Oversized {
        size: large.len() as u64,
        limit: 100,
        members: [("id", "1"), ("method", "\"m\"")]
            .map(|(name, value)| (name, Some(value.to_owned())))
            .into_iter()
            .collect(),
    };
    assert_eq!(skipped.recv().await, Some(expected));
    assert!(skipped.is_empty());

    // While nobody takes the reports, reading waits, and only a few reports are queued.
    let mut flood = stream(&input.repeat(1000));
    let mut skipped = flood.ends().skipped(&["id", "method"]);
    let (mut source, _sink) = flood.split();
    let mut frames = 0;
    loop {
        tokio::select! {
            biased;
            incoming = source.next() => match incoming {
                Incoming::Frame(_) => frames += 1,
                other => panic!("{other:?}"),
            },
            () = tokio::task::yield_now() => break,
        }
    }
    assert!((1..=20).contains(&frames), "{frames}");
    // The read that was dropped has lost no report.
    let mut told = 0;
    // The end of the input is reported by `Ends`: the source returns nothing after the last frame.
    let rest = async {
        while frames < 1000 {
            assert!(matches!(source.next().await, Incoming::Frame(_)));
            frames += 1;
        }
        frames
    };
    tokio::pin!(rest);
    let frames = loop {
        tokio::select! {
            frames = &mut rest => break frames,
            Some(_) = skipped.recv() => told += 1,
        }
    };
    while skipped.try_recv().is_ok() {
        told += 1;
    }
    assert_eq!((frames, told), (1000, 1000));
}

#[tokio::test]
async fn a_dropped_read_loses_nothing() {
    let (near, mut far) = tokio::io::duplex(7);
    let (read, write) = tokio::io::split(near);
    let (mut source, _sink) = Stream::new(read, write, Framing::Lines, 1 << 20).split();
    let text: String = (0..20_000)
        .map(|n| char::from(b'a' + (n % 26) as u8))
        .collect();
    let sent = text.clone();
    let writer = tokio::spawn(async move {
        far.write_all(sent.as_bytes()).await.unwrap();
        far.write_all(b"\n").await.unwrap();
        far
    });
    let mut dropped = 0;
    let frame = loop {
        tokio::select! {
            biased;
            incoming = source.next() => break incoming,
            () = tokio::task::yield_now() => dropped += 1,
        }
    };
    assert_eq!(frame, Incoming::Frame(Frame::Text(text.into())));
    assert!(dropped > 100, "{dropped}");
    drop(writer.await.unwrap());
}

#[tokio::test]
async fn what_cannot_travel_is_refused_before_it_does_harm() {
    let (near, mut far) = tokio::io::duplex(1000);
    let (read, write) = tokio::io::split(near);
    let (_source, mut sink) = Stream::new(read, write, Framing::Lines, 100).split();
    let broken = Frame::Text("{\n}".into());
    assert!(sink.send(broken).await.is_err());
    assert!(sink.send(Frame::Binary("{}".into())).await.is_err());
    sink.send(Frame::Text("{}".into())).await.unwrap();
    sink.close(1000, "").await;
    let mut out = String::new();
    far.read_to_string(&mut out).await.unwrap();
    assert_eq!(out, "{}\n");
    let stream = Stream::new(tokio::io::empty(), tokio::io::sink(), Framing::Lines, 1);
    assert!(stream.carries(Carries::Text) && !stream.carries(Carries::Binary));
}

#[tokio::test]
async fn one_direction_can_end_before_the_other() {
    let (near, mut far) = tokio::io::duplex(1000);
    let (read, write) = tokio::io::split(near);
    let mut stream = Stream::new(read, write, Framing::Lines, LIMIT);
    let mut ends = stream.ends();
    let connection = open(Framing::Lines, stream);
    far.write_all(b"{\"last\":1}\n").await.unwrap();
    far.shutdown().await.unwrap();
    ends.input_ended().await;
    assert_eq!(message(&connection).await, "{\"last\":1}");
    // The other direction is still open.
    connection.send(Outgoing::new("{}")).unwrap();
    connection.drained().await;
    ends.end_output().await;
    let mut out = String::new();
    far.read_to_string(&mut out).await.unwrap();
    assert_eq!(out, "{}\n");
    connection.close(1000, "done");
    connection.ended().await;
}

#[tokio::test]
async fn a_command_answers_and_ends_with_its_input() {
    let (mut transport, mut exited) = exec(&words("cat"), Framing::Lines, LIMIT).unwrap();
    let ends = transport.ends();
    let connection = open(Framing::Lines, transport);
    let large = format!("{{\"x\":\"{}\"}}", "x".repeat(5_000_000));
    connection.send(Outgoing::new("{}")).unwrap();
    connection.send(Outgoing::new(large.clone())).unwrap();
    assert_eq!(message(&connection).await, "{}");
    assert_eq!(message(&connection).await, large);
    // The command's output after the end of its input still arrives.
    connection.send(Outgoing::new(large.clone())).unwrap();
    connection.drained().await;
    ends.end_output().await;
    assert_eq!(message(&connection).await, large);
    let expected = closed(1000, "the command exited with status 0");
    assert_eq!(connection.closed().await, expected);
    assert!(exited.status().await.unwrap().success());
}

#[cfg(unix)]
#[tokio::test]
async fn how_a_command_ended_is_the_reason() {
    for (command, code, reason) in [
        ("true", 1000, "the command exited with status 0"),
        ("sh -c 'exit 3'", 1011, "the command exited with status 3"),
        (
            "sh -c 'kill -9 $$'",
            1011,
            "the command was ended by signal 9",
        ),
        (
            "sh -c 'printf {; exit 4'",
            1011,
            "the command exited with status 4; the input ends within a message: 1 bytes, \"{\"…, are dropped; why did the program stop?",
        ),
        // A process that the command left behind holds its output open, and is not waited for.
        (
            "sh -c 'sleep 20 2>&- & exit 5'",
            1011,
            "the command exited with status 5",
        ),
    ] {
        let (connection, mut exited) = started(command, Framing::Lines);
        assert_eq!(connection.closed().await, closed(code, reason), "{command}");
        assert!(exited.status().await.is_some(), "{command}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_command_that_does_not_end_is_killed() {
    // The command reports when it is ready, and ignores the end of its input.
    let (connection, mut exited) = started(
        "sh -c 'echo {}; while :; do sleep 60; done'",
        Framing::Lines,
    );
    assert_eq!(message(&connection).await, "{}");
    connection.close(1000, "enough");
    connection.ended().await;
    assert_eq!(exited.status().await, None);
}

#[tokio::test]
async fn content_length_is_spoken_to_commands_too() {
    let (connection, _exited) = started("cat", Framing::ContentLength);
    let text = "{\n  \"pretty\": true\n}";
    connection.send(Outgoing::new(text)).unwrap();
    assert_eq!(message(&connection).await, text);
}

#[test]
fn a_program_that_is_not_there_is_named() {
    assert!(matches!(
        find("no-such-program"),
        Err(ExecError::NotFound { .. })
    ));
    let here = find("./tests/process.rs").unwrap_err();
    assert!(here.to_string().contains("./tests/process.rs"), "{here}");
    assert!(find("cat").unwrap().is_absolute());
    let none = exec(&[], Framing::Lines, 1).err().unwrap();
    assert_eq!(none.to_string(), "there is no command to start");
}

/// Takes all bytes, and counts the writes.
#[derive(Clone, Default)]
struct Counted(Arc<std::sync::Mutex<(usize, Vec<u8>)>>);

impl tokio::io::AsyncWrite for Counted {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        let mut taken = self.0.lock().unwrap();
        taken.0 += 1;
        taken.1.extend_from_slice(bytes);
        std::task::Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn small_frames_that_follow_each_other_share_a_write() {
    // Messages of these sizes, queued at once, and in how many writes they go out.
    for (sizes, writes) in [
        (vec![10], 1),
        (vec![10; 100], 2),
        // Held frames are written before there are too many of them.
        (vec![1000; 100], 8),
        // Held frames are sent along with a large one, whose parts are written one by one and not copied.
        (vec![10, 10, 100_000, 10, 10], 6),
    ] {
        let out = Counted::default();
        let (reader, _held_open) = tokio::io::duplex(10);
        let stream = Stream::new(reader, out.clone(), Framing::Lines, LIMIT);
        let connection = open(Framing::Lines, stream);
        let mut expected = String::new();
        for size in &sizes {
            let text = format!("\"{}\"", "x".repeat(size - 2));
            connection.send(Outgoing::new(text.clone())).unwrap();
            expected.push_str(&text);
            expected.push('\n');
        }
        connection.drained().await;
        let (counted, bytes) = out.0.lock().unwrap().clone();
        assert!(bytes == expected.as_bytes(), "{sizes:?}");
        assert!(counted <= writes, "{sizes:?}: {counted} writes");
    }
}
