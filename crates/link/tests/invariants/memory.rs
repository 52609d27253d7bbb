//! Memory stays charged until it is released (2), and a slow reader delays only its own sender (9).

use breakbulk_link::{Budget, Config, FaultKind, Frame, FrameKind, Link, Received};
use breakbulk_wire::Ahp;

use crate::common::Kit;
use crate::{Bench, MESSAGE, link, message, outgoing};

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
        // A message stays charged even after its link was dropped.
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
            // The oldest transfer was evicted.
            let late = bench.take(kit.piece(1, 0, 2, 100, b"x"));
            assert!(matches!(late, Received::Unmatched(_)), "{late:?}");
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
    // The only transfer that is left is evicted itself, and that is reported once.
    assert!(matches!(
        bench.take(kit.piece(2, 2, 10, 5000, &[0; 400])),
        Received::Fault(_)
    ));
    assert_eq!(
        (bench.words(), bench.link.pending_bytes()),
        (vec!["failed evicted".to_owned()], 0)
    );
}

// WIRE-7
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
    // If the format can only close the link, the reason says that this side lacks memory.
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
    // Moving a stashed piece into the buffer takes memory for both; if that fails, all of it is released.
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

// WIRE-5
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
