//! Timeouts, and the progress reports of large transfers.

use std::time::Duration;

use breakbulk_link::{
    Event, FaultKind, PeerLimits, PeerSupport, ProgressOf, Received, SendError, Unmatched,
};
use breakbulk_testkit::links::Pair;

use crate::common::Kit;
use crate::{Bench, link, message, outgoing, send_error};

#[test]
fn timers_have_names_and_end_what_the_rules_say() {
    let second = Duration::from_secs(1);
    for (kit, after, words) in [
        (Kit::Ahp, 30, &["failed timed-out"][..]),
        (Kit::Cep22, 300, &["failed timed-out"]),
        (Kit::Loro, 30, &["failed timed-out"]),
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
    // The idle time starts again with each piece, the age does not.
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

// LORO-22
#[test]
fn a_slow_transfer_arrives_and_one_that_only_drips_is_given_up() {
    let kit = Kit::Loro;
    let large = message(24 << 20);
    // 24 MiB in pieces of 100 KiB over 10 and 1.5 Mbit/s, and in pieces of 1 MiB, one every 29 s.
    for (size, piece, pause) in [
        (24 << 20, 100 << 10, Duration::from_millis(82)),
        (24 << 20, 100 << 10, Duration::from_millis(546)),
        (24 << 20, 1 << 20, Duration::from_secs(29)),
    ] {
        let mut bench = Bench::new(link(kit, |_| {}));
        let mut last = Received::Pending;
        for frame in kit.transfer(1, &large[..size], piece) {
            assert_eq!(last, Received::Pending, "{pause:?}");
            bench.pass(pause);
            last = bench.take(frame);
        }
        assert!(matches!(last, Received::Done(_)), "{pause:?}: {last:?}");
    }
    // One byte every 29 s: the transfer is never idle for too long, and never finishes.
    let mut bench = Bench::new(link(kit, |_| {}));
    let pieces = kit.transfer(1, &large[..1000], 1);
    let mut taken = pieces.into_iter();
    bench.take(taken.next().unwrap());
    while bench.link.open_transfers() == 1 {
        bench.take(taken.next().unwrap());
        bench.pass(Duration::from_secs(29));
    }
    let ended = FaultKind::TimedOut {
        timer: "age",
        received: 3,
        declared: Some(1000),
    };
    assert_eq!(bench.words(), ["failed timed-out"]);
    // The sender of the remaining pieces learns that the transfer has ended, and why.
    let late = bench.take(taken.next().unwrap());
    let unmatched = Unmatched {
        key: kit.key(1),
        abort: None,
        ended: Some(ended),
    };
    assert_eq!(late, Received::Unmatched(unmatched));
}

// AHP-4
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
        // One frame every 20 s: too slow for a peer whose timeout counts from the first frame.
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
                assert!(matches!(
                    &bench.events()[..],
                    [
                        ..,
                        Event::GaveUp {
                            error: SendError::TooSlow { size: 50_000, .. },
                            ..
                        },
                        Event::Closed(_)
                    ]
                ));
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
