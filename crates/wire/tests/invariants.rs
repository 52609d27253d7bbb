//! The invariants of DESIGN.md, by their numbers: each of these fails without its invariant.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use breakbulk_link::testing::{Clock, Confirms, Pair, Weather};
use breakbulk_link::{
    Budget, Cancelled, Cap, Config, Event, FaultKind, Frame, FrameId, FrameKind, Key, Lane, Link,
    Outgoing, PeerLimits, PeerSupport, ProgressOf, Received, Scope, SendError, Sent, TransferId,
    Wire,
};
use breakbulk_wire::{Ahp, Cep22, Loro, Stream, Tywrap, Whole};
use bytes::Bytes;
use common::Kit;

const MESSAGE: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;

/// A JSON-RPC message of exactly `size` bytes.
fn message(size: usize) -> Vec<u8> {
    let frame = br#"{"jsonrpc":"2.0","id":1,"method":"m","params":[""]}"#;
    let (head, tail) = frame.split_at(frame.len() - 3);
    [head, &vec![b'x'; size - frame.len()], tail].concat()
}

/// A link to a peer that takes everything, under a cap of 1,000 bytes.
fn link(kit: Kit, change: impl FnOnce(&mut Config)) -> Link {
    let mut config = Config::new(kit.rules());
    config.progress = 0;
    change(&mut config);
    let mut link = Link::new(kit.wire(), kit.wire(), config, Budget::unlimited(), [1; 32]);
    link.set_cap(Cap::frame(1000));
    link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
    link
}

fn outgoing(kit: Kit, number: u64, size: usize) -> Outgoing {
    Outgoing::new(message(size))
        .with_key(kit.key(number))
        .tagged(number)
}

/// The frames of all wires with pieces but tywrap's may be mixed.
const MIXING: [Kit; 3] = [Kit::Ahp, Kit::Cep22, Kit::Loro];

struct Bench {
    clock: Clock,
    link: Link,
    frames: Vec<FrameId>,
}

impl Bench {
    fn new(link: Link) -> Self {
        Self {
            clock: Clock::new(),
            link,
            frames: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn send(&mut self, message: Outgoing) -> TransferId {
        self.link.send(self.clock.now(), message).unwrap()
    }

    /// The tag and kind of the next frame.
    fn next(&mut self) -> Option<(u64, FrameKind)> {
        let mut frame = Vec::new();
        let transmit = self.link.poll_transmit(self.clock.now(), &mut frame)?;
        assert!(!frame.is_empty());
        self.frames.push(transmit.frame);
        Some((transmit.tag, transmit.kind))
    }

    fn tags(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.next())
            .map(|(tag, _)| tag)
            .collect()
    }

    /// The transport says of the oldest frame that it did not speak of yet.
    fn confirm(&mut self, outcome: Sent) {
        let frame = self.frames.remove(0);
        self.link.handle_sent(self.clock.now(), frame, outcome);
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.link.poll_event()).collect()
    }

    fn words(&mut self) -> Vec<String> {
        self.events().iter().map(word).collect()
    }

    fn take(&mut self, frame: Frame) -> Received {
        self.link.handle_frame(self.clock.now(), frame)
    }

    fn pass(&mut self, time: Duration) {
        self.clock.advance(time);
        self.link.handle_timeout(self.clock.now());
    }
}

fn word(event: &Event) -> String {
    match event {
        Event::Message(message) => format!("message {}", message.bytes.len()),
        Event::Control(_) => "control".into(),
        Event::Sent { tag, .. } => format!("sent {tag}"),
        Event::SendFailed {
            tag, holds_lane, ..
        } => format!(
            "send failed {tag}{}",
            if *holds_lane { ", holds" } else { "" }
        ),
        Event::Progress { done, .. } => format!("progress {done}"),
        Event::Writable => "writable".into(),
        Event::Fault(fault) => format!("fault {}", fault.kind.name()),
        Event::TransferFailed(fault) => format!("failed {}", fault.kind.name()),
        Event::Closed(closed) => format!("closed {}", closed.code),
    }
}

fn send_error(events: &[Event]) -> Option<&SendError> {
    events.iter().find_map(|event| {
        if let Event::SendFailed { error, .. } = event {
            Some(error)
        } else {
            None
        }
    })
}

// 1. Nothing is lost silently.

