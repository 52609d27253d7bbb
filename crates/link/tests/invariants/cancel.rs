//! Transfers that end early: cancelled, not accepted, aborted, discarded, superseded.

use std::time::Duration;

use breakbulk_link::{
    Cancelled, Event, FrameKind, PeerSupport, Received, SendError, Sent, Unmatched,
};
use breakbulk_testkit::links::Clock;
use breakbulk_wire::Stream;

use crate::common::Kit;
use crate::{Bench, MESSAGE, link, message, outgoing, send_error};

#[test]
fn cancelling_follows_the_rule_of_the_format() {
    // Cancelled before the first frame, after it, in the middle, and when all are sent but not confirmed.
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
    assert_eq!(bench.next(), None, "its place is kept");
    let Event::SendFailed { id, .. } = events[0] else {
        panic!("{events:?}")
    };
    assert!(bench.link.replace(id, None));
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
    let Some(Event::SendFailed { id, .. }) = events.first() else {
        panic!("{events:?}")
    };
    assert!(bench.link.replace(*id, None));
    assert_eq!(
        bench.next(),
        Some((2, FrameKind::Whole)),
        "an abort is not answered"
    );
}

// WIRE-8
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
    let told = bench.events();
    assert!(
        matches!(&told[..], [Event::Discarded(key)] if *key == kit.key(1)),
        "only the one whose last frame came: {told:?}"
    );
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

#[test]
fn a_transfer_of_the_peer_can_be_aborted_and_late_frames_are_reported_with_their_key() {
    for (kit, told) in [
        (Kit::Cep22, vec![FrameKind::Accept, FrameKind::Abort]),
        (Kit::Loro, vec![]),
    ] {
        let mut bench = Bench::new(link(kit, |_| {}));
        let frames = kit.transfer(1, &message(100), 40);
        assert!(!bench.link.abort(&kit.key(1), "unknown"), "{kit:?}");
        for frame in &frames[..2] {
            assert_eq!(bench.take(frame.clone()), Received::Pending, "{kit:?}");
        }
        assert!(bench.link.abort(&kit.key(1), "not now"), "{kit:?}");
        assert_eq!(bench.link.open_transfers(), 0, "{kit:?}");
        let kinds = std::iter::from_fn(|| bench.next().map(|(_, kind)| kind));
        assert_eq!(kinds.collect::<Vec<_>>(), told, "{kit:?}");
        assert_eq!((bench.words(), bench.link.memory()), (vec![], 0), "{kit:?}");
        let unmatched = |abort: Option<&str>| {
            Received::Unmatched(Unmatched {
                key: kit.key(1),
                abort: abort.map(str::to_owned),
                ended: None,
            })
        };
        for frame in &frames[2..] {
            assert_eq!(bench.take(frame.clone()), unmatched(None), "{kit:?}");
        }
        if kit == Kit::Cep22 {
            let abort = kit.special(1, 9, "abort").set("reason", "\"why\"").frame();
            assert_eq!(bench.take(abort), unmatched(Some("why")));
        }
    }
}

/// The real implementations write an abort with `progress` or without.
// CEP22-5
#[test]
fn an_abort_needs_no_number() {
    let kit = Kit::Cep22;
    let numbered = || kit.special(1, 9, "abort");
    for abort in [numbered(), numbered().without("progress")] {
        let mut bench = Bench::new(link(kit, |_| {}));
        bench.send(outgoing(kit, 1, 3000));
        assert_eq!(bench.next(), Some((1, FrameKind::Open)));
        bench.take(abort.frame());
        let events = bench.events();
        assert!(
            matches!(send_error(&events), Some(SendError::Aborted { .. })),
            "{}: {events:?}",
            abort.text()
        );
    }
}
