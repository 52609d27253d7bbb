//! A closed link stays closed; a fault's scope is data (7).

use std::time::Duration;

use breakbulk_link::{
    Cancelled, Cap, Event, Frame, FrameKind, Lane, Outgoing, PeerLimits, PeerSupport, Received,
    Scope, SendError, Sent,
};
use bytes::Bytes;

use crate::common::Kit;
use crate::{Bench, MESSAGE, link, message, outgoing};

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
        bench.link.replace(planning, Some(Outgoing::new(MESSAGE)));
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

// WIRE-1
#[test]
fn invariant_7_the_general_form_has_the_last_word() {
    // A frame that begins exactly as the wire writes it, and whose further members change its meaning.
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
    // Even if the first of the two ids is discarded.
    bench.link.discard(kit.key(1));
    assert!(matches!(bench.take(lookalike(1, "2")), Received::Done(_)));
    assert_eq!(bench.link.discarded(), 1, "its last frame has not come by");
    bench.link.discard(kit.key(2));
    assert_eq!(bench.take(lookalike(1, "2")), Received::Ignored);
    assert_eq!(bench.link.discarded(), 1);
    // The first token in the frame is unknown, the second one, which counts, is known.
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

// CEP22-4
#[test]
fn a_bad_start_is_answered_only_where_no_transfer_is_under_way() {
    let kit = Kit::Cep22;
    // A `start` that declares no size and no digest.
    let bad = || {
        let start = kit.special(1, 1, "start");
        start.set("completionMode", "\"render\"").frame()
    };
    let kinds = |bench: &mut Bench| -> Vec<FrameKind> {
        let next = std::iter::from_fn(|| bench.next());
        next.map(|(_, kind)| kind).collect()
    };
    let mut first = Bench::new(link(kit, |_| {}));
    first.take(bad());
    assert_eq!(first.words(), ["failed bad-opening"]);
    assert_eq!(kinds(&mut first), [FrameKind::Abort]);

    let mut second = Bench::new(link(kit, |_| {}));
    let mut frames = kit.transfer(1, &message(200), 50);
    frames.insert(2, bad());
    for frame in frames {
        second.take(frame);
    }
    assert_eq!(second.words(), ["fault reopened", "message 200"]);
    assert!(!kinds(&mut second).contains(&FrameKind::Abort));
}

#[test]
fn a_fault_that_closes_the_link_is_told_once_by_its_close() {
    for kit in Kit::ALL {
        let mut bench = Bench::new(link(kit, |config| {
            config.rules.scopes.frame = Scope::Link;
        }));
        let garbage = match kit.whole(MESSAGE) {
            Frame::Text(bytes) => Frame::Binary(bytes),
            // On a binary wire, a text frame would be a control message of its transport, and not a fault.
            Frame::Binary(_) => Frame::Binary(Bytes::from_static(&[0xff])),
        };
        let Received::Fault(fault) = bench.take(garbage) else {
            panic!("{kit:?}: no fault")
        };
        let words = fault.kind.to_string();
        let events = bench.events();
        let [Event::Closed(closed)] = &events[..] else {
            panic!("{kit:?}: {events:?}")
        };
        assert!(closed.reason.contains(&words), "{kit:?}: {closed}, {words}");
    }
}
