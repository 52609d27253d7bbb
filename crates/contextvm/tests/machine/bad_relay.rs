//! Machines over a simulated relay that delays, duplicates and reorders events.

use std::time::Duration;

use breakbulk_contextvm::{Config, Encryption, Event, Limits};
use breakbulk_link::Random;

use crate::sim::{Sim, Weather, call, reply, text};

/// 1:10 of full size, so that one transfer has many chunks.
fn config(seed: u64) -> Config {
    Config::default().with(|config| {
        config.cut_above = 4_800;
        config.event_max = 6_553;
        config.encryption = match seed % 3 {
            0 => Encryption::Disabled,
            1 => Encryption::Optional,
            _ => Encryption::Required,
        };
        config.limits = Limits::default().with(|limits| limits.message = 10 << 20);
        config.plan_elsewhere = seed.is_multiple_of(2).then_some(10_000);
    })
}

fn weather(hasty: bool) -> Weather {
    Weather {
        pace: None,
        delay: Duration::from_secs(2),
        doubled: 20,
        hasty,
        event_max: 6_553,
        closed: false,
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let one: Option<u64> = number("BREAKBULK_RELAY_SEED");
    let count = number("BREAKBULK_RELAY_SEEDS").unwrap_or(50);
    one.map_or(0..count, |one| one..one + 1)
}

/// Requests and answers of the seed's sizes: (id, request, expected answer).
fn calls(seed: u64) -> Vec<(u64, String, String)> {
    let mut random = Random::from_number(seed);
    let calls = (1..=4).map(|id| {
        let size = |random: &mut Random| match random.below(4) {
            0 => 100,
            1 => 20_000,
            _ => 40_000 + random.below(120_000) as usize,
        };
        let request = call(
            id,
            &text(random.below(4), size(&mut random)),
            size(&mut random),
        );
        let answer = reply(&request, seed);
        (id, request, answer)
    });
    calls.collect()
}

#[test]
fn every_transfer_ends_whole() {
    let (mut events, mut count) = (0, 0);
    for seed in seeds() {
        let mut sim = Sim::new(seed, weather(false), vec![config(seed), config(seed)]);
        let calls = calls(seed);
        for (_, request, _) in &calls {
            sim.send(1, 0, request);
        }
        let mut answers = 0;
        while answers < calls.len() {
            let Some((to, from, message)) = sim.run(Duration::from_secs(600)) else {
                panic!("seed {seed}: {answers} answers, {:?}", sim.news);
            };
            if to == 0 {
                let answer = reply(&message, seed);
                let heard = calls.iter().any(|(_, _, expected)| *expected == answer);
                let asks = message.contains(r#""method":"ping""#);
                assert!(heard || asks, "seed {seed}");
                let prepared = breakbulk_contextvm::Prepared::outgoing(answer.into(), None);
                let now = sim.time();
                sim.machines[0].send(now, from, prepared.unwrap()).unwrap();
                continue;
            }
            let whole = calls.iter().any(|(_, _, answer)| *answer == message);
            assert!(whole, "seed {seed}: {}", &message[..message.len().min(300)]);
            answers += 1;
        }
        for (_, _, event) in &sim.news {
            let bad = matches!(event, Event::Failed { .. } | Event::TransferFailed { .. });
            assert!(!bad, "seed {seed}: {event:?}");
        }
        sim.assert_clean(&format!("seed {seed}"));
        events += sim.tape.len();
        count += 1;
    }
    println!("{count} seeds: {events} events");
    assert!(events > 60 * count, "nothing was cut");
}

#[test]
fn only_a_displaced_start_or_end_fails_a_transfer_and_both_sides_hear_of_it_at_once() {
    let (mut whole, mut failed) = (0, 0);
    for seed in seeds() {
        let mut sim = Sim::new(seed, weather(true), vec![config(seed), config(seed)]);
        // A first request, so that the client knows what the server supports.
        sim.send(1, 0, &call(0, "", 1));
        let calls = calls(seed);
        let mut ended = 0;
        let mut asked = false;
        while ended < calls.len() {
            let Some((to, from, message)) = sim.run(Duration::from_secs(600)) else {
                panic!("seed {seed}: {ended} answers, {:?}", sim.news);
            };
            if to == 0 {
                let answer = reply(&message, seed);
                let prepared = breakbulk_contextvm::Prepared::outgoing(answer.into(), None);
                let now = sim.time();
                sim.machines[0].send(now, from, prepared.unwrap()).unwrap();
                continue;
            }
            if !std::mem::replace(&mut asked, true) {
                for (_, request, _) in &calls {
                    sim.send(1, 0, request);
                }
                continue;
            }
            ended += 1;
            if calls.iter().any(|(_, _, answer)| *answer == message) {
                whole += 1;
                continue;
            }
            let error: serde_json::Value = serde_json::from_str(&message).unwrap();
            let reason = error["error"]["data"]["reason"].as_str();
            assert!(
                matches!(reason, Some("aborted" | "transferFailed")),
                "seed {seed}: {message}"
            );
            failed += 1;
        }
        let displaced = displaced(&sim);
        let mut clients = 0;
        for (at, who, event) in &sim.news {
            let wrong = match event {
                Event::Failed { .. } => true,
                // A failed upload is reported at the server by this event, everything else by `Failed`.
                Event::TransferFailed { .. } => *who == 0,
                _ => false,
            };
            if !wrong {
                continue;
            }
            clients += usize::from(*who == 1);
            let soon = displaced
                .iter()
                .any(|(when, _)| *at >= *when && *at <= *when + Duration::from_secs(5));
            assert!(soon, "seed {seed}: {at:?} {event:?} {displaced:?}");
        }
        sim.assert_clean(&format!("seed {seed}"));
        // Reports on the last failures may have come meanwhile.
        let late = sim.news.iter().filter(|(_, who, event)| {
            *who == 0 && matches!(event, Event::Failed { .. } | Event::TransferFailed { .. })
        });
        let late: Vec<_> = late.collect();
        assert_eq!(
            late.len(),
            displaced.len(),
            "seed {seed}: {displaced:?} {late:?}"
        );
        assert_eq!(clients, displaced.len(), "seed {seed}: {displaced:?}");
    }
    println!("{whole} whole, {failed} failed");
    assert!(
        whole > 0 && (failed > 0 || seeds().count() == 1),
        "{whole} {failed}"
    );
}

/// Transfers whose start or end was out of order: when this could be noticed first, and the token.
fn displaced(sim: &Sim) -> Vec<(Duration, String)> {
    let mut transfers: std::collections::BTreeMap<_, Vec<(String, Duration)>> =
        std::collections::BTreeMap::new();
    for seen in &sim.tape {
        let (Some(kind), Some(token)) = (seen.frame_type(), seen.token()) else {
            continue;
        };
        if matches!(kind.as_str(), "start" | "chunk" | "end") {
            let frames = transfers.entry((seen.from.to_hex(), token)).or_default();
            frames.push((kind, seen.at));
        }
    }
    let mut found = Vec::new();
    for ((_, token), frames) in transfers {
        let at = |wanted: &'static str| {
            let of_kind = frames.iter().filter(move |(kind, _)| kind == wanted);
            of_kind.map(|(_, at)| *at)
        };
        let start = at("start").min().unwrap();
        let others = at("chunk").chain(at("end")).min();
        let last = at("chunk").max();
        if others.is_some_and(|other| other < start) {
            found.push((start, token));
        } else if let (Some(end), Some(last)) = (at("end").min(), last)
            && end < last
        {
            found.push((end, token));
        }
    }
    found
}
