//! Frames of every size and closes of every kind, both ways.

use breakbulk_link::{Closed, Frame};
use breakbulk_net::ws::{ConnectOptions, FRAME_LIMIT, ListenOptions};
use breakbulk_net::{Incoming, Sink, Transport};
use bytes::Bytes;

use crate::common::{ends, next, next_frame, pair, soon};

fn closed(code: u16, reason: &str) -> Incoming {
    Incoming::Closed(Closed {
        code,
        reason: reason.to_owned(),
    })
}

#[tokio::test]
async fn frames_of_every_size_arrive_as_they_were_sent() {
    // Lengths at the limits of the header forms, the words of the mask and the read buffer.
    let sizes = [
        0, 1, 3, 4, 15, 16, 17, 125, 126, 127, 4095, 16_383, 16_384, 16_385, 65_535, 65_536,
        900_001,
    ];
    for from_client in [true, false] {
        let ((_, mut sink), (mut source, _peer)) = ends(from_client).await;
        for size in sizes {
            let bytes: Bytes = (0..size).map(|index| (index % 251) as u8).collect();
            let text: Bytes = "€aß".chars().cycle().take(size).collect::<String>().into();
            for frame in [Frame::Binary(bytes), Frame::Text(text)] {
                let (sent, came) = soon("a frame", async {
                    tokio::join!(sink.send(frame.clone()), next_frame(&mut source))
                })
                .await;
                sent.unwrap();
                assert!(
                    came == Incoming::Frame(frame),
                    "{size} bytes, {from_client}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_frame_of_the_limit_passes_and_one_byte_more_is_told() {
    for (limit, fragment) in [(1000, None), (70_000, None), (70_000, Some(900))] {
        let client = ConnectOptions {
            fragment,
            ..ConnectOptions::default()
        };
        let server = ListenOptions {
            frame_limit: limit,
            ..ListenOptions::default()
        };
        let (client, server) = pair(&client, server).await;
        let (mut answers, mut sink) = client.split();
        let (mut source, mut closer) = server.websocket.split();
        let exact = Frame::Text(Bytes::from(vec![b'x'; limit]));
        sink.send(exact.clone()).await.unwrap();
        assert_eq!(next_frame(&mut source).await, Incoming::Frame(exact));
        let over = Bytes::from(vec![b'x'; limit + 1]);
        let sending = tokio::spawn(async move {
            let _ = sink.send(Frame::Text(over)).await;
            sink
        });
        let told = Closed {
            code: 1009,
            reason: format!("frame of {} bytes over the limit of {limit}", limit + 1),
        };
        assert_eq!(
            next_frame(&mut source).await,
            Incoming::Broken(told.clone())
        );
        closer.close(told.code, &told.reason).await;
        // The close arrives, although the rest of the frame was never read.
        assert_eq!(next_frame(&mut answers).await, Incoming::Closed(told));
        let _sink = soon("the sender", sending).await.unwrap();
    }
    assert_eq!(FRAME_LIMIT, 16_777_216);
}

#[tokio::test]
async fn codes_and_reasons_of_a_close_arrive() {
    let long = "é".repeat(62);
    let exact = format!("x{}", "é".repeat(61));
    for (code, reason, arrives, words) in [
        (1000, "", 1000, ""),
        (1000, "done", 1000, "done"),
        (1001, "going away", 1001, "going away"),
        (1002, "a rule", 1002, "a rule"),
        (1003, "kind", 1003, "kind"),
        (1007, "text", 1007, "text"),
        (1008, "policy", 1008, "policy"),
        (1009, "too large", 1009, "too large"),
        (1010, "extension", 1010, "extension"),
        (1011, "fault", 1011, "fault"),
        (1012, "restart", 1012, "restart"),
        (1013, "later", 1013, "later"),
        (3000, "registered", 3000, "registered"),
        (4000, "private", 4000, "private"),
        (4999, "last", 4999, "last"),
        // Codes that must not be sent.
        (0, "nothing", 1011, "nothing"),
        (999, "low", 1011, "low"),
        (1004, "reserved", 1011, "reserved"),
        (1005, "none", 1011, "none"),
        (1006, "gone", 1011, "gone"),
        (1015, "tls", 1011, "tls"),
        (2999, "reserved", 1011, "reserved"),
        (5000, "high", 1011, "high"),
        (65_535, "highest", 1011, "highest"),
        // Reasons of the length that a close frame can hold, and longer ones.
        (1000, &exact, 1000, &exact),
        (1000, &long, 1000, &long[..122]),
    ] {
        for from_client in [true, false] {
            let ((mut answer, mut sink), (mut source, mut reply)) = ends(from_client).await;
            sink.close(code, reason).await;
            let came = next(&mut source).await;
            assert_eq!(came, closed(arrives, words), "{code} {reason}");
            reply.close(code, reason).await;
            let answered = next(&mut answer).await;
            assert_eq!(answered, closed(arrives, words), "the answer to {code}");
        }
    }
}

#[tokio::test]
async fn an_end_without_a_close_is_1006() {
    for from_client in [true, false] {
        let (first, (mut source, _sink)) = ends(from_client).await;
        drop(first);
        let Incoming::Closed(Closed { code, reason }) = next(&mut source).await else {
            panic!("an end is a close");
        };
        assert_eq!(
            (code, reason.as_str()),
            (1006, "the other end ended the connection without a close")
        );
    }
}

#[tokio::test]
async fn both_may_close_at_once() {
    let ((mut left, mut left_sink), (mut right, mut right_sink)) = ends(true).await;
    tokio::join!(
        left_sink.close(1000, "left"),
        right_sink.close(1001, "right")
    );
    assert_eq!(next(&mut left).await, closed(1001, "right"));
    assert_eq!(next(&mut right).await, closed(1000, "left"));
}

/// Small frames that are held to share a write stay in order with large frames, pings and the close.
#[tokio::test]
async fn frames_that_share_a_write_arrive_in_order() {
    for from_client in [true, false] {
        let ((mut answers, mut sink), (mut source, mut peer)) = ends(from_client).await;
        let frame = |number: usize, size: usize| {
            let text = format!("{number:05}").repeat(size.div_ceil(5));
            Frame::Text(Bytes::from(text[..size].to_owned()))
        };
        let sizes = [10, 2000, 0, 125, 126, 70_000, 5, 5, 16_000, 16_000, 300];
        let frames: Vec<_> = sizes
            .iter()
            .enumerate()
            .map(|(number, size)| frame(number, *size))
            .collect();
        let (mut held, mut returned) = (0, 0);
        for (number, frame) in frames.iter().enumerate() {
            if number == 6 {
                // The answer to the ping waits behind the frames.
                soon("a ping", peer.ping()).await.unwrap();
                assert_eq!(next(&mut answers).await, Incoming::Alive);
            }
            match sink.hold(frame.clone()) {
                None => held += 1,
                Some(back) => {
                    assert_eq!(back, *frame);
                    returned += 1;
                    soon("a frame", sink.send(back)).await.unwrap();
                }
            }
        }
        assert!(
            held >= 8 && returned >= 1,
            "{held} held, {returned} returned"
        );
        soon("the rest", sink.flush()).await.unwrap();
        for frame in frames {
            assert_eq!(next_frame(&mut source).await, Incoming::Frame(frame));
        }
        sink.hold(frame(11, 11));
        sink.close(1000, "done").await;
        assert_eq!(
            next_frame(&mut source).await,
            Incoming::Frame(frame(11, 11))
        );
        assert_eq!(next_frame(&mut source).await, closed(1000, "done"));
        // Nothing follows a close.
        assert_eq!(sink.hold(frame(12, 5)), Some(frame(12, 5)));
        assert!(sink.send(frame(12, 5)).await.is_err());
    }
}

/// The bytes of held frames are bounded: further frames are returned to be sent.
#[tokio::test]
async fn a_sink_holds_a_few_kilobytes_and_no_more() {
    let ((_answers, mut sink), (mut source, _peer)) = ends(true).await;
    let frame = Frame::Binary(Bytes::from(vec![7; 1000]));
    let held = (0..100)
        .take_while(|_| sink.hold(frame.clone()).is_none())
        .count();
    assert!((10..=16).contains(&held), "{held}");
    sink.flush().await.unwrap();
    for _ in 0..held {
        assert_eq!(
            next_frame(&mut source).await,
            Incoming::Frame(frame.clone())
        );
    }
    assert_eq!(sink.hold(frame), None);
}
