//! A link driven over a transport: sides, lanes and applications do not block each other, and every end of a
//! connection is reported.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use breakbulk_link::{
    Budget, Cap, Carries, Closed, Config, Event, Frame, Lane, Link, Outgoing, PeerLimits,
    PeerSupport,
};
use breakbulk_net::{Connection, Incoming, Mismatch, Options, Sink, Source, Transport, memory};
use breakbulk_wire::{Ahp, Loro, Whole};
use tokio::time::Instant;

const FRAME: usize = 1000;

fn link(change: impl FnOnce(&mut Config)) -> Link {
    let mut config = Ahp::config();
    change(&mut config);
    let wire = Arc::new(Ahp);
    let mut link = Link::new(wire.clone(), wire, config, Budget::unlimited(), [7; 32]);
    link.set_cap(Cap::frame(FRAME));
    link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
    link
}

fn two(change: impl Fn(&mut Config), frames: usize) -> (Connection, Connection) {
    let (left, right) = memory::pair(frames);
    let options = Options::default();
    (
        Connection::open(link(&change), left, options).unwrap(),
        Connection::open(link(&change), right, options).unwrap(),
    )
}

/// A JSON-RPC notification of this many bytes.
fn message(size: usize, mark: u8) -> Vec<u8> {
    let (head, tail) = (r#"{"jsonrpc":"2.0","method":"m","params":[""#, r#""]}"#);
    let mut text = head.as_bytes().to_vec();
    text.resize(size - tail.len(), mark);
    text.extend_from_slice(tail.as_bytes());
    text
}

async fn next_message(connection: &Connection) -> Option<bytes::Bytes> {
    loop {
        match connection.event().await? {
            Event::Message(message) => return Some(message.bytes),
            Event::Closed(closed) => panic!("{closed}"),
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn both_send_large_messages_at_once_over_a_pipe_of_one_frame() {
    let (left, right) = two(|_| {}, 1);
    let (up, down) = (message(3_000_000, b'u'), message(2_000_000, b'd'));
    left.send(Outgoing::new(up.clone())).unwrap();
    right.send(Outgoing::new(down.clone())).unwrap();
    let (got_down, got_up) = tokio::join!(next_message(&left), next_message(&right));
    assert!(got_up.unwrap() == up && got_down.unwrap() == down);
}

// WS-4
#[tokio::test(start_paused = true)]
async fn a_peer_that_never_reads_is_cut_off_although_it_sends() {
    for (write_time, cut_off) in [(Some(Duration::from_secs(60)), true), (None, false)] {
        let (left, right) = memory::pair(1);
        let options = Options {
            write_time,
            ..Options::default()
        };
        let left = Connection::open(link(|_| {}), left, options).unwrap();
        let (_source, mut sink) = right.split();
        left.send(Outgoing::new(message(5000, b'x'))).unwrap();
        let begin = Instant::now();
        // The peer sends often enough not to count as lost.
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let frame = Frame::Text(message(100, b'y').into());
            let _ = sink.send(frame).await;
            while let Ok(Some(_)) =
                tokio::time::timeout(Duration::from_millis(1), left.event()).await
            {}
        }
        let closed = left.with(|link| link.closed().cloned());
        assert_eq!(
            closed.is_some(),
            cut_off,
            "{closed:?} after {:?}",
            begin.elapsed()
        );
        if let Some(closed) = closed {
            assert_eq!(closed.code, 1006);
            assert!(closed.reason.contains("reads too slowly"), "{closed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_message_in_another_lane_waits_for_what_the_pipe_holds_and_no_more() {
    let (left, right) = memory::pair(1);
    let left = Connection::open(link(|_| {}), left, Options::default()).unwrap();
    let (mut source, _sink) = right.split();
    left.send(Outgoing::new(message(500_000, b'x'))).unwrap();
    let mut next_len = async || match source.next().await {
        Incoming::Frame(Frame::Text(text)) => text.len(),
        other => panic!("{other:?}"),
    };
    for _ in 0..3 {
        assert!(next_len().await > 900);
    }
    // One frame is in the pipe and one is being handed over.
    left.send(Outgoing::new(message(100, b's')).in_lane(Lane(1)))
        .unwrap();
    let lengths = [next_len().await, next_len().await, next_len().await];
    assert!(lengths.contains(&100), "{lengths:?}");
}

#[tokio::test(start_paused = true)]
async fn an_application_that_takes_nothing_stops_its_own_sender() {
    let (left, right) = two(
        |config| {
            config.limits.undelivered = 4;
            config.limits.queued = 8;
        },
        2,
    );
    let mut sent: usize = 0;
    // 4 wait for the application, 2 in the pipe, 1 between them, 8 in the queue.
    while left.send(Outgoing::new(message(200, b'x'))).is_ok() {
        sent += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!((12..=16).contains(&sent), "{sent}");
    let waiting = left.send_when_writable(Outgoing::new(message(200, b'y')));
    tokio::pin!(waiting);
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("there was no room"),
        () = tokio::time::sleep(Duration::from_secs(5)) => {}
    }
    let taken = async {
        for _ in 0..=sent {
            next_message(&right).await.unwrap();
        }
    };
    let (outcome, ()) = tokio::join!(waiting, taken);
    outcome.unwrap();
}

#[tokio::test(start_paused = true)]
async fn dropping_a_message_lets_the_reader_go_on() {
    let (left, right) = two(
        |config| {
            config.limits.message = 10_000;
            config.limits.memory = 25_000;
        },
        1,
    );
    for _ in 0..4 {
        left.send(Outgoing::new(message(10_000, b'x'))).unwrap();
    }
    let mut held = Vec::new();
    let patience = Duration::from_secs(1);
    while let Ok(event) = tokio::time::timeout(patience, right.event()).await {
        if let Some(Event::Message(message)) = event {
            held.push(message);
        }
    }
    assert!(
        held.len() < 4,
        "all four were held within the memory of two"
    );
    let rest = 4 - held.len();
    // Nothing calls the connection: dropping the messages alone must wake the reader.
    let connection = right.clone();
    let reading = tokio::spawn(async move {
        for _ in 0..rest {
            next_message(&connection).await.unwrap();
        }
    });
    tokio::task::yield_now().await;
    held.clear();
    reading.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn codes_and_reasons_arrive() {
    for (code, reason) in [(1000, ""), (4400, "invalid messageSegment: x"), (1013, "é")] {
        let (left, right) = two(|_| {}, 1);
        left.close(code, reason);
        let closed = Closed {
            code,
            reason: reason.to_owned(),
        };
        assert_eq!(right.closed().await, closed);
        assert!(right.closed_by_peer() && !left.closed_by_peer());
        assert!(matches!(right.event().await, Some(Event::Closed(told)) if told == closed));
        assert!(right.event().await.is_none());
        right.ended().await;
        left.ended().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_closes() {
    let (left, right) = two(|_| {}, 1);
    let clone = left.clone();
    drop(left);
    clone.send(Outgoing::new(message(100, b'x'))).unwrap();
    assert_eq!(next_message(&right).await.unwrap().len(), 100);
    drop(clone);
    assert_eq!(right.closed().await.code, 1000);
}

#[tokio::test(start_paused = true)]
async fn finishing_sends_what_is_queued_first() {
    let (left, right) = two(|_| {}, 1);
    left.send(Outgoing::new(message(100_000, b'x'))).unwrap();
    let (got, ()) = tokio::join!(next_message(&right), left.finish(1001, "going away"));
    assert_eq!(got.unwrap().len(), 100_000);
    assert_eq!(right.closed().await.code, 1001);
    left.ended().await;
    assert!(!left.broke_off());
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_connection_and_a_pause_of_ours_is_no_silence() {
    let start = Instant::now();
    // The other end is held and never driven: it takes frames until the pipe is full and says nothing.
    let (left, _held) = memory::pair(64);
    let options = Options::default();
    let silent = Connection::open(link(|_| {}), left, options).unwrap();
    let closed = silent.closed().await;
    assert_eq!(closed.code, 1006);
    assert_eq!(
        closed.reason,
        "nothing received from the other end for 60 s"
    );
    assert_eq!(start.elapsed(), options.silence.unwrap());

    let (left, right) = two(|config| config.limits.undelivered = 1, 1);
    for _ in 0..8 {
        left.send(Outgoing::new(message(100, b'x'))).unwrap();
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    for _ in 0..8 {
        next_message(&right).await.unwrap();
    }
    // Two ends that send no messages keep each other alive by pings.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    left.send(Outgoing::new(message(100, b'z'))).unwrap();
    assert_eq!(next_message(&right).await.unwrap(), message(100, b'z'));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_does_not_hold_up_the_end() {
    let (left, _held) = memory::pair(1);
    let stuck = Connection::open(link(|_| {}), left, Options::default()).unwrap();
    stuck.send(Outgoing::new(message(100_000, b'x'))).unwrap();
    tokio::task::yield_now().await;
    stuck.close(1000, "enough");
    let start = Instant::now();
    stuck.ended().await;
    assert!(start.elapsed() <= 2 * Options::default().grace);
    assert!(stuck.broke_off(), "and it is told");
}

#[tokio::test(start_paused = true)]
async fn a_fault_closes_both_ends_with_its_rule() {
    let (left, right) = memory::pair(4);
    let left = Connection::open(link(|_| {}), left, Options::default()).unwrap();
    let (mut source, mut sink) = right.split();
    let frame = r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":1,"total":2,"data":""}}"#;
    sink.send(Frame::Text(frame.into())).await.unwrap();
    let Incoming::Closed(closed) = source.next().await else {
        panic!("not closed");
    };
    assert_eq!(closed.code, 4400);
    assert!(
        closed.reason.starts_with("invalid messageSegment: "),
        "{closed}"
    );
    assert!(!left.closed_by_peer());
}

/// A link whose frames the transport cannot carry would wait for ever.
#[tokio::test(start_paused = true)]
async fn a_link_is_refused_by_a_transport_that_cannot_carry_its_frames() {
    let (binary, text) = (Arc::new(Loro), Arc::new(Whole::TEXT));
    let config = || Config::new(Loro::rules());
    let open = |link, framing| {
        let pipe = tokio::io::duplex(10).0;
        let (reader, writer) = tokio::io::split(pipe);
        let lines = breakbulk_net::process::Stream::new(reader, writer, framing, 1000);
        Connection::open(link, lines, Options::default()).map(drop)
    };
    let lines = breakbulk_net::process::Framing::Lines;
    let both = Link::new(
        binary.clone(),
        binary.clone(),
        config(),
        Budget::unlimited(),
        [1; 32],
    );
    let mismatch = Mismatch {
        wire: "loro",
        carries: Carries::Binary,
    };
    assert_eq!(open(both, lines), Err(mismatch));
    let down = Link::new(text.clone(), binary, config(), Budget::unlimited(), [1; 32]);
    assert_eq!(open(down, lines), Err(mismatch));
    let up = Link::new(text.clone(), text, config(), Budget::unlimited(), [1; 32]);
    assert_eq!(open(up, lines), Ok(()));
    assert_eq!(
        mismatch.to_string(),
        "the wire loro needs binary frames, which this transport does not carry; use another wire or another transport"
    );
}

/// Without confirmations of its frames, or if nothing ran its plans, a link would stop.
#[tokio::test(start_paused = true)]
async fn plans_made_elsewhere_and_confirmed_frames_are_served() {
    let serves = |config: &mut Config| {
        config.plan_elsewhere = Some(10_000);
        config.confirm = Some(2);
    };
    let (left, right) = two(serves, 1);
    for mark in [b'a', b'b'] {
        left.send(Outgoing::new(message(100_000, mark))).unwrap();
    }
    for mark in [b'a', b'b'] {
        assert!(next_message(&right).await.unwrap() == message(100_000, mark));
    }
    left.drained().await;
}

// WS-4
#[tokio::test(start_paused = true)]
async fn a_frame_that_nobody_takes_ends_the_connection_after_its_time() {
    for (write_time, seconds) in [(Some(Duration::from_secs(60)), Some(60)), (None, None)] {
        let (left, right) = memory::pair(1);
        let options = Options {
            write_time,
            // Only the time limit for writing applies.
            keepalive: None,
            silence: None,
            ..Options::default()
        };
        let connection = Connection::open(link(|_| {}), left, options).unwrap();
        connection.send(Outgoing::new(message(5000, b'x'))).unwrap();
        let begun = Instant::now();
        let ended = tokio::time::timeout(Duration::from_secs(1000), connection.closed()).await;
        match seconds {
            Some(seconds) => {
                assert_eq!(ended.unwrap().code, 1006);
                assert_eq!(begun.elapsed().as_secs(), seconds);
            }
            None => assert!(ended.is_err(), "a pipe may be busy for as long as it likes"),
        }
        drop(right);
    }
}

/// A transport on which nothing comes in; counts how often the driver polls it.
struct Silent(Arc<AtomicUsize>);

impl Transport for Silent {
    type Source = Self;
    type Sink = Quiet;

    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn split(self) -> (Self, Quiet) {
        (self, Quiet)
    }
}

impl Source for Silent {
    async fn next(&mut self) -> Incoming {
        std::future::poll_fn(|_| {
            self.0.fetch_add(1, Ordering::Relaxed);
            std::task::Poll::Pending
        })
        .await
    }
}

struct Quiet;

impl Sink for Quiet {
    async fn send(&mut self, _frame: Frame) -> Result<(), breakbulk_net::Lost> {
        Ok(())
    }

    async fn close(&mut self, _code: u16, _reason: &str) {}
}

/// The driver must not be woken for nothing: waking a task costs as much as a small message does.
#[tokio::test(start_paused = true)]
async fn the_driver_sleeps_while_others_look_at_an_idle_link() {
    let looks = Arc::new(AtomicUsize::new(0));
    let connection =
        Connection::open(link(|_| {}), Silent(looks.clone()), Options::default()).unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let before = looks.load(Ordering::Relaxed);
    assert!(before > 0);
    for _ in 0..20 {
        connection.with(|link| assert!(link.is_idle()));
        tokio::task::yield_now().await;
    }
    assert_eq!(looks.load(Ordering::Relaxed), before);
    connection.send(Outgoing::new(message(100, b's'))).unwrap();
    connection.drained().await;
    assert!(looks.load(Ordering::Relaxed) <= before + 2);
}

/// The driver must sleep although the link is not idle: a message that failed keeps its place in the queue.
#[tokio::test(start_paused = true)]
async fn a_failed_message_that_nobody_replaces_lets_the_driver_sleep() {
    let looks = Arc::new(AtomicUsize::new(0));
    let mut link = link(|_| {});
    link.set_peer(PeerSupport::No);
    let unstarted = Connection::prepare(link, Silent(looks.clone()), Options::default()).unwrap();
    let connection = unstarted.connection().clone();
    let (failures, count) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (failed, all) = (failures.clone(), count.clone());
    unstarted.handle_events(move |event| {
        all.fetch_add(1, Ordering::Relaxed);
        if matches!(event, Event::SendFailed { .. }) {
            failed.fetch_add(1, Ordering::Relaxed);
        }
    });
    connection.send(Outgoing::new(message(5000, b'x'))).unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(failures.load(Ordering::Relaxed), 1);
    assert!(!connection.with(|link| link.is_idle()));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let before = (looks.load(Ordering::Relaxed), count.load(Ordering::Relaxed));
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let after = (looks.load(Ordering::Relaxed), count.load(Ordering::Relaxed));
    assert_eq!(after, before);
}

#[tokio::test(start_paused = true)]
async fn a_handler_gets_every_event_and_the_end() {
    for closes in [true, false] {
        let (left, right) = memory::pair(4);
        let left = Connection::open(link(|_| {}), left, Options::default()).unwrap();
        let unstarted = Connection::prepare(link(|_| {}), right, Options::default()).unwrap();
        let (seen, right) = (
            Arc::new(Mutex::new(Vec::new())),
            unstarted.connection().clone(),
        );
        // A message that is sent before the connection is started waits.
        right.send(Outgoing::new(message(100, b'd'))).unwrap();
        let noting = seen.clone();
        unstarted.handle_events(move |event| {
            noting.lock().unwrap().push(match event {
                Event::Message(message) => format!("message of {}", message.bytes.len()),
                Event::Sent { .. } => "sent".to_owned(),
                Event::Closed(closed) => format!("closed {}", closed.code),
                _ => return,
            });
        });
        assert_eq!(next_message(&left).await.unwrap().len(), 100);
        left.send(Outgoing::new(message(5000, b'u'))).unwrap();
        left.drained().await;
        left.send(Outgoing::new(message(200, b'u'))).unwrap();
        left.drained().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        match closes {
            true => left.close(1000, ""),
            false => right.close(1000, ""),
        }
        right.ended().await;
        let expected = ["sent", "message of 5000", "message of 200", "closed 1000"];
        assert_eq!(*seen.lock().unwrap(), expected, "{closes}");
    }
}
