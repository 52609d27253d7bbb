//! Properties of every wire: no frame exceeds the cap, and both a naive reassembler and a link get the
//! message back from the frames. Over a bad network, only messages that were sent arrive, and each one that
//! does not arrive is accounted for.
//!
//! `BREAKBULK_SEED=n` replays one run, `BREAKBULK_SEEDS=n` sets how many there are.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "properties/oracles.rs"]
mod oracles;
#[path = "properties/setups.rs"]
mod setups;

use std::collections::BTreeMap;

use breakbulk_link::{Count, Event, Frame, Lane, Outgoing, Plan, PlanOptions, Random, SendError};
use breakbulk_testkit::links::{Pair, Weather};
use bytes::Bytes;
use setups::{Setup, link, random_cap, random_message, setups, smallest_cap};

/// Runs a property for every wire and this many seeds; prints the seed with which it failed.
fn for_seeds(usual: u64, property: impl Fn(&Setup, u64) + std::panic::RefUnwindSafe) {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().expect("a number"))
    };
    let seeds = match number("BREAKBULK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BREAKBULK_SEEDS").unwrap_or(usual),
    };
    for setup in setups() {
        for seed in seeds.clone() {
            let run = std::panic::AssertUnwindSafe(|| property(&setup, seed));
            if let Err(panic) = std::panic::catch_unwind(run) {
                eprintln!(
                    "failed: wire {}, replay with BREAKBULK_SEED={seed}",
                    setup.name
                );
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[test]
fn frames_fit_the_cap_and_give_back_the_message() {
    for_seeds(150, |setup, seed| {
        let mut random = Random::from_number(seed);
        let message = random_message(setup, &mut random);
        let key = (setup.key)(seed % 1000);
        let cap = random_cap(setup, &mut random, &message, key.as_ref());
        let mut pair = Pair::new(link(setup, cap, seed), link(setup, cap, !seed));
        let mut outgoing = Outgoing::new(message.clone());
        outgoing.key = key;
        pair.left.link.send(pair.clock.now(), outgoing).unwrap();
        pair.run();

        for (_, frame) in &pair.right.sent {
            assert!(
                (setup.weigh)(frame.bytes()) <= cap.max,
                "answer {frame:?} is over {cap:?}"
            );
        }
        if let Some(Event::SendFailed { error, bytes, .. }) = pair
            .left
            .events
            .iter()
            .find(|event| matches!(event, Event::SendFailed { .. }))
        {
            let excused = match error {
                SendError::TooManyPieces { .. } => true,
                SendError::RawNewline => !setup.pieces,
                _ => false,
            };
            assert!(excused, "{error}");
            assert!(
                *bytes == message && pair.left.sent.is_empty(),
                "nothing is written, and the message is back"
            );
            return;
        }
        let frames: Vec<Vec<u8>> = pair
            .left
            .sent
            .iter()
            .map(|(_, frame)| frame.bytes().to_vec())
            .collect();
        for frame in &frames {
            let weight = (setup.weigh)(frame);
            assert!(
                weight <= cap.max,
                "{weight} of {}: {}",
                cap.max,
                String::from_utf8_lossy(frame)
            );
        }
        assert!(
            (setup.join)(&frames) == message,
            "the oracle read something else"
        );
        assert!(
            pair.right.messages() == [message.clone()],
            "the link read something else: {:?}",
            pair.right.received.last()
        );
        assert!(matches!(pair.left.events.last(), Some(Event::Sent { .. })));
        assert_eq!(
            (
                pair.right.link.open_transfers(),
                pair.right.link.pending_bytes()
            ),
            (0, 0)
        );
        pair.right.events.clear();
        assert_eq!(
            pair.right.link.memory(),
            0,
            "a dropped message is charged no more"
        );
    });
}

#[test]
fn a_cap_is_named_too_small_exactly_where_it_is() {
    for_seeds(40, |setup, seed| {
        let mut random = Random::from_number(seed);
        let message = random_message(setup, &mut random);
        let key = (setup.key)(1);
        let smallest = smallest_cap(setup, &message, key.as_ref());
        let plan = |max| {
            let cap = (setup.cap)(max);
            setup.wire.plan(
                &message,
                &PlanOptions {
                    key: key.as_ref(),
                    may_cut: true,
                    known_text: false,
                    peer: &setup.peer,
                    cap: &cap,
                },
            )
        };
        assert!(matches!(
            plan(smallest),
            Ok(_) | Err(SendError::TooManyPieces { .. } | SendError::RawNewline)
        ));
        if smallest > 1 {
            let below = plan(smallest - 1);
            // A message shorter than an envelope may still fit as it is.
            let refused = matches!(
                below,
                Ok(Plan::Whole)
                    | Err(SendError::CapTooSmall { .. } | SendError::FrameTooLarge { .. })
            );
            assert!(refused, "{below:?}");
        }
    });
}

#[test]
fn over_a_bad_network_a_message_arrives_whole_or_is_accounted_for() {
    for_seeds(60, |setup, seed| {
        let mut random = Random::from_number(seed);
        let weather = Weather::random(&mut random);
        let messages: Vec<(Lane, Vec<u8>)> = (0..random.below(12) + 1)
            .map(|_| {
                (
                    Lane(random.below(3) as u32),
                    random_message(setup, &mut random),
                )
            })
            .collect();
        let longest = messages
            .iter()
            .max_by_key(|(_, message)| message.len())
            .unwrap();
        let key = (setup.key)(999_999);
        let mut cap = random_cap(setup, &mut random, &longest.1, key.as_ref());
        // Other messages may need a larger cap than the longest one.
        cap.max += 64 + random.below(600) as usize;
        cap.cut_above = None;
        let mut pair = Pair::new(link(setup, cap, seed), link(setup, cap, !seed));
        pair.weather(weather, seed);
        for (number, (lane, bytes)) in messages.iter().enumerate() {
            let mut outgoing = Outgoing::new(bytes.clone())
                .in_lane(*lane)
                .tagged(number as u64);
            outgoing.key = (setup.key)(number as u64);
            pair.left.link.send(pair.clock.now(), outgoing).unwrap();
        }
        pair.run_out();

        let arrived = pair.right.messages();
        for message in &arrived {
            assert!(
                messages.iter().any(|(_, sent)| sent == message),
                "something arrived that nobody sent"
            );
        }
        // Every accepted message has exactly one outcome.
        let mut ends = BTreeMap::<u64, u32>::new();
        for event in &mut pair.left.events {
            if let Event::Sent { tag, .. } | Event::SendFailed { tag, .. } = event {
                *ends.entry(*tag).or_default() += 1;
            }
        }
        assert!(ends.values().all(|&times| times == 1), "{ends:?}");
        let failed: Vec<u64> = pair.left.events.iter().filter_map(send_failed).collect();
        let closed = pair.left.link.closed().is_some() || pair.right.link.closed().is_some();
        // A message whose planning failed blocks its lane until the caller replaces it.
        assert!(
            closed || ends.len() == messages.len() || !failed.is_empty(),
            "{ends:?} of {}",
            messages.len()
        );

        let lost = pair.left.out.lost() + pair.right.out.lost() > 0;
        let fault = |event: &Event| matches!(event, Event::Fault(_) | Event::TransferFailed(_));
        let told = pair.right.events.iter().any(fault) || pair.right.link.open_transfers() > 0;
        for (number, (_, message)) in messages.iter().enumerate() {
            let sent = ends.contains_key(&(number as u64)) && !failed.contains(&(number as u64));
            let there = arrived.contains(&Bytes::copy_from_slice(message));
            assert!(
                !sent || there || lost || closed || told,
                "message {number} is lost silently, {weather:?}"
            );
        }
        if weather.is_reliable() {
            assert!(
                !closed && !told,
                "{:?} {:?}",
                pair.right.events.iter().find(|event| fault(event)),
                pair.right.link.closed()
            );
            let ok: Vec<usize> = (0..messages.len())
                .filter(|&n| ends.contains_key(&(n as u64)) && !failed.contains(&(n as u64)))
                .collect();
            assert_eq!(arrived.len(), ok.len(), "each arrives once");
            for lane in (0..3).map(Lane) {
                let in_lane: Vec<&[u8]> = ok
                    .iter()
                    .filter(|&&n| messages[n].0 == lane)
                    .map(|&n| messages[n].1.as_slice())
                    .collect();
                assert!(
                    is_subsequence(&in_lane, &arrived),
                    "lane {lane:?} lost its order"
                );
            }
        }
        pair.right.events.clear();
        if pair.right.link.open_transfers() == 0 {
            assert_eq!(
                (pair.right.link.memory(), pair.right.link.pending_bytes()),
                (0, 0)
            );
        }
    });
}

fn send_failed(event: &Event) -> Option<u64> {
    if let Event::SendFailed { tag, .. } = event {
        Some(*tag)
    } else {
        None
    }
}

fn is_subsequence(part: &[&[u8]], of: &[Bytes]) -> bool {
    let mut rest = of.iter();
    part.iter().all(|wanted| rest.any(|found| found == wanted))
}

#[test]
fn the_same_seed_gives_the_same_frames() {
    for_seeds(5, |setup, seed| {
        let frames = |_| -> Vec<Frame> {
            let mut random = Random::from_number(seed);
            let messages: Vec<Vec<u8>> =
                (0..4).map(|_| random_message(setup, &mut random)).collect();
            let cap = random_cap(setup, &mut random, &messages[0], (setup.key)(0).as_ref());
            let mut pair = Pair::new(link(setup, cap, seed), link(setup, cap, seed));
            for (number, message) in messages.into_iter().enumerate() {
                let mut outgoing = Outgoing::new(message).in_lane(Lane(number as u32));
                outgoing.key = (setup.key)(number as u64);
                pair.left.link.send(pair.clock.now(), outgoing).unwrap();
            }
            pair.run_out();
            pair.left.sent.into_iter().map(|(_, frame)| frame).collect()
        };
        assert_eq!(frames(1), frames(2));
    });
}

#[test]
fn what_a_wire_plans_it_also_cuts() {
    // The number of pieces is announced before the first one is made, so planning and cutting must agree
    // on it.
    for_seeds(60, |setup, seed| {
        let mut random = Random::from_number(seed);
        let message = random_message(setup, &mut random);
        let key = (setup.key)(1);
        let cap = random_cap(setup, &mut random, &message, key.as_ref());
        let options = PlanOptions {
            key: key.as_ref(),
            may_cut: true,
            known_text: false,
            peer: &setup.peer,
            cap: &cap,
        };
        let Ok(Plan::Pieces(pieces)) = setup.wire.plan(&message, &options) else {
            return;
        };
        let (mut at, mut count) = (0, 0);
        while at < message.len() {
            let end = setup.wire.cut(&pieces, &message, at);
            assert!(end > at, "a piece of nothing");
            if cap.count == Count::Piece {
                assert!(end - at <= cap.max);
            }
            (at, count) = (end, count + 1);
        }
        assert_eq!(count.max(1), pieces.count);
    });
}
