//! The bad path between a real WebSocket client and a real echo server, on loopback.

#![cfg(feature = "bad-path")]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use breakbulk_net::bad_path::{After, BadPath, Cut, Direction, How, Over, Way, Weather};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};

type Client = WebSocketStream<TcpStream>;

/// What the server saw.
#[derive(Debug, PartialEq)]
enum Seen {
    Message(usize),
    Close(u16, String),
    End,
}

/// A server that echoes text, binary and the frames' fate. It lives as long as the test's runtime.
async fn echo() -> (SocketAddr, mpsc::UnboundedReceiver<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, tell.clone()));
        }
    });
    (address, seen)
}

async fn serve(stream: TcpStream, tell: mpsc::UnboundedSender<Seen>) {
    let Ok(mut socket) = accept_async(stream).await else {
        return;
    };
    while let Some(Ok(message)) = socket.next().await {
        match message {
            Message::Close(Some(close)) => {
                let _ = tell.send(Seen::Close(close.code.into(), close.reason.to_string()));
            }
            Message::Text(_) | Message::Binary(_) => {
                let _ = tell.send(Seen::Message(message.len()));
                if socket.send(message).await.is_err() {
                    break;
                }
            }
            _ => {}
        }
    }
    let _ = tell.send(Seen::End);
}

async fn connect(path: &BadPath) -> Result<Client, Error> {
    let stream = TcpStream::connect(path.address()).await?;
    let (client, _) = client_async("ws://path/", stream).await?;
    Ok(client)
}

/// Fails instead of hanging.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(20), what).await;
    waited.expect("it does not happen")
}

fn text(length: usize) -> Message {
    Message::text("x".repeat(length))
}

fn piece(first: bool, length: usize, last: bool) -> Message {
    let kind = if first { Data::Text } else { Data::Continue };
    Message::Frame(Frame::message(vec![b'x'; length], OpCode::Data(kind), last))
}

/// The code and reason of the Close, or how else the client's connection ended.
async fn close_of(client: &mut Client) -> Result<(u16, String), String> {
    loop {
        match client.next().await {
            Some(Ok(Message::Close(Some(close)))) => {
                let told = (close.code.into(), close.reason.to_string());
                // The stream ends in order after the Close, not by a reset.
                while let Some(after) = client.next().await {
                    after.map_err(|error| error.to_string())?;
                }
                return Ok(told);
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error.to_string()),
            None => return Err("no close".to_string()),
        }
    }
}

fn caps(frame: u64, message: u64) -> Weather {
    Weather::both_ways(Way {
        frame_cap: Some(frame),
        message_cap: Some(message),
        ..Way::default()
    })
}

