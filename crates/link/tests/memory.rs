//! Counts by the allocator what a hostile peer can make a link allocate: never more than the configuration
//! allows, whatever the peer sends.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
mod counting;

use std::cell::Cell;
use std::time::Duration;

use breakbulk_link::{Budget, Config, Frame, Link, Random, Received};
use breakbulk_testkit::links::Clock;
use common::Kit;
use counting::held;

const MEMORY: usize = 1 << 20;
const MESSAGE: usize = 512 << 10;
/// The memory of tables that exist whatever the peer does.
const TABLES: usize = 64 << 10;

fn allowed(limit: usize, links: usize) -> isize {
    (limit + limit / 20 + links * TABLES) as isize
}

/// A link without a limit on pieces and transfers: only its memory is limited.
fn link(kit: Kit, budget: Budget) -> Link {
    let mut config = Config::new(kit.rules());
    config.limits.frame = 64 << 10;
    config.limits.message = MESSAGE;
    config.limits.pieces = u64::MAX;
    config.limits.transfers = usize::MAX;
    config.limits.memory = MEMORY;
    // Nothing times out: a timeout would only release memory.
    (config.rules.timeouts.idle, config.rules.timeouts.age) = (Some(Duration::MAX / 4), None);
    Link::new(kit.wire(), kit.wire(), config, budget, [3; 32])
}

/// Makes the attacker's next frame, which may depend on what the link did with the last one.
type Attacker = Box<dyn FnMut(&Received) -> Frame>;

/// Opens transfer after transfer and sends each one piece.
fn many_transfers(kit: Kit, index: u64, data: &'static [u8]) -> Attacker {
    let (mut number, mut opened) = (0, false);
    Box::new(move |_| {
        if !opened && let Some(open) = kit.open(number, 1000, 1000, &[0; 32]) {
            opened = true;
            return open;
        }
        opened = false;
        number += 1;
        kit.piece(number - 1, index, 1000, 1000, data)
    })
}

/// Sends a transfer pieces with gaps until it is refused, then goes on with the next.
fn gaps(kit: Kit, step: u64, data: &'static [u8]) -> Attacker {
    let count = 60_000;
    let (mut number, mut index, mut opened) = (0, step - 1, false);
    Box::new(move |last| {
        if matches!(last, Received::Fault(_)) || index + step >= count {
            (number, index, opened) = (number + 1, step - 1, false);
        }
        if !opened {
            opened = true;
            if let Some(open) = kit.open(number, count, MESSAGE as u64, &[0; 32]) {
                return open;
            }
        }
        index += step;
        kit.piece(number, index - step, count, MESSAGE as u64, data)
    })
}

/// Random frames of every kind, with long keys.
fn anything(kit: Kit, seed: u64) -> Attacker {
    let mut random = Random::from_number(seed);
    let garbage = vec![b'x'; 20_000];
    let length = if kit == Kit::Cep22 { 1000 } else { 100 };
    Box::new(move |_| {
        let number = random.below(3000);
        // Numbers of every magnitude are equally likely, so that small ones are as frequent as large ones.
        let mut below_power = |power| {
            let bound = 1 << random.below(power);
            random.below(bound)
        };
        let (index, size, count) = (below_power(12), below_power(15), 60_000);
        let data = &garbage[..size as usize];
        let long_key = format!("\"{number:0length$}\"");
        let fields = |fields: common::Fields| match (kit, number % 2) {
            (Kit::Ahp, 1) => fields.set("groupId", &long_key).frame(),
            (Kit::Cep22, 1) => fields.set("progressToken", &long_key).frame(),
            _ => fields.frame(),
        };
        match (kit, random.below(12)) {
            (_, 0) => kit.whole(&data[..data.len().min(2000)]),
            (Kit::Loro, 1) => Frame::Text(vec![b'p'; 200].into()),
            (Kit::Loro, 2) => Frame::Binary(vec![9; 20].into()),
            (Kit::Loro, 3..6) => kit.open(number, count, MESSAGE as u64, &[0; 32]).unwrap(),
            (Kit::Loro, _) => kit.piece(number, index, count, MESSAGE as u64, data),
            (Kit::Cep22, 1..4) => fields(kit.open_fields(number, count, MESSAGE as u64, &[0; 32])),
            (Kit::Cep22, 4) => fields(
                kit.special(number, 9, "abort")
                    .set("reason", &format!("\"{}\"", "r".repeat(400))),
            ),
            (Kit::Cep22, 5) => fields(kit.special(number, 9, "nonsense")),
            (Kit::Cep22, _) => fields(kit.piece_fields(number, index % 20, count, 0, data)),
            // AHP has strict order, and the first fault ends the link.
            (Kit::Ahp, _) => {
                fields(kit.piece_fields(number + 3000 * random.below(1000), 0, count, 0, data))
            }
            (_, 1) => fields(
                kit.piece_fields(number, index, count, MESSAGE as u64, data)
                    .set("data", "7"),
            ),
            _ => fields(kit.piece_fields(number, index, count, MESSAGE as u64, data)),
        }
    })
}

