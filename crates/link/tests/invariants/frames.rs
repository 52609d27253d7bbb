//! How frames are made: one at a time (3), none over the cap (5), from the inputs alone (6).

use std::sync::Arc;

use breakbulk_link::{
    Budget, Cancelled, Cap, Config, FrameKind, Lane, Link, Outgoing, PeerLimits, PeerSupport,
    Received,
};
use breakbulk_testkit::links::Pair;
use breakbulk_wire::{Loro, Whole};
use bytes::Bytes;

use crate::common::Kit;
use crate::{Bench, link, message, outgoing};

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
        // The link shared the caller's bytes instead of copying them, and has released them by now.
        assert!(bytes.is_unique(), "{kit:?}");
    }
}

#[test]
fn invariant_3_a_message_is_planned_when_its_turn_comes() {
    // A cap that shrinks while a message waits applies to it, even if it was planned on another
    // thread before.
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

    // The plan of a message that was cancelled in the meantime is dropped.
    let id = bench.send(outgoing(kit, 3, 5000).in_lane(Lane(2)));
    bench.tags();
    let job = bench.link.poll_plan().unwrap();
    assert_eq!(bench.link.cancel(id), Cancelled::Unsent);
    bench.link.handle_planned(job.run());
    assert_eq!(bench.next(), None);
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

// Other properties than the invariants.

#[test]
fn sending_and_receiving_wires_may_differ() {
    // As over SSE: the client sends loro frames, the server sends JSON text.
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