#[tokio::test]
async fn caps_let_pass_what_fits_and_close_both_sides_on_what_does_not() {
    let over = |what: &str, size: u64, cap: u64| {
        Some((
            1009,
            format!("{what} of {size} bytes over the cap of {cap}"),
        ))
    };
    let text_only = Weather::both_ways(Way {
        text_only: true,
        ..Way::default()
    });
    let mut answer_capped = Weather::default();
    answer_capped.from_target.message_cap = Some(999);
    let pieces = |last| {
        vec![
            piece(true, 1000, false),
            piece(false, 1000, false),
            piece(false, last, true),
        ]
    };
    let binary = Message::binary(vec![0; 5]);
    // The name, the weather, what is sent, how much of it arrives, the Close if any.
    let cases = [
        (
            "at the frame cap",
            caps(1000, 9000),
            vec![text(1000)],
            Some(1000),
            None,
        ),
        (
            "one over it",
            caps(1000, 9000),
            vec![text(1001)],
            None,
            over("frame", 1001, 1000),
        ),
        (
            "far over it",
            caps(1000, 9000),
            vec![text(5_000_000)],
            None,
            over("frame", 5_000_000, 1000),
        ),
        (
            "at the message cap",
            caps(9000, 1000),
            vec![text(1000)],
            Some(1000),
            None,
        ),
        (
            "one over it",
            caps(9000, 1000),
            vec![text(1001)],
            None,
            over("message", 1001, 1000),
        ),
        (
            "pieces at the message cap",
            caps(2500, 2500),
            pieces(500),
            Some(2500),
            None,
        ),
        (
            "pieces over it",
            caps(1000, 2500),
            pieces(501),
            None,
            over("message", 2501, 2500),
        ),
        (
            "control frames are no message",
            caps(100, 100),
            vec![
                Message::Ping(vec![0; 125].into()),
                piece(true, 50, false),
                Message::Ping(vec![0; 125].into()),
                piece(false, 50, true),
            ],
            Some(100),
            None,
        ),
        (
            "the answer is over the cap",
            answer_capped,
            vec![text(1000)],
            Some(1000),
            over("message", 1000, 999),
        ),
        (
            "binary where it may",
            Weather::default(),
            vec![binary.clone()],
            Some(5),
            None,
        ),
        (
            "binary on a path for text",
            text_only,
            vec![binary],
            None,
            Some((1003, "binary message on a path for text".to_string())),
        ),
    ];
    for (name, weather, messages, arrives, close) in cases {
        let (server, mut seen) = echo().await;
        let path = BadPath::start(server, weather).await.unwrap();
        let mut client = soon(connect(&path)).await.unwrap();
        for message in messages {
            // The path may close while a large frame is still on its way into it.
            let _ = soon(client.send(message)).await;
        }
        if let Some(length) = arrives {
            assert_eq!(
                soon(seen.recv()).await,
                Some(Seen::Message(length)),
                "{name}"
            );
        }
        match close {
            None => {
                let echoed = loop {
                    match soon(client.next()).await.unwrap().unwrap() {
                        Message::Pong(_) => {}
                        message => break message,
                    }
                };
                assert_eq!(Some(echoed.len()), arrives, "{name}");
                assert_eq!(path.counts().from_client.struck, 0, "{name}");
            }
            Some((code, reason)) => {
                assert_eq!(
                    soon(close_of(&mut client)).await,
                    Ok((code, reason.clone())),
                    "{name}"
                );
                assert_eq!(
                    soon(seen.recv()).await,
                    Some(Seen::Close(code, reason)),
                    "{name}"
                );
                assert_eq!(soon(seen.recv()).await, Some(Seen::End), "{name}");
                drop(client);
                let counts = soon(path.until(|counts| counts.open == 0)).await;
                assert_eq!(
                    counts.from_client.struck + counts.from_target.struck,
                    1,
                    "{name}"
                );
                assert_eq!(counts.cuts, 0, "{name}");
            }
        }
    }
}

