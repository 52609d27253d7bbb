//! The transport's reports on frames: nothing is retried by itself (8), and some frames wait for a report.

use std::time::Duration;

use breakbulk_link::{Cap, FrameKind, Outgoing, PeerLimits, PeerSupport, SendError, Sent};
use breakbulk_testkit::links::{Confirms, Pair};

use crate::common::Kit;
use crate::{Bench, link, outgoing, send_error};

// 8. Nothing is retried by itself.

// AHP-3
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
                if kit == Kit::Ahp {
                    // AHP cannot abort a group, and the receiver would not notice the gap once the next
                    // message came.
                    assert_eq!(bench.link.closed().map(|closed| closed.code), Some(4413));
                    continue;
                }
                match (send_error(&events), error) {
                    (Some(SendError::Refused { size }), "refused") => assert!(*size <= 1000),
                    (Some(SendError::Lost), "lost") => {}
                    other => panic!("{kit:?}: {other:?}"),
                }
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
        (None, vec!["send failed 1".to_owned()])
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

// Other properties than the invariants.

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
