//! Nothing is lost silently (1).

use std::sync::Arc;

use breakbulk_link::{
    Budget, Cancelled, Cap, Config, Event, FrameKind, Key, Lane, Link, Outgoing, PeerLimits,
    PeerSupport, SendError, TransferId, Unit, Wire,
};
use breakbulk_wire::{Ahp, Cep22, Loro, Tywrap, Whole};
use bytes::Bytes;

use crate::common::Kit;
use crate::{Bench, link, message, outgoing};

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
            "a frame cap of 100 bytes leaves no room for data; it must be at least 145 bytes",
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
            "a frame cap of 16 bytes leaves no room for data; it must be at least 17 bytes",
        ),
        (
            Arc::new(Tywrap::default()),
            peer(1000, usize::MAX),
            Cap::piece(1000),
            Outgoing::new(message(1001)).with_key(Key::new(b"seven")),
            "the key must be request:ID or response:ID, with an integer ID within ±(2^53 − 1)",
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
            limit: 4,
            unit: Unit::Messages,
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

    // The limit in bytes: a message that is larger than the limit is accepted only into an empty queue.
    bench.send(outgoing(Kit::Ahp, 5, 5000));
    let rejected = bench
        .link
        .send(bench.now(), outgoing(Kit::Ahp, 6, 60))
        .unwrap_err();
    assert_eq!(
        rejected.error,
        SendError::QueueFull {
            queued: 5000,
            limit: 1000,
            unit: Unit::Bytes,
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
        assert_eq!(bench.words(), ["sent 0", "send failed 1", "sent 3"]);
        let given_up = replacement.is_none();
        bench.link.replace(
            failed,
            replacement.map(|bytes| Outgoing::new(bytes).tagged(1)),
        );
        assert_eq!(bench.tags(), if given_up { vec![2] } else { vec![1, 2] });
        assert_eq!(bench.words().last().unwrap(), "sent 2");
        let late = Outgoing::new(message(70));
        assert!(!bench.link.replace(failed, Some(late)));
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