#[tokio::test]
async fn the_close_waits_for_the_end_of_a_frame_in_the_other_direction() {
    let weather = {
        let mut weather = Weather::default();
        weather.from_client.frame_cap = Some(10);
        weather
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let path = BadPath::start(listener.local_addr().unwrap(), weather)
        .await
        .unwrap();
    let mut client = TcpStream::connect(path.address()).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let (mut target, _) = listener.accept().await.unwrap();
    // A frame of four bytes whose second half comes later.
    target
        .write_all(b"HTTP/1.1 101 x\r\n\r\n\x81\x04ab")
        .await
        .unwrap();
    let mut got = vec![0; 22];
    soon(client.read_exact(&mut got)).await.unwrap();
    client
        .write_all(&[0x81, 0x80 | 11, 0, 0, 0, 0])
        .await
        .unwrap();
    let mut head = [0; 18];
    soon(target.read_exact(&mut head)).await.unwrap();
    soon(path.until(|counts| counts.from_client.struck == 1)).await;
    target.write_all(b"cd\x81\x04efgh").await.unwrap();
    got.clear();
    soon(client.read_to_end(&mut got)).await.unwrap();
    assert_eq!(
        got,
        b"cd\x88\x26\x03\xf1frame of 11 bytes over the cap of 10"
    );
    got.clear();
    soon(target.read_to_end(&mut got)).await.unwrap();
    assert_eq!(got[..2], [0x88, 0xa6], "masked");
    assert_eq!(got.len(), 2 + 4 + 38);
}

#[tokio::test]
async fn random_messages_pass_unchanged_and_are_counted() {
    let seed = match std::env::var("BAD_PATH_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => std::process::id().into(),
    };
    println!("BAD_PATH_SEED={seed}");
    let mut random = Random(seed);
    let (server, _seen) = echo().await;
    let path = BadPath::start(server, Weather::default()).await.unwrap();
    let mut client = soon(connect(&path)).await.unwrap();
    let (mut largest, mut total) = (0, 0);
    for _ in 0..200 {
        let bits = random.next() % 19;
        let length = random.next() % (1 << bits);
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        largest = largest.max(length);
        total += length;
        let message = Message::binary(bytes);
        let (sent, echoed) = soon(async {
            let (mut to, mut from) = (&mut client).split();
            tokio::join!(to.send(message.clone()), from.next())
        })
        .await;
        sent.unwrap();
        assert!(
            echoed.unwrap().unwrap() == message,
            "a message of {length} bytes changed"
        );
    }
    let counts = path.counts();
    for (passed, key) in [(counts.from_client, 4), (counts.from_target, 0)] {
        assert_eq!((passed.frames, passed.messages), (200, 200));
        assert_eq!(
            (passed.largest_frame, passed.largest_message),
            (largest, largest)
        );
        assert!(
            passed.bytes >= total + 200 * (2 + key) && passed.bytes <= total + 200 * (10 + key)
        );
    }
    soon(client.close(None)).await.unwrap();
    while soon(client.next()).await.is_some() {}
    drop(client);
    let counts = soon(path.until(|counts| counts.open == 0)).await;
    assert_eq!(
        (
            counts.from_client.control_frames,
            counts.from_target.control_frames
        ),
        (1, 1)
    );
    assert_eq!((counts.accepted, counts.cuts), (1, 0));
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// How long an echo of `length` bytes takes.
async fn round_trip(client: &mut Client, length: usize) -> Duration {
    let began = Instant::now();
    soon(client.send(text(length))).await.unwrap();
    assert_eq!(soon(client.next()).await.unwrap().unwrap().len(), length);
    began.elapsed()
}

#[tokio::test]
async fn a_pace_is_not_exceeded_and_can_change() {
    let (server, _seen) = echo().await;
    let mut weather = Weather::default();
    weather.from_client.pace = Some(4_000_000);
    let path = BadPath::start(server, weather).await.unwrap();
    let mut client = soon(connect(&path)).await.unwrap();
    let paced = round_trip(&mut client, 2_000_000).await;
    println!("2 MB at 4 MB/s: {paced:?}");
    assert!(paced >= Duration::from_millis(400));
    path.change(|weather| {
        weather.from_client.pace = None;
        weather.from_target.pace = Some(4_000_000);
    });
    let paced = round_trip(&mut client, 2_000_000).await;
    println!("and back: {paced:?}");
    assert!(paced >= Duration::from_millis(400));
    path.change(|weather| weather.from_target.pace = None);
    println!("and free: {:?}", round_trip(&mut client, 2_000_000).await);
}

#[tokio::test]
async fn little_hides_in_the_system_on_a_paced_path() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let weather = Weather::both_ways(Way {
        pace: Some(1000),
        ..Way::default()
    });
    let path = BadPath::start_tcp(listener.local_addr().unwrap(), weather)
        .await
        .unwrap();
    let client = TcpStream::connect(path.address()).await.unwrap();
    socket2::SockRef::from(&client)
        .set_send_buffer_size(4096)
        .unwrap();
    let _target = listener.accept().await.unwrap();
    let mut accepted = 0;
    // Writes until the path takes no more for a while; at this pace a second is 1,000 bytes.
    while let Ok(written) = tokio::time::timeout(Duration::from_millis(300), async {
        client.writable().await.unwrap();
        client.try_write(&[0; 4096])
    })
    .await
    {
        accepted += written.unwrap_or(0);
    }
    println!("{accepted} bytes were taken");
    assert!(accepted < 96 * 1024, "{accepted} bytes hide in buffers");
}

#[tokio::test]
async fn bytes_are_delayed_in_each_direction_and_keep_their_order() {
    let (server, mut seen) = echo().await;
    let mut weather = Weather::default();
    weather.from_client.delay = Duration::from_millis(60);
    weather.from_target.delay = Duration::from_millis(90);
    let path = BadPath::start(server, weather).await.unwrap();
    let mut client = soon(connect(&path)).await.unwrap();
    let began = Instant::now();
    for length in 1..=50 {
        client.send(text(length)).await.unwrap();
    }
    for length in 1..=50 {
        assert_eq!(soon(client.next()).await.unwrap().unwrap().len(), length);
    }
    let took = began.elapsed();
    println!("50 messages with 150 ms of delay: {took:?}");
    assert!(took >= Duration::from_millis(150));
    // All were under way together.
    assert!(took < Duration::from_millis(50 * 150));
    assert_eq!(seen.recv().await, Some(Seen::Message(1)));
    path.change(|weather| *weather = Weather::default());
    round_trip(&mut client, 1).await;
}

#[tokio::test]
async fn a_cut_after_n_frames_lets_exactly_n_pass() {
    for how in [How::Reset, How::End] {
        for frames in 0..6 {
            let (server, mut seen) = echo().await;
            let path = BadPath::start(server, Weather::default()).await.unwrap();
            path.cut_after(Cut {
                counting: Some(Direction::FromClient),
                how,
                ..Cut::frames(frames)
            });
            let connected = soon(connect(&path)).await;
            if let Ok(mut client) = connected {
                for _ in 0..10 {
                    // It fails once the cut fell.
                    let _ = soon(client.send(text(100))).await;
                }
                while let Some(Ok(message)) = soon(client.next()).await {
                    assert!(!message.is_close(), "a cut is no Close");
                }
            } else {
                assert_eq!(frames, 0, "only then can the cut race with the handshake");
            }
            let counts = soon(path.until(|counts| counts.open == 0)).await;
            assert_eq!((counts.from_client.frames, counts.cuts), (frames, 1));
            let mut arrived = 0;
            while let Ok(Seen::Message(_)) = seen.try_recv() {
                arrived += 1;
            }
            assert!(arrived <= frames);
            // It fell once; the next connection lives.
            let mut client = soon(connect(&path)).await.unwrap();
            for _ in 0..10 {
                round_trip(&mut client, 100).await;
            }
        }
    }
}

#[tokio::test]
async fn what_passed_before_an_end_of_the_stream_arrives() {
    for frames in 1..20 {
        let (server, mut seen) = echo().await;
        let path = BadPath::start(server, Weather::default()).await.unwrap();
        path.cut_after(Cut {
            after: After::Frames(frames),
            counting: Some(Direction::FromClient),
            over: Over::EachConnection,
            how: How::End,
        });
        for _ in 0..2 {
            let mut client = soon(connect(&path)).await.unwrap();
            for _ in 0..20 {
                let _ = soon(client.send(text(3000))).await;
            }
            for _ in 0..frames {
                assert_eq!(soon(seen.recv()).await, Some(Seen::Message(3000)));
            }
            assert_eq!(soon(seen.recv()).await, Some(Seen::End), "{frames}");
        }
        soon(path.until(|counts| counts.cuts == 2)).await;
    }
}

#[tokio::test]
async fn cuts_count_both_directions_and_all_connections() {
    let (server, _seen) = echo().await;
    let path = BadPath::start(server, Weather::default()).await.unwrap();
    let mut first = soon(connect(&path)).await.unwrap();
    let mut second = soon(connect(&path)).await.unwrap();
    round_trip(&mut first, 10).await;
    // Counted from now on: two on the first, one of two on the second.
    path.cut_after(Cut::frames(3));
    round_trip(&mut first, 10).await;
    soon(second.send(text(10))).await.unwrap();
    assert!(!matches!(soon(second.next()).await, Some(Ok(_))));
    let counts = soon(path.until(|counts| counts.cuts == 1)).await;
    assert_eq!(
        (counts.from_client.frames, counts.from_target.frames),
        (3, 2)
    );
    round_trip(&mut first, 10).await;
    // Due already on a connection that has passed so much: it falls at once.
    path.cut_after(Cut {
        over: Over::EachConnection,
        ..Cut::frames(6)
    });
    assert!(!matches!(soon(first.next()).await, Some(Ok(_))));
    path.cut_no_more();
    let mut third = soon(connect(&path)).await.unwrap();
    for _ in 0..10 {
        round_trip(&mut third, 10).await;
    }
}

#[tokio::test]
async fn plain_tcp_is_cut_after_exactly_n_bytes() {
    for bytes in [1, 4321, 100_000] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let path = BadPath::start_tcp(listener.local_addr().unwrap(), Weather::default())
            .await
            .unwrap();
        path.cut_after(Cut {
            how: How::End,
            ..Cut::bytes(bytes)
        });
        let mut client = TcpStream::connect(path.address()).await.unwrap();
        let (mut target, _) = listener.accept().await.unwrap();
        let sending = async { client.write_all(&[7; 200_000]).await };
        let mut got = Vec::new();
        let (_, read) = soon(async { tokio::join!(sending, target.read_to_end(&mut got)) }).await;
        read.unwrap();
        assert_eq!(got.len() as u64, bytes);
        assert_eq!(path.counts().from_client.bytes, bytes);
    }
}

