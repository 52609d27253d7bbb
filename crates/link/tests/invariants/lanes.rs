//! Order in a lane holds; lanes are fair (4).

use std::time::Duration;

use breakbulk_link::{Lane, Outgoing, PeerLimits, PeerSupport, SendError};
use breakbulk_testkit::links::{Pair, Weather};
use bytes::Bytes;

use crate::common::Kit;
use crate::{Bench, link, message, outgoing, send_error};

/// The wires with pieces that may interleave frames of several messages: all but tywrap.
const MIXING: [Kit; 3] = [Kit::Ahp, Kit::Cep22, Kit::Loro];

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
            // Four small messages at once, two in each of two lanes.
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

/// With `small_first` off, messages begin in the order in which they were sent. A receiver that remembers
/// which transfers were open when a message came needs that: it could not know that a small message has
/// overtaken a large one which has not begun.
// AHP-16
#[test]
fn invariant_4_messages_begin_in_their_order_where_small_ones_may_not_go_first() {
    for kit in MIXING {
        for (small_first, expected) in [(true, [0, 9, 1, 2]), (false, [0, 1, 2, 9])] {
            let mut bench = Bench::new(link(kit, |config| config.small_first = small_first));
            for lane in 0..3 {
                bench.send(outgoing(kit, lane, 100_000).in_lane(Lane(lane as u32)));
            }
            bench.send(outgoing(kit, 9, 100).in_lane(Lane(9)));
            let order: Vec<u64> = (0..4).map(|_| bench.next().unwrap().0).collect();
            assert_eq!(order, expected, "{kit:?}, small first: {small_first}");
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
        // The first transfer is still being sent when the peer allows more of them.
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

// Other properties than the invariants.

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