fn attackers(kit: Kit) -> Vec<(&'static str, Attacker)> {
    // An empty piece does not exist on loro.
    let empty: &'static [u8] = if kit == Kit::Loro { b"x" } else { b"" };
    vec![
        (
            "many transfers, empty pieces",
            many_transfers(kit, 0, empty),
        ),
        (
            "many transfers, one byte each",
            many_transfers(kit, 0, b"x"),
        ),
        (
            "many transfers, an early byte each",
            many_transfers(kit, 1, b"x"),
        ),
        ("empty pieces in order", gaps(kit, 1, empty)),
        ("one-byte pieces in order", gaps(kit, 1, b"x")),
        ("empty pieces with gaps", gaps(kit, 2, empty)),
        ("one-byte pieces with gaps", gaps(kit, 2, b"x")),
        ("3,000-byte pieces with gaps", gaps(kit, 7, &[b'x'; 3000])),
        ("anything", anything(kit, 1)),
        ("anything else", anything(kit, 2)),
    ]
}

/// Passes the attacker's frames to a link. The application takes events and frames only if `listens` is set.
fn attack(
    link: &mut Link,
    clock: &Clock,
    attacker: &mut Attacker,
    listens: bool,
    frames: usize,
    check: impl Fn(isize),
) {
    let mut last = Received::Pending;
    for _ in 0..frames {
        let frame = attacker(&last);
        last = link.handle_frame(clock.now(), frame);
        if listens {
            while link.poll_event().is_some() {}
            while link.poll_transmit(clock.now(), &mut Vec::new()).is_some() {}
        }
        check(held());
        if link.closed().is_some() {
            return;
        }
    }
}

#[test]
fn no_peer_takes_a_link_over_its_memory() {
    for kit in Kit::CUTTING {
        for listens in [true, false] {
            for (name, mut attacker) in attackers(kit) {
                // If nobody takes events only the queue of events grows differently, which attacks by pieces
                // hardly use.
                if !listens && name.contains("pieces") {
                    continue;
                }
                let clock = Clock::new();
                let baseline = held();
                let most = Cell::new(0);
                let mut link = link(kit, Budget::unlimited());
                attack(&mut link, &clock, &mut attacker, listens, 12_000, |held| {
                    most.set(most.get().max(held - baseline))
                });
                let (most, charged) = (most.get(), link.memory());
                assert!(
                    most <= allowed(MEMORY, 1),
                    "{kit:?}, {name}, listens: {listens}: {most} bytes were held where {MEMORY} are allowed ({charged} charged, {} open)",
                    link.open_transfers(),
                );
                let real = held() - baseline;
                assert!(
                    real <= charged as isize + charged as isize / 20 + TABLES as isize,
                    "{kit:?}, {name}: {real} held, {charged} charged"
                );
                drop(link);
                drop(attacker);
                assert!(
                    held() - baseline <= 0,
                    "{kit:?}, {name}: something stays behind"
                );
            }
        }
    }
}

#[test]
fn no_peer_takes_the_process_over_its_budget() {
    for kit in Kit::CUTTING {
        for at in 0..attackers(kit).len() {
            let clock = Clock::new();
            let limit = 1 << 20;
            let baseline = held();
            let budget = Budget::new(limit);
            let mut links = [link(kit, budget.clone()), link(kit, budget.clone())];
            let mut sides = [
                attackers(kit).swap_remove(at),
                attackers(kit).swap_remove(at),
            ];
            for round in 0..24 {
                let (link, (name, attacker)) = (&mut links[round % 2], &mut sides[round % 2]);
                attack(link, &clock, attacker, true, 300, |held| {
                    let most = held - baseline;
                    assert!(
                        most <= allowed(limit, 2),
                        "{kit:?}, {name}: {most} bytes where {limit} are allowed"
                    );
                });
                assert!(budget.used() <= limit);
            }
            drop(links);
            assert_eq!(budget.used(), 0);
        }
    }
}

#[test]
fn a_flood_leaves_nothing_behind_once_it_is_over() {
    for kit in [Kit::Tywrap, Kit::Loro] {
        let clock = Clock::new();
        let baseline = held();
        let mut link = link(kit, Budget::unlimited());
        let mut flood = many_transfers(kit, 0, b"x");
        attack(&mut link, &clock, &mut flood, false, 8_000, |_| {});
        let mut number = 0;
        while link.open_transfers() > 0 {
            link.discard(kit.key(number));
            number += 1;
        }
        while link.poll_event().is_some() {}
        // The set of discarded keys is left: the application filled it, and configured its size.
        let left = held() - baseline;
        assert!(left <= (4096 * 300 + TABLES) as isize, "{kit:?}: {left}");
        assert_eq!(link.memory(), 0);
    }
}

// WIRE-3
#[test]
fn receiving_in_order_costs_the_message_and_one_frame() {
    for kit in Kit::CUTTING {
        let clock = Clock::new();
        let message = [
            br#"{"jsonrpc":"2.0","method":"m","params":[""#,
            vec![b'x'; 400_000].as_slice(),
            b"\"]}",
        ]
        .concat();
        let frames = kit.transfer(1, &message, 8000);
        let baseline = held();
        let mut link = link(kit, Budget::unlimited());
        let mut most = 0;
        for frame in frames {
            let size = frame.bytes().len() as isize;
            link.handle_frame(clock.now(), frame);
            // The test owned the frame, which is freed by now: its size is added.
            most = most.max(held() - baseline + size);
        }
        let allowed = (message.len() + message.len() / 4 + TABLES) as isize;
        assert!(
            most <= allowed,
            "{kit:?}: {most} where {allowed} are allowed"
        );
    }
}
