//! Signs of life: pings are answered whatever this side does.

use breakbulk_link::{Budget, Frame};
use breakbulk_net::ws::ListenOptions;
use breakbulk_net::{Incoming, Sink, Source, Transport};
use bytes::Bytes;
use futures_util::FutureExt;
use tokio::io::AsyncWriteExt;

use crate::common::{RawFrame, next, next_frame, raw_client, raw_frame, soon};

const PING: &[u8] = b"\x89\x82\0\0\0\0hi";

fn pong(payload: &[u8]) -> RawFrame {
    RawFrame {
        first: 0x8a,
        masked: false,
        payload: payload.to_owned(),
    }
}

/// Large messages go out in one frame.
fn uncut() -> ListenOptions {
    ListenOptions {
        fragment: None,
        ..ListenOptions::default()
    }
}

#[tokio::test]
async fn a_ping_is_answered_though_nothing_is_read_or_sent_after_it() {
    let (websocket, mut wire) = raw_client(ListenOptions::default()).await;
    let (mut source, _sink) = websocket.split();
    wire.write_all(PING).await.unwrap();
    assert_eq!(next(&mut source).await, Incoming::Alive);
    assert_eq!(raw_frame(&mut wire).await, pong(b"hi"));
    wire.write_all(b"\x8a\x80\0\0\0\0").await.unwrap();
    assert_eq!(
        next(&mut source).await,
        Incoming::Alive,
        "a pong is life too"
    );
}

#[tokio::test]
async fn a_large_frame_that_comes_slowly_is_a_sign_of_life() {
    let (websocket, mut wire) = raw_client(ListenOptions::default()).await;
    let (mut source, _sink) = websocket.split();
    wire.write_all(b"\x82\xff\0\0\0\0\0\x01\0\0\0\0\0\0")
        .await
        .unwrap();
    wire.write_all(&[7; 20_000]).await.unwrap();
    assert_eq!(next(&mut source).await, Incoming::Alive);
    wire.write_all(&[7; 45_536]).await.unwrap();
    let whole = Frame::Binary(vec![7; 65_536].into());
    assert_eq!(next_frame(&mut source).await, Incoming::Frame(whole));
}

/// The head of a binary frame of a client, masked with zeros.
fn begin(first: u8, length: u16) -> Vec<u8> {
    let [high, low] = length.to_be_bytes();
    vec![first, 0xfe, high, low, 0, 0, 0, 0]
}

/// An unfinished message with pings between its fragments is not silent: only its age can end the connection.
// WS-1
#[tokio::test]
async fn a_message_that_does_not_become_whole_is_given_up() {
    for (fragments, seconds) in [(0, 60), (1, 80), (5, 160)] {
        let (mut websocket, mut wire) = raw_client(ListenOptions::default()).await;
        let budget = Budget::new(1 << 20);
        websocket.charge_to(&budget);
        let (mut source, _sink) = websocket.split();
        let mut said = begin(0x02, 0);
        for _ in 0..fragments {
            said.extend(begin(0x00, 20 << 10));
            said.resize(said.len() + (20 << 10), 7);
        }
        said.extend(PING);
        // The beginning of one more fragment.
        said.extend(begin(0x00, 5000));
        wire.write_all(&said).await.unwrap();
        let answered = raw_frame(&mut wire);
        tokio::pin!(answered);
        // Once the answer has come, everything before the ping has been read.
        loop {
            tokio::select! {
                biased;
                answer = &mut answered => {
                    assert_eq!(answer, pong(b"hi"));
                    break;
                }
                incoming = source.next() => assert_eq!(incoming, Incoming::Alive),
            }
        }
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let broken = loop {
            match source.next().await {
                Incoming::Alive => {}
                Incoming::Broken(broken) => break broken,
                other => panic!("{other:?}"),
            }
        };
        let bytes = fragments * (20 << 10);
        // The other end may keep the socket open for as long as the grace time allows.
        assert_eq!(budget.used(), 0);
        let reason = format!(
            "a message was not complete after {seconds} s, {bytes} bytes had come: send faster, or in smaller frames"
        );
        assert_eq!((broken.code, broken.reason), (1008, reason));
        let took = began.elapsed().as_secs();
        assert!((seconds - 2..=seconds).contains(&took), "{took} s");
        tokio::time::resume();
    }
}

