//! Frames arrive, whatever their size and however slow their reader.

use std::time::{Duration, Instant};

use breakbulk_net::nats::{self, MESSAGE_HEAD, NatsListener};
use breakbulk_net::{Sink, Transport};

use super::common::*;

#[tokio::test]
async fn frames_of_both_kinds_arrive_in_order_both_ways() {
    let server = NatsServer::start("").await;
    let (_listener, client, theirs) = pair(&server.options("tools.mcp")).await;
    let largest = MAX_PAYLOAD - MESSAGE_HEAD;
    assert_eq!((client.max_frame(), theirs.max_frame()), (largest, largest));
    tokio::spawn(echo(theirs));
    let (mut source, mut sink) = client.split();
    for (number, size) in [0, 1, 100, largest, 5, largest - 1].into_iter().enumerate() {
        sink.send(numbered(number, size)).await.unwrap();
        assert_eq!(frame(&mut source).await, numbered(number, size));
    }
}

#[tokio::test]
async fn twenty_megabytes_there_and_back() {
    let server = NatsServer::start("").await;
    let (_listener, client, theirs) = pair(&server.options("mcp")).await;
    tokio::spawn(echo(theirs));
    let size = client.max_frame();
    let (mut source, mut sink) = client.split();
    let count = (20 << 20) / size + 1;
    let begun = Instant::now();
    let send = async {
        for number in 0..count {
            sink.send(numbered(number, size)).await.unwrap();
        }
    };
    let receive = async {
        for number in 0..count {
            assert_eq!(frame(&mut source).await, numbered(number, size));
        }
    };
    tokio::join!(send, receive);
    println!(
        "{:.0} MB/s there and back",
        40.0 / begun.elapsed().as_secs_f64()
    );
}

/// A reader that takes nothing holds the sender back; without that, NATS would drop messages for a
/// slow reader.
// LINE-5
#[tokio::test]
async fn a_slow_reader_holds_the_sender_back_and_loses_nothing() {
    let server = NatsServer::start("").await;
    let (_listener, client, theirs) = pair(&server.options("mcp")).await;
    let (mut source, _sink) = client.split();
    let (_source, mut sink) = theirs.split();
    for (count, size) in [(200, 60_000), (20_000, 10)] {
        let all = async {
            for number in 0..count {
                sink.send(numbered(number, size)).await.unwrap();
            }
        };
        tokio::pin!(all);
        let waits = tokio::time::timeout(Duration::from_secs(1), &mut all).await;
        assert!(
            waits.is_err(),
            "{count} frames of {size} bytes wait somewhere"
        );
        let receive = async {
            for number in 0..count {
                assert_eq!(frame(&mut source).await, numbered(number, size));
            }
        };
        tokio::join!(all, receive);
    }
}

#[tokio::test]
async fn a_queue_group_spreads_sessions_and_a_full_member_sends_them_on() {
    let server = NatsServer::start("").await;
    let options = server.options("mcp");
    let mut members = Vec::new();
    for _ in 0..2 {
        members.push(NatsListener::bind(&options, 16).await.unwrap());
    }
    let mut full = NatsListener::bind(&options, 0).await.unwrap();
    let mut taken = [0, 0];
    let mut open = Vec::new();
    for _ in 0..16 {
        let [first, second] = &mut members[..] else {
            unreachable!()
        };
        let accept = async {
            tokio::select! {
                accepted = first.accept() => (0, accepted),
                accepted = second.accept() => (1, accepted),
                _ = full.accept() => panic!("it has no room"),
            }
        };
        // One of three members has no room: the client asks again.
        match tokio::join!(nats::connect(&options), async {
            tokio::time::timeout(Duration::from_secs(5), accept).await
        }) {
            (Ok(client), Ok((member, Ok(accepted)))) => {
                taken[member] += 1;
                open.push((client, accepted));
            }
            (Err(error), _) => assert!(error.to_string().contains("all 0 sessions"), "{error}"),
            (_, other) => panic!("{other:?}"),
        }
    }
    assert!(taken[0] > 0 && taken[1] > 0, "{taken:?}");
    assert!(open.len() > 10, "{}", open.len());
}
