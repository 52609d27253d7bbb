//! Whatever the line and the host do: what the client applied is what the host published, each
//! action once and in order. Everything is 1:100 of full size and runs on a clock that jumps.
//!
//! `BREAKBULK_FAULT_SEEDS=2000` runs more seeds, `BREAKBULK_FAULT_SEED=17` that one alone.

#![cfg(all(feature = "ahp-client", feature = "redb"))]
#![allow(clippy::unwrap_used)]

mod follow;
mod path;
mod random;
mod session;
mod tape;

use std::time::Duration;

use breakbulk_ahp::Lanes;

use follow::{Outcome, ours, real};
use random::Random;
use session::Plan;

/// Parts that run side by side: (which, of how many).
const PARTS: u64 = 4;

fn check(plan: Plan, outcome: &Outcome) {
    assert_eq!(outcome.applied, outcome.published, "{plan:?} {outcome:?}");
}

fn cut_after_every_frame(part: u64) {
    let plan = Plan::new(7);
    let quiet = ours(plan);
    check(plan, &quiet);
    assert_eq!(quiet.lines, 1);
    assert!(quiet.frames > 300, "{quiet:?}");
    for cut in (1..=quiet.frames).filter(|cut| cut % PARTS == part) {
        let plan = Plan {
            first_cut: Some(cut),
            ..plan
        };
        let outcome = ours(plan);
        check(plan, &outcome);
        // The last frame may be the very end.
        assert!(
            outcome.lines == 2 || cut + 2 >= quiet.frames,
            "{cut}: {outcome:?}"
        );
    }
    println!("cut after each of {} frames, part {part}", quiet.frames);
}

#[test]
fn cut_after_every_frame_0() {
    cut_after_every_frame(0);
}

#[test]
fn cut_after_every_frame_1() {
    cut_after_every_frame(1);
}

#[test]
fn cut_after_every_frame_2() {
    cut_after_every_frame(2);
}

#[test]
fn cut_after_every_frame_3() {
    cut_after_every_frame(3);
}

/// Cuts, delay, slow readers, kills of the host and a short log, as the seed has it.
fn rough(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    Plan {
        cuts: true,
        delay: random.up_to(Duration::from_millis(30)),
        slow: random.up_to(Duration::from_millis(200)),
        restarts: random.below(4),
        kept: if random.chance(30) { 20 } else { 100_000 },
        ..Plan::new(seed)
    }
}

fn seeds(part: u64) -> impl Iterator<Item = u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let one: Option<u64> = number("BREAKBULK_FAULT_SEED");
    let count = number("BREAKBULK_FAULT_SEEDS").unwrap_or(200);
    let range = one.map_or(0..count, |one| one..one + 1);
    range.filter(move |seed| one.is_some() || seed % 2 == part)
}

fn random_seeds(part: u64) {
    let (mut lines, mut snapshots, mut count) = (0, 0, 0);
    for seed in seeds(part) {
        let plan = rough(seed);
        let outcome = ours(plan);
        check(plan, &outcome);
        lines += outcome.lines;
        snapshots += outcome.snapshots;
        count += 1;
    }
    println!("{count} seeds: {lines} lines, {snapshots} snapshots");
    // Otherwise nothing was tried.
    assert!(lines >= 3 * count && snapshots > count);
}

#[test]
fn random_seeds_0() {
    random_seeds(0);
}

#[test]
fn random_seeds_1() {
    random_seeds(1);
}

/// The same trouble without what protects from it.
fn bare(seed: u64, lanes: Lanes, defends: bool) -> Plan {
    Plan {
        cuts: true,
        lanes,
        defends,
        delay: Duration::from_millis(5),
        ..Plan::new(seed)
    }
}

const FEW: std::ops::Range<u64> = 0..12;

#[test]
fn without_lanes_and_defence_actions_are_lost() {
    let lost = FEW
        .map(|seed| ours(bare(seed, Lanes::Each, false)))
        .filter(|outcome| outcome.applied.count < outcome.published.count)
        .count();
    println!("actions were lost under {lost} of {} seeds", FEW.end);
    assert!(lost > 0, "this suite cannot fail");
}

#[test]
fn without_lanes_the_defence_loses_nothing() {
    let mut disordered = 0;
    for seed in FEW {
        let plan = bare(seed, Lanes::Each, true);
        let outcome = ours(plan);
        assert_eq!(
            outcome.applied.unordered(),
            outcome.published.unordered(),
            "{plan:?} {outcome:?}"
        );
        disordered += u64::from(outcome.applied.chain != outcome.published.chain);
    }
    println!("in another order under {disordered} of {} seeds", FEW.end);
    assert!(disordered > 0, "nothing overtook anything");
}

#[test]
fn the_real_client_without_lanes_and_defence_loses_actions() {
    let stateless = |plan| Plan {
        stateless: true,
        ..plan
    };
    let lost = FEW
        .map(|seed| real(stateless(bare(seed, Lanes::Each, false))))
        .filter(|outcome| outcome.applied.count < outcome.published.count)
        .count();
    println!("actions were lost under {lost} of {} seeds", FEW.end);
    assert!(lost > 0, "this suite cannot fail");
}

#[test]
fn the_real_client_loses_nothing_with_either() {
    for (lanes, defends) in [
        (Lanes::Each, true),
        (Lanes::ByMeaning, false),
        (Lanes::ByMeaning, true),
    ] {
        for seed in FEW {
            let plan = Plan {
                stateless: true,
                ..bare(seed, lanes, defends)
            };
            let outcome = real(plan);
            assert_eq!(
                outcome.applied.unordered(),
                outcome.published.unordered(),
                "{plan:?} {outcome:?}"
            );
            if lanes == Lanes::ByMeaning {
                check(plan, &outcome);
            }
        }
    }
}