/// The time in which this side does not read does not count against the other end's message.
// WS-1
#[tokio::test]
async fn time_in_which_this_side_does_not_read_does_not_count() {
    let (websocket, mut wire) = raw_client(ListenOptions::default()).await;
    let (mut source, _sink) = websocket.split();
    wire.write_all(&begin(0x82, 50_000)).await.unwrap();
    wire.write_all(&[7; 20_000]).await.unwrap();
    assert_eq!(next(&mut source).await, Incoming::Alive);
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(3600)).await;
    tokio::time::resume();
    assert!(source.next().now_or_never().is_none(), "it waits on");
    wire.write_all(&[7; 30_000]).await.unwrap();
    let whole = Frame::Binary(vec![7; 50_000].into());
    assert_eq!(next_frame(&mut source).await, Incoming::Frame(whole));
}

#[tokio::test]
async fn a_ping_that_comes_while_a_frame_is_stuck_is_answered_after_it() {
    let (websocket, mut wire) = raw_client(uncut()).await;
    let (mut source, mut sink) = websocket.split();
    // More than the kernel buffers of both sides together.
    let big = Bytes::from(vec![b'x'; 12 << 20]);
    let length = big.len();
    let sending = sink.send(Frame::Text(big));
    tokio::pin!(sending);
    tokio::select! {
        biased;
        _ = &mut sending => panic!("nobody reads, and yet all is out"),
        sent = wire.write_all(PING) => sent.unwrap(),
    }
    // Reading goes on while the frame is stuck, and cannot put a pong into its middle.
    tokio::select! {
        biased;
        incoming = source.next() => assert_eq!(incoming, Incoming::Alive),
        _ = &mut sending => panic!("nobody reads, and yet all is out"),
    }
    let reading = async {
        let frame = raw_frame(&mut wire).await;
        assert_eq!((frame.first, frame.payload.len()), (0x81, length));
        assert!(
            frame.payload.iter().all(|&byte| byte == b'x'),
            "nothing in its middle"
        );
        raw_frame(&mut wire).await
    };
    // The reader keeps waiting: it alone must send the pong.
    let writing_then_reading = async {
        sending.await.unwrap();
        // That the other end takes what we send is a sign of life too.
        next_frame(&mut source).await
    };
    tokio::select! {
        answer = reading => assert_eq!(answer, pong(b"hi")),
        other = writing_then_reading => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_flood_of_pings_to_a_stuck_writer_keeps_one_answer() {
    let (websocket, mut wire) = raw_client(uncut()).await;
    let (mut source, mut sink) = websocket.split();
    let big = Bytes::from(vec![b'x'; 12 << 20]);
    let sending = tokio::spawn(async move {
        let sent = sink.send(Frame::Text(big)).await;
        (sink, sent)
    });
    let pings = 100_000;
    let flood = tokio::spawn(async move {
        let block: Vec<u8> = PING.repeat(1000);
        for _ in 0..pings / 1000 {
            wire.write_all(&block).await.unwrap();
        }
        wire
    });
    for _ in 0..pings {
        assert_eq!(next(&mut source).await, Incoming::Alive);
    }
    let mut wire = soon("the flood", flood).await.unwrap();
    // The progress of the large frame counted as signs of life as well, so that some pings may be
    // left unread.
    while let Some(incoming) = source.next().now_or_never() {
        assert_eq!(incoming, Incoming::Alive);
    }
    let reading = async {
        let mut pongs = 0;
        loop {
            let frame = raw_frame(&mut wire).await;
            match frame.first {
                0x8a => pongs += 1,
                0x81 => assert_eq!(frame.payload.len(), 12 << 20),
                0x88 => return pongs,
                other => panic!("{other:#x}"),
            }
        }
    };
    let ending = async {
        let (mut sink, sent) = sending.await.unwrap();
        sent.unwrap();
        sink.close(1000, "").await;
        sink
    };
    let (pongs, _sink) = soon("the end", async { tokio::join!(reading, ending) }).await;
    assert_eq!(pongs, 1, "answers that were kept");
}
