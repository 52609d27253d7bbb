//! Whatever happens to the connection and the host, the client applies what the host published, each
//! action once and in order. Everything runs on a simulated clock.
//!
//! Most sessions are of the machines alone, at 1:1000 of full size; some run over the endpoints on tokio,
//! at 1:100. `BREAKBULK_FAULT_SEEDS=100000` runs that many seeds, `BREAKBULK_FAULT_SEED=17` only that
//! one.

#![cfg(all(feature = "ahp-client", feature = "redb"))]
#![allow(clippy::unwrap_used)]

mod follow;
mod line;
mod machines;
mod path;
mod random;
mod session;
mod tape;

use std::time::Duration;

use breakbulk_ahp::testing::Lanes;

use follow::{Outcome, ours, real};
use machines::machines;
use random::Random;
use session::Plan;

/// The number of tests that share the cuts of one session, so that they run in parallel.
const PARTS: u64 = 4;

/// Seeds of sessions of the machines, unless the environment says otherwise.
const SEEDS: u64 = 20_000;

/// Sessions of the machines that are cut after every frame.
const CUT_SEEDS: u64 = 20;

/// Seeds of sessions over the endpoints.
const ENDPOINT_SEEDS: std::ops::Range<u64> = 0..16;

fn check(plan: Plan, outcome: &Outcome) {
    assert_eq!(outcome.applied, outcome.published, "{plan:?} {outcome:?}");
}

/// Repeats a session without faults, cutting the first connection after each of its frames in turn.
fn cut_after_every_frame(plan: Plan, run: fn(Plan) -> Outcome, of: u64, part: u64) {
    let quiet = run(plan);
    check(plan, &quiet);
    assert_eq!(quiet.lines, 1);
    assert!(quiet.frames > plan.actions, "{quiet:?}");
    for cut in (1..=quiet.frames).filter(|cut| cut % of == part) {
        let plan = Plan {
            first_cut: Some(cut),
            ..plan
        };
        let outcome = run(plan);
        check(plan, &outcome);
        // A cut after the last frames may come when the session is over already.
        assert!(
            outcome.lines == 2 || cut + 2 >= quiet.frames,
            "{cut}: {outcome:?}"
        );
    }
    println!(
        "cut after each of {} frames, part {part} of {of}",
        quiet.frames
    );
}

#[test]
fn cut_after_every_frame_of_the_machines() {
    for seed in 0..CUT_SEEDS {
        cut_after_every_frame(Plan::small(seed), machines, 1, 0);
    }
}

#[test]
fn cut_after_every_frame_0() {
    cut_after_every_frame(Plan::new(7), ours, PARTS, 0);
}

#[test]
fn cut_after_every_frame_1() {
    cut_after_every_frame(Plan::new(7), ours, PARTS, 1);
}

#[test]
fn cut_after_every_frame_2() {
    cut_after_every_frame(Plan::new(7), ours, PARTS, 2);
}

#[test]
fn cut_after_every_frame_3() {
    cut_after_every_frame(Plan::new(7), ours, PARTS, 3);
}

/// Cuts, delays, slow readers, kills of the host and a short log, as the seed decides.
fn rough(plan: Plan) -> Plan {
    let mut random = Random::new(plan.seed);
    Plan {
        cuts: true,
        delay: random.up_to(Duration::from_millis(30)),
        slow: random.up_to(Duration::from_millis(200)),
        restarts: random.below(4),
        kept: if random.chance(30) { 20 } else { 100_000 },
        ..plan
    }
}

fn seeds(part: u64) -> impl Iterator<Item = u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let one: Option<u64> = number("BREAKBULK_FAULT_SEED");
    let count = number("BREAKBULK_FAULT_SEEDS").unwrap_or(SEEDS);
    let range = one.map_or(0..count, |one| one..one + 1);
    range.filter(move |seed| one.is_some() || seed % 2 == part)
}

fn random_seeds(seeds: impl Iterator<Item = Plan>, run: fn(Plan) -> Outcome) {
    let (mut lines, mut snapshots, mut count) = (0, 0, 0);
    for plan in seeds.map(rough) {
        let outcome = run(plan);
        check(plan, &outcome);
        lines += outcome.lines;
        snapshots += outcome.snapshots;
        count += 1;
    }
    println!("{count} seeds: {lines} lines, {snapshots} snapshots");
    // Otherwise the faults did not happen; a single seed may have few.
    assert!(count == 1 || (lines >= 3 * count && snapshots > count));
}

#[test]
fn random_seeds_0() {
    random_seeds(seeds(0).map(Plan::small), machines);
}

#[test]
fn random_seeds_1() {
    random_seeds(seeds(1).map(Plan::small), machines);
}

#[test]
fn random_seeds_over_the_endpoints() {
    random_seeds(ENDPOINT_SEEDS.map(Plan::new), ours);
}

/// A session with cuts and delays, without the safeguards that prevent losses.
fn bare(plan: Plan, lanes: Lanes, defends: bool) -> Plan {
    Plan {
        cuts: true,
        lanes,
        defends,
        delay: Duration::from_millis(5),
        ..plan
    }
}

const FEW: std::ops::Range<u64> = 0..12;
const MANY: std::ops::Range<u64> = 0..300;

fn lost(plans: impl Iterator<Item = Plan>, run: fn(Plan) -> Outcome) {
    let lost = |outcome: &Outcome| outcome.applied.count < outcome.published.count;
    let lost: Vec<bool> = plans.map(|plan| lost(&run(plan))).collect();
    let count = lost.iter().filter(|lost| **lost).count();
    println!("actions were lost under {count} of {} seeds", lost.len());
    assert!(count > 0, "this suite cannot fail");
}

#[test]
fn without_lanes_and_defence_actions_are_lost() {
    lost(
        FEW.map(|seed| bare(Plan::new(seed), Lanes::Each, false)),
        ours,
    );
    lost(
        MANY.map(|seed| bare(Plan::small(seed), Lanes::Each, false)),
        machines,
    );
}

fn loses_nothing(plans: impl Iterator<Item = Plan>, run: fn(Plan) -> Outcome) {
    let mut disordered = 0;
    for plan in plans {
        let outcome = run(plan);
        assert_eq!(
            outcome.applied.unordered(),
            outcome.published.unordered(),
            "{plan:?} {outcome:?}"
        );
        disordered += u64::from(outcome.applied.chain != outcome.published.chain);
    }
    println!("in another order under {disordered} seeds");
    assert!(disordered > 0, "nothing overtook anything");
}

#[test]
fn without_lanes_the_defence_loses_nothing() {
    loses_nothing(
        FEW.map(|seed| bare(Plan::new(seed), Lanes::Each, true)),
        ours,
    );
    loses_nothing(
        MANY.map(|seed| bare(Plan::small(seed), Lanes::Each, true)),
        machines,
    );
}

#[test]
fn the_real_client_without_lanes_and_defence_loses_actions() {
    let stateless = |plan| Plan {
        stateless: true,
        ..plan
    };
    let plan = |seed| stateless(bare(Plan::new(seed), Lanes::Each, false));
    lost(FEW.map(plan), real);
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
                ..bare(Plan::new(seed), lanes, defends)
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