#[test]
fn invariant_1_a_message_that_cannot_go_out_comes_back_with_limit_size_and_remedy() {
    let peer = |frame, message| {
        PeerSupport::Yes(PeerLimits {
            frame,
            message,
            ..PeerLimits::NONE
        })
    };
    type Case = (Arc<dyn Wire>, PeerSupport, Cap, Outgoing, &'static str);
    let cases: [Case; 8] = [
        (
            Arc::new(Ahp),
            PeerSupport::Unknown,
            Cap::frame(1000),
            Outgoing::new(message(1001)),
            "frame of 1001 bytes exceeds the cap of 1000 and cannot be cut: the peer has not said that it can assemble pieces",
        ),
        (
            Arc::new(Ahp),
            peer(1000, 5000),
            Cap::frame(9999),
            Outgoing::new(message(5001)),
            "message of 5001 bytes exceeds the receiver's limit of 5000; raise the receiver's maximum message size or send less",
        ),
        (
            Arc::new(Ahp),
            peer(100, 5000),
            Cap::frame(9999),
            Outgoing::new(message(101)),
            "a frame cap of 100 bytes leaves no room for data; it must be at least 145",
        ),
        (
            Arc::new(Ahp),
            peer(145, usize::MAX),
            Cap::frame(9999),
            Outgoing::new(message(200_000)),
            "message of 200000 bytes needs more than 65535 pieces under a frame cap of 145 bytes; raise the cap or send less",
        ),
        (
            Arc::new(Cep22::default()),
            PeerSupport::Unknown,
            Cap::frame(1000),
            Outgoing::new(message(1001)),
            "frame of 1001 bytes exceeds the cap of 1000 and cannot be cut: it has no key (progress token or id) to name the transfer by",
        ),
        (
            Arc::new(Whole::TEXT),
            PeerSupport::Unknown,
            Cap::frame(1000),
            Outgoing::new(message(1001)),
            "frame of 1001 bytes exceeds the cap of 1000 and cannot be cut: this wire has no pieces; choose another wire or raise the cap",
        ),
        (
            Arc::new(Loro),
            PeerSupport::Unknown,
            Cap::frame(16),
            Outgoing::new(message(1001)),
            "a frame cap of 16 bytes leaves no room for data; it must be at least 17",
        ),
        (
            Arc::new(Tywrap::default()),
            peer(1000, usize::MAX),
            Cap::piece(1000),
            Outgoing::new(message(1001)).with_key(Key::new(b"seven")),
            "the key must be request:ID or response:ID with an integer ID",
        ),
    ];
    for (wire, peer, cap, outgoing, words) in cases {
        let config = Config::new(Ahp::rules());
        let mut bench = Bench::new(Link::new(
            wire.clone(),
            wire,
            config,
            Budget::unlimited(),
            [1; 32],
        ));
        bench.link.set_cap(cap);
        bench.link.set_peer(peer);
        let bytes = outgoing.bytes.clone();
        bench.send(outgoing.tagged(9));
        assert_eq!(bench.next(), None);
        let events = bench.events();
        let [
            Event::SendFailed {
                error,
                bytes: back,
                tag: 9,
                holds_lane: true,
                ..
            },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        assert_eq!((error.to_string(), back), (words.to_owned(), &bytes));
    }
}

#[test]
fn invariant_1_a_rejected_message_comes_back_and_room_is_told_once() {
    let mut bench = Bench::new(link(Kit::Ahp, |config| {
        config.limits.queued = 4;
        config.limits.queued_bytes = 1000;
    }));
    for number in 0..4 {
        bench.send(outgoing(Kit::Ahp, number, 100));
    }
    let rejected = bench
        .link
        .send(bench.now(), outgoing(Kit::Ahp, 4, 100))
        .unwrap_err();
    assert_eq!(
        rejected.error,
        SendError::QueueFull {
            queued: 4,
            limit: 4
        }
    );
    assert_eq!(rejected.message.bytes, message(100));
    assert_eq!(
        (bench.next(), bench.next()),
        (Some((0, FrameKind::Whole)), Some((1, FrameKind::Whole)))
    );
    assert_eq!(
        bench.words(),
        ["sent 0", "writable", "sent 1"],
        "once the queue is half empty"
    );
    assert_eq!(bench.tags(), [2, 3]);
    assert_eq!(bench.words(), ["sent 2", "sent 3"]);

    // By bytes; a message larger than the queue goes in alone.
    bench.send(outgoing(Kit::Ahp, 5, 5000));
    let rejected = bench
        .link
        .send(bench.now(), outgoing(Kit::Ahp, 6, 60))
        .unwrap_err();
    assert_eq!(
        rejected.error,
        SendError::QueueFull {
            queued: 5000,
            limit: 1000
        }
    );
    bench.tags();
    assert_eq!(bench.words(), ["writable", "sent 5"]);
    assert_eq!(bench.link.queued_bytes(), 0);
}

#[test]
fn invariant_1_a_failed_message_holds_its_place_until_it_is_replaced_or_given_up() {
    for replacement in [Some(Bytes::from(message(60))), None] {
        let mut bench = Bench::new(link(Kit::Ahp, |_| {}));
        bench.send(outgoing(Kit::Ahp, 0, 100));
        let failed = bench.send(outgoing(Kit::Ahp, 1, 2000).uncut());
        bench.send(outgoing(Kit::Ahp, 2, 100));
        bench.send(outgoing(Kit::Ahp, 3, 100).in_lane(Lane(1)));
        assert_eq!(bench.tags(), [0, 3], "the other lane goes on");
        assert_eq!(bench.words(), ["sent 0", "send failed 1, holds", "sent 3"]);
        let given_up = replacement.is_none();
        bench.link.replace(failed, replacement);
        assert_eq!(bench.tags(), if given_up { vec![2] } else { vec![1, 2] });
        assert_eq!(bench.words().last().unwrap(), "sent 2");
        bench.link.replace(failed, Some(Bytes::from(message(70))));
        assert_eq!(bench.next(), None, "there is nothing to replace any more");
    }
}

#[test]
fn invariant_1_every_accepted_message_has_one_end() {
    // Whatever happens to it: sent, failed, cancelled, aborted by the peer, or the link closes.
    for kit in Kit::CUTTING {
        let mut bench = Bench::new(link(kit, |_| {}));
        let ids: Vec<TransferId> = (0..6)
            .map(|n| bench.send(outgoing(kit, n, 300 * (n as usize + 1)).in_lane(Lane(n as u32))))
            .collect();
        assert_eq!(bench.link.cancel(ids[5]), Cancelled::Unsent);
        bench.tags();
        let ends = bench.words();
        assert_eq!(ends.len(), 5, "{ends:?}");
        assert!(ends.iter().all(|end| end.starts_with("sent")), "{ends:?}");
        bench.send(outgoing(kit, 9, 5000));
        bench.next();
        bench.link.close(1000, "bye");
        assert_eq!(
            (bench.next(), bench.words()),
            (None, vec!["closed 1000".to_owned()])
        );
    }
}

#[test]
fn invariant_1_nothing_partial_goes_up() {
    for kit in Kit::CUTTING {
        let frames = kit.transfer(1, &message(200), 20);
        for missing in 0..frames.len() {
            let mut bench = Bench::new(link(kit, |_| {}));
            for (at, frame) in frames.iter().enumerate() {
                if at != missing {
                    bench.take(frame.clone());
                }
            }
            assert!(
                !bench.words().iter().any(|word| word.starts_with("message")),
                "{kit:?} without frame {missing}"
            );
        }
    }
}

// 2. Memory is bounded by numbers in the configuration.

#[test]
fn invariant_2_a_message_stays_charged_until_the_application_drops_it() {
    for kit in Kit::CUTTING {
        let mut bench = Bench::new(link(kit, |config| config.limits.memory = 100_000));
        for frame in kit.transfer(1, &message(40_000), 10_000) {
            bench.take(frame);
        }
        bench.take(kit.whole(&message(1000)));
        while bench.next().is_some() {}
        let events = bench.events();
        assert_eq!(events.len(), 2);
        assert!(
            bench.link.memory() >= 41_000,
            "{kit:?}: {}",
            bench.link.memory()
        );
        // The link may be gone before the message is.
        let budget = Budget::new(50_000);
        let other = Link::new(
            kit.wire(),
            kit.wire(),
            Config::new(kit.rules()),
            budget.clone(),
            [1; 32],
        );
        let mut other = Bench::new(other);
        other.take(kit.whole(&message(1000)));
        let message = other.events();
        drop(other);
        assert!(budget.used() >= 1000);
        drop(message);
        assert_eq!(budget.used(), 0);
        drop(events);
        assert_eq!(bench.link.memory(), 0);
    }
}

#[test]
fn invariant_2_a_full_table_refuses_or_evicts_by_rule() {
    for (kit, words) in [
        (Kit::Ahp, vec!["closed 4400"]),
        (Kit::Tywrap, vec!["failed too-many-transfers"]),
        (Kit::Cep22, vec!["failed too-many-transfers"]),
        (Kit::Loro, vec!["failed evicted"]),
    ] {
        let mut bench = Bench::new(link(kit, |config| config.limits.transfers = 2));
        for number in 1..=3 {
            bench.take(kit.transfer(number, &message(100), 50).remove(0));
        }
        assert_eq!(bench.words(), words, "{kit:?}");
        if kit == Kit::Loro {
            // The oldest is the one that went.
            assert_eq!(bench.take(kit.piece(1, 0, 2, 100, b"x")), Received::Ignored);
            assert_eq!(bench.take(kit.piece(2, 0, 2, 100, b"x")), Received::Pending);
        }
    }
}

#[test]
fn invariant_2_received_bytes_of_all_transfers_evict_the_oldest_once() {
    let kit = Kit::Loro;
    let mut bench = Bench::new(link(kit, |config| config.limits.pending_bytes = 1000));
    for number in 1..=2 {
        bench.take(kit.open(number, 10, 5000, &[0; 32]).unwrap());
        bench.take(kit.piece(number, 0, 10, 5000, &[0; 400]));
    }
    assert_eq!(bench.link.pending_bytes(), 800);
    assert_eq!(
        bench.take(kit.piece(2, 1, 10, 5000, &[0; 400])),
        Received::Pending
    );
    assert_eq!(
        (bench.words(), bench.link.pending_bytes()),
        (vec!["failed evicted".to_owned()], 800)
    );
    // The only one that is left must go itself, and is told of once.
    assert!(matches!(
        bench.take(kit.piece(2, 2, 10, 5000, &[0; 400])),
        Received::Fault(_)
    ));
    assert_eq!(
        (bench.words(), bench.link.pending_bytes()),
        (vec!["failed evicted".to_owned()], 0)
    );
}

#[test]
fn invariant_2_the_processes_shortage_is_no_fault_of_the_peer_and_evicts_nobody() {
    let kit = Kit::Loro;
    let budget = Budget::new(30_000);
    let new = || {
        Link::new(
            kit.wire(),
            kit.wire(),
            Config::new(kit.rules()),
            budget.clone(),
            [1; 32],
        )
    };
    let (mut greedy, mut bench) = (Bench::new(new()), Bench::new(new()));
    greedy.take(kit.open(1, 2, 30_000, &[0; 32]).unwrap());
    greedy.take(kit.piece(1, 0, 2, 30_000, &[0; 20_000]));
    for number in 1..=2 {
        bench.take(kit.open(number, 2, 10_000, &[0; 32]).unwrap());
    }
    bench.take(kit.piece(1, 0, 2, 10_000, &[0; 3000]));
    let refused = bench.take(kit.piece(2, 0, 2, 10_000, &[0; 5000]));
    assert!(
        matches!(&refused, Received::Fault(fault) if fault.kind == FaultKind::Busy),
        "{refused:?}"
    );
    assert_eq!(
        (bench.words(), bench.link.open_transfers()),
        (vec!["failed busy".to_owned()], 1),
        "the older one lives"
    );
    assert_eq!(
        greedy.link.open_transfers(),
        1,
        "nobody else's transfer goes"
    );
    assert!(budget.used() <= 30_000);
    // Where the format can only close, it says that it is our own shortage.
    let mut ahp = Bench::new(Link::new(
        Kit::Ahp.wire(),
        Kit::Ahp.wire(),
        Config::new(Ahp::rules()),
        Budget::new(100),
        [1; 32],
    ));
    ahp.take(Kit::Ahp.whole(MESSAGE));
    assert_eq!(
        ahp.link.closed().unwrap().to_string(),
        "closed with 1013: no memory to spare for this transfer at the moment; try again later"
    );
}

#[test]
fn invariant_2_a_failed_drain_leaves_no_bytes_behind() {
    // What waits must move into the buffer while both are there; if that fails, all is given back.
    for kit in [Kit::Tywrap, Kit::Loro] {
        let mut bench = Bench::new(link(kit, |config| config.limits.memory = 14_000));
        if let Some(open) = kit.open(1, 3, 30_000, &[0; 32]) {
            bench.take(open);
        }
        bench.take(kit.piece(1, 1, 3, 30_000, &[b'x'; 10_000]));
        let refused = bench.take(kit.piece(1, 0, 3, 30_000, &[b'x'; 1000]));
        assert!(
            matches!(&refused, Received::Fault(fault) if fault.kind == FaultKind::Busy),
            "{refused:?}"
        );
        bench.events();
        assert_eq!(
            (
                bench.link.pending_bytes(),
                bench.link.memory(),
                bench.link.open_transfers()
            ),
            (0, 0, 0),
            "{kit:?}"
        );
    }
}

#[test]
fn invariant_2_words_and_reports_that_nobody_takes_are_bounded() {
    let mut bench = Bench::new(link(Kit::Loro, |config| config.limits.memory = 20_000));
    for _ in 0..10_000 {
        bench.take(Frame::Text(vec![b'p'; 200].into()));
        bench.take(Frame::Binary(vec![9].into()));
    }
    assert!(bench.link.memory() <= 20_000);
    assert!(bench.link.unreported() > 10_000);
    let huge = bench.take(Frame::Text(vec![b'p'; 100_000].into()));
    assert!(
        matches!(&huge, Received::Fault(fault) if fault.kind.name() == "frame-too-large"),
        "{huge:?}"
    );
    bench.events();
    assert_eq!(bench.link.memory(), 0);
}

// 3. One frame at a time is made.

#[test]
fn invariant_3_a_frame_is_made_when_it_is_asked_for_and_the_message_is_not_copied() {
    for kit in Kit::CUTTING {
        let mut bench = Bench::new(link(kit, |_| {}));
        let bytes = Bytes::from(message(100_000));
        bench.send(Outgoing::new(bytes.clone()).with_key(kit.key(1)));
        let (mut frame, mut made) = (Vec::new(), 0);
        while bench
            .link
            .poll_transmit(bench.clock.now(), &mut frame)
            .is_some()
        {
            assert!(frame.len() <= 1000, "one frame, and no more than one");
            frame.clear();
            made += 1;
        }
        assert!(made > 100);
        // The link holds a share of the same bytes and lets go of it.
        assert!(bytes.is_unique(), "{kit:?}");
    }
}

#[test]
fn invariant_3_a_message_is_planned_when_its_turn_comes() {
    // A cap that shrinks while a message waits counts for it, also where it was planned elsewhere.
    for elsewhere in [None, Some(0)] {
        for kit in Kit::CUTTING {
            let mut bench = Bench::new(link(kit, |config| config.plan_elsewhere = elsewhere));
            bench.link.set_cap(Cap::frame(100_000));
            bench.send(outgoing(kit, 1, 5000));
            if elsewhere.is_some() {
                assert_eq!(bench.next(), None);
                let job = bench.link.poll_plan().unwrap();
                bench.link.handle_planned(job.run());
            }
            bench.link.set_cap(Cap::frame(700));
            let (mut frame, mut jobs) = (Vec::new(), 0);
            loop {
                if let Some(job) = bench.link.poll_plan() {
                    jobs += 1;
                    bench.link.handle_planned(job.run());
                }
                frame.clear();
                match bench.link.poll_transmit(bench.clock.now(), &mut frame) {
                    Some(_) => assert!(frame.len() <= 700, "{kit:?}: a frame of {}", frame.len()),
                    None if bench.words().iter().any(|word| word == "sent 1") => break,
                    None => assert!(jobs < 3, "{kit:?} goes round in circles"),
                }
            }
        }
    }
}

#[test]
fn invariant_3_a_plan_for_an_older_cap_is_made_again() {
    let kit = Kit::Cep22;
    let mut bench = Bench::new(link(kit, |config| config.plan_elsewhere = Some(2000)));
    bench.send(outgoing(kit, 1, 5000));
    bench.send(outgoing(kit, 2, 100).in_lane(Lane(1)));
    assert_eq!(
        bench.next(),
        Some((2, FrameKind::Whole)),
        "others do not wait for the planning"
    );
    assert_eq!(bench.next(), None);
    let stale = bench.link.poll_plan().unwrap();
    assert!(bench.link.poll_plan().is_none());
    bench.link.set_cap(Cap::frame(800));
    bench.link.handle_planned(stale.run());
    assert_eq!(bench.next(), None, "a stale plan is no plan");
    let fresh = bench.link.poll_plan().unwrap();
    bench.link.handle_planned(fresh.run());
    assert_eq!(bench.next(), Some((1, FrameKind::Open)));

    // The plan of a message that was cancelled meanwhile leads nowhere.
    let id = bench.send(outgoing(kit, 3, 5000).in_lane(Lane(2)));
    bench.tags();
    let job = bench.link.poll_plan().unwrap();
    assert_eq!(bench.link.cancel(id), Cancelled::Unsent);
    bench.link.handle_planned(job.run());
    assert_eq!(bench.next(), None);
}

// 4. Order in a lane holds; lanes are fair.

#[test]
fn invariant_4_a_lane_keeps_its_order_whatever_the_sizes() {
    for kit in Kit::CUTTING {
        let (left, right) = (link(kit, |_| {}), link(kit, |_| {}));
        let mut pair = Pair::new(left, right);
        pair.weather(Weather::slow(Duration::from_millis(3)), 1);
        let sizes = [3000, 60, 5000, 70, 80, 9000, 90];
        for (number, size) in sizes.into_iter().enumerate() {
            for lane in 0..2 {
                let key = kit.key(10 * number as u64 + lane);
                let message = Outgoing::new(message(size + lane as usize))
                    .with_key(key)
                    .in_lane(Lane(lane as u32));
                pair.left.link.send(pair.clock.now(), message).unwrap();
            }
        }
        pair.run();
        let lengths: Vec<usize> = pair.right.messages().iter().map(Bytes::len).collect();
        for lane in 0..2 {
            let of_lane: Vec<usize> = lengths
                .iter()
                .copied()
                .filter(|size| size % 10 == lane)
                .collect();
            assert_eq!(of_lane, sizes.map(|size| size + lane), "{kit:?}");
        }
    }
}

#[test]
fn invariant_4_a_small_message_waits_for_one_frame_of_the_bulk_at_most() {
    for kit in MIXING {
        for begun in [0, 1, 30, 75, 200] {
            let mut bench = Bench::new(link(kit, |_| {}));
            for lane in 0..50 {
                bench.send(outgoing(kit, lane, 100_000).in_lane(Lane(lane as u32)));
            }
            for _ in 0..begun {
                bench.next().unwrap();
            }
            // Several at once, each in a lane of its own, and two in one lane.
            for number in 0..4 {
                bench.send(
                    outgoing(kit, 1000 + number, 100).in_lane(Lane(1000 + number as u32 / 2 * 2)),
                );
            }
            let order: Vec<u64> = (0..8).map(|_| bench.next().unwrap().0).collect();
            let bulk_before = |tag| {
                order
                    .iter()
                    .take_while(|&&other| other != tag)
                    .filter(|&&other| other < 1000)
                    .count()
            };
            for (tag, most) in [(1000, 1), (1002, 1), (1001, 2), (1003, 2)] {
                assert!(
                    bulk_before(tag) <= most,
                    "{kit:?} after {begun}: {tag} in {order:?}"
                );
            }
        }
    }
}

#[test]
fn invariant_4_small_messages_do_not_starve_the_bulk_and_bulk_is_shared() {
    for kit in MIXING {
        let mut bench = Bench::new(link(kit, |_| {}));
        for lane in 0..3 {
            bench.send(outgoing(kit, lane, 100_000).in_lane(Lane(lane as u32)));
        }
        let mut frames = [0; 4];
        for number in 0..300 {
            bench.send(outgoing(kit, 1000 + number, 100).in_lane(Lane(9)));
            bench.send(outgoing(kit, 2000 + number, 100).in_lane(Lane(10)));
            for _ in 0..2 {
                let (tag, _) = bench.next().unwrap();
                frames[tag.min(3) as usize] += 1;
            }
        }
        assert!(
            frames[..3].iter().sum::<i32>() >= 150,
            "{kit:?}: the bulk goes on: {frames:?}"
        );
        assert!(
            frames[..3].iter().max().unwrap() - frames[..3].iter().min().unwrap() <= 2,
            "{kit:?}: shared: {frames:?}"
        );
    }
}

#[test]
fn invariant_4_bursts_are_never_mixed_where_the_format_forbids_it() {
    let kit = Kit::Tywrap;
    let mut bench = Bench::new(link(kit, |_| {}));
    for number in 0..3 {
        bench.send(outgoing(kit, number, 3000).in_lane(Lane(number as u32)));
    }
    bench.next();
    bench.send(outgoing(kit, 9, 100).in_lane(Lane(9)));
    let mut order = bench.tags();
    order.dedup();
    assert_eq!(order.len(), 4, "{order:?}");
}

#[test]
fn invariant_4_lanes_wait_for_the_peers_slots_and_wake_when_it_allows_more() {
    let kit = Kit::Ahp;
    let mut bench = Bench::new(link(kit, |_| {}));
    let limits = |transfers| {
        PeerSupport::Yes(PeerLimits {
            transfers,
            ..PeerLimits::NONE
        })
    };
    bench.link.set_peer(limits(1));
    for lane in 0..3 {
        // The first is long under way when the peer allows more.
        let size = if lane == 0 { 50_000 } else { 2500 };
        bench.send(outgoing(kit, lane, size).in_lane(Lane(lane as u32)));
    }
    bench.send(outgoing(kit, 3, 100).in_lane(Lane(3)));
    let first: Vec<u64> = (0..3).map(|_| bench.next().unwrap().0).collect();
    assert!(
        !first.contains(&1) && !first.contains(&2) && first.contains(&3),
        "one transfer at a time: {first:?}"
    );
    bench.link.set_peer(limits(3));
    let rest = bench.tags();
    let position = |tag| rest.iter().position(|&other| other == tag).unwrap();
    assert!(
        position(1) < 3 && position(2) < 4,
        "they are woken at once: {rest:?}"
    );
    // And the end of one transfer lets the next begin.
    bench.link.set_peer(limits(1));
    for lane in 0..3 {
        bench.send(outgoing(kit, 10 + lane, 2500).in_lane(Lane(lane as u32)));
    }
    let mut rest = bench.tags();
    rest.dedup();
    assert_eq!(rest, [10, 11, 12]);
}

// 5. No frame exceeds the cap. The rest of it is in properties.rs.

#[test]
fn invariant_5_an_answer_that_the_cap_does_not_carry_stays_unsaid() {
    let kit = Kit::Cep22;
    for (token, answers) in [(100, 1), (900, 0)] {
        let mut bench = Bench::new(link(kit, |_| {}));
        let start = kit
            .open_fields(1, 1, 5, &[0; 32])
            .set("progressToken", &format!("\"{}\"", "\\\\".repeat(token)));
        assert_eq!(bench.take(start.frame()), Received::Pending);
        let mut frame = Vec::new();
        let mut made = 0;
        while bench
            .link
            .poll_transmit(bench.clock.now(), &mut frame)
            .is_some()
        {
            assert!(frame.len() <= 1000);
            frame.clear();
            made += 1;
        }
        assert_eq!((made, bench.link.memory() > 0), (answers, true));
    }
}

// 6. Pure rooms stay pure: see `the_same_seed_gives_the_same_frames` in properties.rs, and:

#[test]
fn invariant_6_the_seed_is_all_the_randomness() {
    for kit in [Kit::Ahp, Kit::Loro] {
        let frames = |seed: u8| {
            let mut link = Link::new(
                kit.wire(),
                kit.wire(),
                Config::new(kit.rules()),
                Budget::unlimited(),
                [seed; 32],
            );
            link.set_cap(Cap::frame(400));
            link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
            let mut bench = Bench::new(link);
            for number in 0..4u32 {
                bench.send(Outgoing::new(message(700)).in_lane(Lane(number)));
            }
            let mut frames = Vec::new();
            while bench
                .link
                .poll_transmit(bench.clock.now(), &mut frames)
                .is_some()
            {}
            frames
        };
        assert!(frames(1) == frames(1));
        assert!(frames(1) != frames(2), "another seed gives other keys");
    }
}

// 7. A closed link stays closed; a fault's scope is data.

#[test]
fn invariant_7_nothing_opens_a_closed_link_again() {
    for kit in Kit::ALL {
        let mut bench = Bench::new(link(kit, |config| config.plan_elsewhere = Some(4000)));
        bench.send(outgoing(kit, 1, 500));
        let planning = bench.send(outgoing(kit, 2, 5000).in_lane(Lane(1)));
        bench.tags();
        let job = bench.link.poll_plan();
        bench.link.close(4000, &"ä".repeat(200));
        bench.link.close(1000, "again");
        let reason = bench.link.closed().unwrap();
        assert_eq!(
            (reason.code, reason.reason.len()),
            (4000, 122),
            "cut between characters, as a close frame holds"
        );
        bench.events();

        if let Some(job) = job {
            bench.link.handle_planned(job.run());
        }
        bench.link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
        bench.link.set_cap(Cap::frame(5000));
        bench
            .link
            .replace(planning, Some(Bytes::from_static(MESSAGE)));
        bench
            .link
            .handle_sent(bench.now(), bench.frames[0], Sent::Failed);
        bench.link.discard(kit.key(1));
        assert_eq!(bench.link.cancel(planning), Cancelled::TooLate);
        assert_eq!(bench.take(kit.whole(MESSAGE)), Received::Ignored);
        bench.pass(Duration::from_secs(10_000));
        let rejected = bench
            .link
            .send(bench.now(), outgoing(kit, 3, 100))
            .unwrap_err();
        assert_eq!(
            (rejected.error, rejected.message.bytes),
            (SendError::Closed, Bytes::from(message(100)))
        );
        assert!(
            bench.next().is_none() && bench.events().is_empty() && bench.link.poll_plan().is_none()
        );
        assert!(!bench.link.wants_frame() && bench.link.poll_timeout().is_none());
        assert_eq!(
            (
                bench.link.memory(),
                bench.link.open_transfers(),
                bench.link.queued_bytes()
            ),
            (0, 0, 0)
        );
        assert_eq!(bench.link.closed().unwrap().code, 4000);
    }
}

#[test]
fn invariant_7_what_a_fault_ends_is_what_the_rules_say() {
    let kit = Kit::Loro;
    for (scope, received, words, open) in [
        (Scope::Silent, "ignored", &[][..], 1),
        (Scope::Report, "duplicate", &["fault duplicate"], 1),
        (Scope::Transfer, "duplicate", &["failed duplicate"], 0),
        (Scope::Link, "duplicate", &["closed 1008"], 0),
    ] {
        let mut bench = Bench::new(link(kit, |config| config.rules.scopes.piece = scope));
        bench.take(kit.open(1, 2, 20, &[0; 32]).unwrap());
        bench.take(kit.piece(1, 0, 2, 20, b"x"));
        let got = match bench.take(kit.piece(1, 0, 2, 20, b"x")) {
            Received::Fault(fault) => fault.kind.name(),
            Received::Ignored => "ignored",
            other => panic!("{other:?}"),
        };
        assert_eq!(
            (got, bench.link.open_transfers()),
            (received, open),
            "{scope:?}"
        );
        assert_eq!(bench.words(), words, "{scope:?}");
    }
}

#[test]
fn invariant_7_the_general_form_has_the_last_word() {
    // A frame that looks as the wire writes it, with members after it that change its meaning.
    let kit = Kit::Tywrap;
    let lookalike = |number, other: &str| {
        kit.piece_fields(number, 0, 1, 4, b"oops")
            .add("id", other)
            .frame()
    };
    let mut bench = Bench::new(link(kit, |_| {}));
    assert!(matches!(bench.take(lookalike(1, "2")), Received::Done(_)));
    let events = bench.events();
    let [Event::Message(message)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(message.key, Some(kit.key(2)), "of two ids the last wins");
    // Even if the first of them is one that we want no more of.
    bench.link.discard(kit.key(1));
    assert!(matches!(bench.take(lookalike(1, "2")), Received::Done(_)));
    assert_eq!(bench.link.discarded(), 1, "its last frame has not come by");
    bench.link.discard(kit.key(2));
    assert_eq!(bench.take(lookalike(1, "2")), Received::Ignored);
    assert_eq!(bench.link.discarded(), 1);
    // An unknown token in front, a known one behind.
    let kit = Kit::Cep22;
    let mut bench = Bench::new(link(kit, |_| {}));
    bench.take(kit.open(2, 1, 4, &[0; 32]).unwrap());
    let inner = r#""cvm":{"type":"oversized-transfer","frameType":"chunk","data":"oops"}"#;
    let head = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"#;
    let frame = format!(r#"{head}"t1","progress":2,{inner},"progressToken":"t2",{inner}}}}}"#);
    assert_eq!(
        bench.take(Frame::Text(frame.into())),
        Received::Pending,
        "it is a chunk of t2"
    );
    assert_eq!(bench.link.pending_bytes(), 4);
}

// 8. Nothing is retried by itself.

#[test]
fn invariant_8_a_refused_or_lost_frame_ends_its_message_and_nothing_is_sent_again() {
    for (outcome, error) in [(Sent::TooLarge, "refused"), (Sent::Failed, "lost")] {
        for kit in Kit::CUTTING {
            for frames_before in 0..3 {
                let mut bench = Bench::new(link(kit, |config| config.confirm = Some(21)));
                bench.send(outgoing(kit, 1, 5000));
                for _ in 0..frames_before {
                    bench.next().unwrap();
                    bench.confirm(Sent::Ok);
                }
                bench.next().unwrap();
                bench.confirm(outcome);
                let events = bench.events();
                match (send_error(&events), error) {
                    (Some(SendError::Refused { size }), "refused") => assert!(*size <= 1000),
                    (Some(SendError::Lost), "lost") => {}
                    other => panic!("{kit:?}: {other:?}"),
                }
                assert_eq!(
                    word(&events[0]),
                    "send failed 1",
                    "it holds no lane: what is out cannot be replaced"
                );
                let rest: Vec<FrameKind> = std::iter::from_fn(|| bench.next())
                    .map(|(_, kind)| kind)
                    .collect();
                assert_eq!(
                    rest,
                    if kit == Kit::Cep22 {
                        vec![FrameKind::Abort]
                    } else {
                        vec![]
                    },
                    "{kit:?}"
                );
            }
        }
    }
}

#[test]
fn invariant_8_a_message_that_was_too_large_is_not_planned_again_by_itself() {
    let mut bench = Bench::new(link(Kit::Ahp, |_| {}));
    bench.send(outgoing(Kit::Ahp, 1, 2000).uncut());
    assert_eq!(
        (bench.next(), bench.words()),
        (None, vec!["send failed 1, holds".to_owned()])
    );
    bench.link.set_cap(Cap::frame(1 << 20));
    bench.link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
    bench.pass(Duration::from_secs(3600));
    assert_eq!(
        (bench.next(), bench.words()),
        (None, vec![]),
        "the caller decides"
    );
}

// 9. A slow reader harms itself alone.

#[test]
fn invariant_9_a_peer_that_takes_nothing_costs_a_bounded_queue_and_no_other_link_waits() {
    let (mut slow, mut other) = (
        Bench::new(link(Kit::Ahp, |config| config.limits.queued_bytes = 10_000)),
        Bench::new(link(Kit::Ahp, |_| {})),
    );
    let mut refused = 0;
    for number in 0..100 {
        refused += u32::from(
            slow.link
                .send(slow.now(), outgoing(Kit::Ahp, number, 1000))
                .is_err(),
        );
        other.send(outgoing(Kit::Ahp, number, 1000));
        assert_eq!(other.next(), Some((number, FrameKind::Whole)));
    }
    assert_eq!((refused, slow.link.queued_bytes()), (90, 10_000));
}

#[test]
fn invariant_9_an_application_that_takes_nothing_stops_the_reading() {
    for kit in Kit::ALL {
        let mut bench = Bench::new(link(kit, |config| config.limits.undelivered = 3));
        let mut taken = 0;
        while bench.link.wants_frame() {
            bench.take(kit.whole(MESSAGE));
            taken += 1;
        }
        assert_eq!(taken, 3);
        bench.link.poll_event();
        assert!(bench.link.wants_frame(), "one was taken, one may come");
    }
}

// What the seams promise beside the invariants.

#[test]
fn cancelling_follows_the_rule_of_the_format() {
    // Before the first frame, after it, in the middle, and once all is out but not confirmed.
    use Cancelled::{Stopped, TooLate, Unsent};
    for (kit, outcomes) in [
        (Kit::Ahp, [Unsent, TooLate, TooLate, TooLate]),
        (Kit::Tywrap, [Unsent, Stopped, Stopped, TooLate]),
        (Kit::Cep22, [Unsent, Stopped, Stopped, TooLate]),
        (Kit::Loro, [Unsent, Stopped, Stopped, TooLate]),
        (Kit::Whole, [Unsent, TooLate, TooLate, TooLate]),
    ] {
        let size = if kit == Kit::Whole { 900 } else { 5000 };
        let mut unhindered = Bench::new(link(kit, |_| {}));
        unhindered.send(outgoing(kit, 1, size));
        let all = unhindered.tags().len();
        for (frames, outcome) in [0, 1, 3.min(all), all].into_iter().zip(outcomes) {
            let mut bench = Bench::new(link(kit, |config| config.confirm = Some(21)));
            let id = bench.send(outgoing(kit, 1, size));
            let mut made = 0;
            while made < frames {
                match bench.next() {
                    Some(_) => made += 1,
                    None => bench.confirm(Sent::Ok),
                }
            }
            assert_eq!(
                bench.link.cancel(id),
                outcome,
                "{kit:?} after {frames} of {all} frames"
            );
            if outcome == TooLate {
                continue;
            }
            let rest: Vec<FrameKind> = std::iter::from_fn(|| bench.next())
                .map(|(_, kind)| kind)
                .collect();
            let told = kit == Kit::Cep22 && outcome == Stopped;
            assert_eq!(
                rest,
                if told { vec![FrameKind::Abort] } else { vec![] },
                "{kit:?}"
            );
            assert_eq!(
                (bench.link.queued_bytes(), bench.words().len()),
                (0, 0),
                "the caller knows already"
            );
        }
    }
}

#[test]
fn a_cancelled_transfer_is_aborted_with_a_number_above_all_that_were_used() {
    let kit = Kit::Cep22;
    let mut link = link(kit, |_| {});
    let clock = Clock::new();
    let id = link.send(clock.now(), outgoing(kit, 1, 5000)).unwrap();
    for _ in 0..3 {
        link.poll_transmit(clock.now(), &mut Vec::new()).unwrap();
    }
    assert_eq!(link.cancel(id), Cancelled::Stopped);
    let mut abort = Vec::new();
    link.poll_transmit(clock.now(), &mut abort).unwrap();
    assert_eq!(
        String::from_utf8(abort).unwrap(),
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t1","progress":4,"cvm":{"type":"oversized-transfer","frameType":"abort","reason":"cancelled by the sender"}}}"#
    );
}

#[test]
fn accept_is_waited_for_and_abort_ends_a_transfer() {
    let kit = Kit::Cep22;
    let waiting = || {
        let mut bench = Bench::new(link(kit, |_| {}));
        bench.link.set_peer(PeerSupport::Unknown);
        bench.send(outgoing(kit, 1, 3000));
        bench.send(outgoing(kit, 2, 100));
        assert_eq!(
            (bench.next(), bench.next()),
            (Some((1, FrameKind::Open)), None)
        );
        bench
    };
    let mut bench = waiting();
    assert_eq!(
        bench
            .link
            .poll_timeout()
            .map(|(due, why)| (due - bench.now(), why)),
        Some((Duration::from_secs(30), "waiting for accept"))
    );
    assert_eq!(
        bench.take(kit.special(9, 2, "accept").frame()),
        Received::Ignored,
        "of something else"
    );
    assert_eq!(bench.next(), None);
    assert_eq!(
        bench.take(kit.special(1, 2, "accept").frame()),
        Received::Pending
    );
    assert_eq!(bench.link.poll_timeout(), None);
    assert_eq!(bench.tags(), [1, 1, 1, 1, 1, 2]);

    let mut bench = waiting();
    bench.pass(Duration::from_secs(30));
    let events = bench.events();
    assert_eq!(
        send_error(&events),
        Some(&SendError::NotAccepted {
            waited: Duration::from_secs(30)
        })
    );
    assert_eq!(
        bench.next().map(|(_, kind)| kind),
        Some(FrameKind::Abort),
        "the peer may have taken the start"
    );
    assert_eq!(
        bench.next(),
        Some((2, FrameKind::Whole)),
        "the lane goes on"
    );

    let mut bench = waiting();
    bench.take(
        kit.special(1, 2, "abort")
            .set("reason", "\"too big\"")
            .frame(),
    );
    assert_eq!(
        send_error(&bench.events()),
        Some(&SendError::Aborted {
            reason: "too big".into()
        })
    );
    assert_eq!(
        bench.next(),
        Some((2, FrameKind::Whole)),
        "an abort is not answered"
    );
}

#[test]
fn confirmed_frames_go_out_in_the_window_of_the_format() {
    let kit = Kit::Cep22;
    let mut bench = Bench::new(link(kit, |config| config.confirm = Some(21)));
    bench.send(outgoing(kit, 1, 30_000));
    let one_by_one = |bench: &mut Bench, kind| {
        assert_eq!(bench.next(), Some((1, kind)));
        assert_eq!(bench.next(), None, "nothing before it is through");
        bench.confirm(Sent::Ok);
    };
    one_by_one(&mut bench, FrameKind::Open);
    one_by_one(&mut bench, FrameKind::Piece);
    let window = bench.tags().len();
    assert_eq!(window, 21);
    for _ in 0..5 {
        bench.confirm(Sent::Ok);
    }
    assert_eq!(bench.tags().len(), 5, "a place for each that is through");
    let mut closed = false;
    while let Some(&frame) = bench.frames.first() {
        assert!(
            !closed || bench.frames.len() == 1,
            "all are through before the end"
        );
        bench.frames.remove(0);
        bench.link.handle_sent(bench.now(), frame, Sent::Ok);
        while let Some((_, kind)) = bench.next() {
            closed |= kind == FrameKind::Close;
            assert!(kind != FrameKind::Close || bench.frames.len() == 1);
        }
        assert_eq!(
            bench.words().len(),
            usize::from(bench.frames.is_empty()),
            "sent only once all is through"
        );
    }
    assert!(closed);
}

#[test]
fn unconfirmed_frames_stop_a_pair_until_the_transport_speaks() {
    let mut pair = Pair::new(
        link(Kit::Loro, |config| config.confirm = Some(4)),
        link(Kit::Loro, |_| {}),
    );
    pair.left.confirms = Confirms::Never;
    pair.left
        .link
        .send(pair.clock.now(), Outgoing::new(vec![7; 20_000]))
        .unwrap();
    pair.run();
    assert_eq!((pair.left.sent.len(), pair.right.messages().len()), (1, 0));
    pair.left.confirms = Confirms::AtOnce;
    let first = pair.left.sent[0].0.frame;
    pair.left
        .link
        .handle_sent(pair.clock.now(), first, Sent::Ok);
    pair.run();
    assert_eq!(pair.right.messages(), [vec![7; 20_000]]);
}

#[test]
fn discarded_keys_are_dropped_until_their_last_frame_and_the_set_is_bounded() {
    let kit = Kit::Tywrap;
    let mut bench = Bench::new(link(kit, |config| config.limits.discarded = 3));
    bench.take(kit.piece(1, 0, 3, 3, b"x"));
    bench.link.discard(kit.key(1));
    assert_eq!((bench.link.open_transfers(), bench.link.memory()), (0, 0));
    assert_eq!(bench.take(kit.piece(1, 1, 3, 3, b"x")), Received::Ignored);
    assert_eq!(bench.link.discarded(), 1);
    assert_eq!(
        bench.take(kit.piece(1, 2, 3, 3, b"x")),
        Received::Ignored,
        "the last of them"
    );
    assert_eq!(bench.link.discarded(), 0);
    assert_eq!(
        bench.take(kit.piece(1, 0, 3, 3, b"x")),
        Received::Pending,
        "a new one"
    );
    for number in 10..20 {
        bench.link.discard(kit.key(number));
        bench.link.discard(kit.key(number));
    }
    assert_eq!(bench.link.discarded(), 3);
    assert_eq!(bench.take(kit.piece(19, 0, 3, 3, b"x")), Received::Ignored);
    assert_eq!(
        bench.take(kit.piece(16, 0, 3, 3, b"x")),
        Received::Pending,
        "the oldest are forgotten"
    );
    assert!(bench.events().is_empty());
}

#[test]
fn timers_have_names_and_end_what_the_rules_say() {
    let second = Duration::from_secs(1);
    for (kit, after, words) in [
        (Kit::Ahp, 30, &[][..]),
        (Kit::Cep22, 300, &["failed timed-out"]),
        (Kit::Loro, 10, &["failed timed-out"]),
    ] {
        let mut bench = Bench::new(link(kit, |_| {}));
        bench.take(kit.transfer(1, &message(100), 50).remove(0));
        while bench.next().is_some() {}
        let (due, why) = bench.link.poll_timeout().unwrap();
        assert_eq!(
            (due - bench.now(), why),
            (second * after, "unfinished transfer"),
            "{kit:?}"
        );
        bench.pass(second * after - Duration::from_millis(1));
        assert_eq!(
            (bench.link.open_transfers(), bench.words().len()),
            (1, 0),
            "{kit:?}"
        );
        bench.pass(Duration::from_millis(1));
        assert_eq!(
            (bench.link.open_transfers(), bench.link.poll_timeout()),
            (0, None),
            "{kit:?}"
        );
        assert_eq!(bench.words(), words, "{kit:?}");
        assert!(bench.link.closed().is_none());
    }
    // Idle time begins anew with each piece, age does not.
    let kit = Kit::Ahp;
    let mut bench = Bench::new(link(kit, |_| {}));
    let mut pieces = 0;
    while bench.link.open_transfers() == 1 || pieces == 0 {
        bench.take(kit.piece(1, pieces, 1000, 0, b"x"));
        bench.pass(second * 29);
        pieces += 1;
    }
    assert_eq!(pieces, 21, "20 times the idle time");
}

#[test]
fn a_transfer_that_is_slower_than_the_peer_allows_says_so() {
    let second = Duration::from_secs(1);
    let limits = |from_last| PeerLimits {
        timeout: Some(second * 30),
        timeout_from_last: from_last,
        ..PeerLimits::NONE
    };
    for (kit, from_last) in [
        (Kit::Ahp, true),
        (Kit::Ahp, false),
        (Kit::Loro, false),
        (Kit::Loro, true),
    ] {
        let mut bench = Bench::new(link(kit, |_| {}));
        bench.link.set_peer(PeerSupport::Yes(limits(from_last)));
        bench.send(outgoing(kit, 1, 50_000));
        // A frame each 20 s: too slow for a peer that counts from the first.
        for _ in 0..4 {
            bench.next();
            bench.pass(second * 20);
        }
        let ended = bench.link.closed().is_some() || send_error(&bench.events()).is_some();
        assert_eq!(ended, !from_last, "{kit:?}");
        if from_last {
            assert_eq!(
                bench.link.poll_timeout().map(|(_, why)| why),
                Some("peer's transfer timeout")
            );
            bench.pass(second * 30);
            if kit == Kit::Ahp {
                let closed = bench.link.closed().unwrap();
                assert_eq!(closed.code, 4413, "a transfer that AHP cannot take back");
                assert!(
                    closed
                        .reason
                        .contains("of 50000 bytes went out in the 30 s"),
                    "{closed}"
                );
            } else {
                assert!(matches!(
                    send_error(&bench.events()),
                    Some(SendError::TooSlow { size: 50_000, .. })
                ));
                assert!(bench.link.closed().is_none());
            }
        }
    }
}

#[test]
fn progress_is_told_both_ways_and_not_too_often() {
    for kit in Kit::CUTTING {
        let mut pair = Pair::new(
            link(kit, |config| config.progress = 10_000),
            link(kit, |config| config.progress = 25_000),
        );
        pair.left
            .link
            .send(pair.clock.now(), outgoing(kit, 1, 100_000))
            .unwrap();
        pair.run();
        let told = |events: &[Event], own: bool| -> Vec<(usize, Option<u64>)> {
            let progress = |event: &Event| match event {
                Event::Progress { of, done, total } => {
                    assert_eq!(matches!(of, ProgressOf::Outgoing(_)), own);
                    Some((*done, *total))
                }
                _ => None,
            };
            events.iter().filter_map(progress).collect()
        };
        let (sent, received) = (
            told(&pair.left.events, true),
            told(&pair.right.events, false),
        );
        assert!((7..=10).contains(&sent.len()), "{kit:?}: {sent:?}");
        assert!((3..=4).contains(&received.len()), "{kit:?}: {received:?}");
        assert!(sent.windows(2).all(|two| two[1].0 - two[0].0 >= 10_000));
        assert!(sent.iter().all(|(_, total)| *total == Some(100_000)));
        let total = (kit != Kit::Ahp).then_some(100_000);
        assert!(
            received.iter().all(|(_, known)| *known == total),
            "{kit:?}: AHP does not say how much there is"
        );
    }
}

#[test]
fn two_transfers_under_way_with_one_key_are_refused() {
    let kit = Kit::Cep22;
    let mut bench = Bench::new(link(kit, |_| {}));
    bench.send(outgoing(kit, 1, 5000));
    bench.next();
    bench.send(outgoing(kit, 1, 3000).in_lane(Lane(1)));
    bench.next();
    bench.next();
    assert!(matches!(
        send_error(&bench.events()),
        Some(SendError::KeyInUse { .. })
    ));
}

#[test]
fn sending_and_receiving_wires_may_differ() {
    // SSE: loro up, JSON down.
    let mut client = Link::new(
        Arc::new(Loro),
        Arc::new(Whole::TEXT),
        Config::new(Loro::rules()),
        Budget::unlimited(),
        [1; 32],
    );
    client.set_cap(Cap::piece(100));
    let server = Link::new(
        Arc::new(Whole::TEXT),
        Arc::new(Loro),
        Config::new(Loro::rules()),
        Budget::unlimited(),
        [2; 32],
    );
    let mut pair = Pair::new(client, server);
    let now = pair.clock.now();
    pair.left
        .link
        .send(now, Outgoing::new(vec![7; 1000]))
        .unwrap();
    pair.right
        .link
        .send(now, Outgoing::new(message(3000)))
        .unwrap();
    pair.run();
    assert_eq!(pair.right.messages(), [vec![7; 1000]]);
    assert_eq!(pair.left.messages(), [message(3000)]);
}

#[test]
fn a_bridge_drops_what_is_unfinished_when_a_new_burst_begins() {
    let kit = Kit::Bridge;
    let mut bench = Bench::new(link(kit, |_| {}));
    bench.take(kit.piece(1, 0, 3, 3, b"x"));
    bench.take(kit.piece(1, 1, 3, 3, b"x"));
    assert_eq!(bench.take(kit.piece(2, 0, 3, 3, b"x")), Received::Pending);
    assert_eq!(
        (bench.words(), bench.link.open_transfers()),
        (vec!["failed superseded".to_owned()], 1)
    );
    bench.take(kit.whole(MESSAGE));
    assert_eq!((bench.words().len(), bench.link.open_transfers()), (2, 0));
    assert_eq!(kit.key(7), Stream::Request.key(7));
}