#[tokio::test]
async fn both_ends_see_a_reset_or_the_end_of_the_stream() {
    let reset = Err(std::io::ErrorKind::ConnectionReset);
    for (how, expected) in [(How::Reset, reset), (How::End, Ok(0))] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let path = BadPath::start_tcp(address, Weather::default())
            .await
            .unwrap();
        let mut client = TcpStream::connect(path.address()).await.unwrap();
        let (mut target, _) = listener.accept().await.unwrap();
        client.write_all(b"x").await.unwrap();
        assert_eq!(soon(target.read_u8()).await.unwrap(), b'x');
        assert_eq!(path.cut(how), 1);
        for end in [&mut client, &mut target] {
            let read = soon(end.read(&mut [0; 9])).await;
            assert_eq!(read.map_err(|error| error.kind()), expected, "{how:?}");
        }
    }
}

#[tokio::test]
async fn a_cut_now_ends_one_connection_or_all_and_refusing_keeps_new_ones_out() {
    let (server, _seen) = echo().await;
    let path = BadPath::start(format!("localhost:{}", server.port()), Weather::default())
        .await
        .unwrap();
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(soon(connect(&path)).await.unwrap());
    }
    assert_eq!(path.connections(), [1, 2, 3]);
    assert!(path.cut_one(2, How::Reset));
    assert!(!matches!(soon(clients[1].next()).await, Some(Ok(_))));
    assert!(!path.cut_one(2, How::Reset));
    round_trip(&mut clients[0], 10).await;

    path.refuse();
    assert!(soon(connect(&path)).await.is_err());
    round_trip(&mut clients[2], 10).await;
    assert_eq!(path.control().cut(How::Reset), 2);
    for client in [0, 2] {
        assert!(!matches!(soon(clients[client].next()).await, Some(Ok(_))));
    }
    let counts = soon(path.until(|counts| counts.open == 0)).await;
    assert_eq!((counts.accepted, counts.refused, counts.cuts), (3, 1, 3));
    path.admit();
    round_trip(&mut soon(connect(&path)).await.unwrap(), 10).await;
}

#[tokio::test]
async fn a_held_path_passes_nothing_until_it_resumes() {
    let (server, mut seen) = echo().await;
    let path = BadPath::start(server, Weather::default()).await.unwrap();
    let mut client = soon(connect(&path)).await.unwrap();
    round_trip(&mut client, 10).await;
    assert_eq!(seen.recv().await, Some(Seen::Message(10)));
    path.hold();
    soon(client.send(text(20))).await.unwrap();
    // Time in which a path that does not hold would deliver.
    let early = tokio::time::timeout(Duration::from_millis(50), seen.recv()).await;
    assert!(early.is_err(), "{early:?}");
    assert_eq!(path.counts().from_client.frames, 1);
    path.resume();
    assert_eq!(soon(client.next()).await.unwrap().unwrap().len(), 20);
    // A held connection can be cut.
    path.hold();
    assert_eq!(path.cut(How::Reset), 1);
    assert!(!matches!(soon(client.next()).await, Some(Ok(_))));
}

#[tokio::test]
async fn hostile_clients_and_absent_targets_end_their_connection() {
    let (server, _seen) = echo().await;
    let weather = Weather {
        connections: 2,
        ..Weather::default()
    };
    let path = BadPath::start(server, weather).await.unwrap();
    let _first = soon(connect(&path)).await.unwrap();
    let mut endless = TcpStream::connect(path.address()).await.unwrap();
    soon(path.until(|counts| counts.open == 2)).await;
    assert!(soon(connect(&path)).await.is_err(), "one too many");
    assert_eq!(path.counts().refused, 1);
    let _ = soon(endless.write_all(&vec![b'a'; 1_000_000])).await;
    let counts = soon(path.until(|counts| counts.open == 1)).await;
    assert_eq!(counts.long_heads, 1);

    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let path = BadPath::start(closed, Weather::default()).await.unwrap();
    assert!(soon(connect(&path)).await.is_err());
    assert_eq!(
        soon(path.until(|counts| counts.unreachable == 1))
            .await
            .accepted,
        1
    );
}

#[tokio::test]
async fn a_dropped_path_leaves_no_connection_and_no_listener() {
    let (server, mut seen) = echo().await;
    let path = BadPath::start(server, Weather::default()).await.unwrap();
    let (control, address) = (path.control(), path.address());
    let mut client = soon(connect(&path)).await.unwrap();
    drop(path);
    assert!(!matches!(soon(client.next()).await, Some(Ok(_))));
    assert_eq!(soon(seen.recv()).await, Some(Seen::End));
    soon(control.until(|counts| counts.open == 0)).await;
    assert!(TcpStream::connect(address).await.is_err());
}
