//! Replays recorded AHP frames to a receiver, and compares what it does with each.

use std::time::{Duration, Instant};

use breakbulk_link::{Budget, Config, Event, Frame, Limits, Link, Received};
use breakbulk_wire::Ahp;
use serde_json::Value;

use super::drive::{expect, link};
use super::{Rule, Tally, Verdict};

pub(crate) const RULES: &[Rule] = &[];

pub(crate) fn run(file: &str, value: &Value, tally: &mut Tally) -> Option<()> {
    if file != "receive.json" {
        return None;
    }
    for case in value.as_array()? {
        tally.check(file, case["name"].as_str()?, receive(case));
    }
    Some(())
}

fn receive(case: &Value) -> Verdict {
    let mut link = receiver(&case["limits"]).ok_or("limits are not as expected")?;
    let mut now = Instant::now();
    for (number, step) in case["steps"]
        .as_array()
        .ok_or("no steps")?
        .iter()
        .enumerate()
    {
        let at = |what: &str| format!("step {number}: {what}");
        if let Some(ms) = step["advanceMs"].as_u64() {
            now += Duration::from_millis(ms);
            link.handle_timeout(now);
            // A group that times out sends nothing. It does make an event, which is not compared.
            while link.poll_event().is_some() {}
            expect(
                step["openGroups"].as_u64(),
                Some(link.open_transfers() as u64),
            )
            .map_err(|why| at(&why))?;
            continue;
        }
        let frame = step["frame"]
            .as_str()
            .ok_or_else(|| at("neither frame nor time"))?;
        let received = link.handle_frame(now, Frame::Text(frame.to_owned().into()));
        let got = outcome(&mut link, &received);
        expect(&step["then"], &got).map_err(|why| at(&why))?;
    }
    Ok(None)
}

/// The outcome of a frame, in the notation of the vectors.
fn outcome(link: &mut Link, received: &Received) -> Value {
    if let Some(closed) = link.closed() {
        return serde_json::json!({ "close": closed.code });
    }
    match (received, link.poll_event()) {
        (Received::Done(_), Some(Event::Message(message))) => {
            serde_json::json!({ "dispatch": String::from_utf8_lossy(&message.bytes) })
        }
        (Received::Pending, None) => serde_json::json!({ "pending": true }),
        (received, event) => serde_json::json!({ "other": format!("{received:?} {event:?}") }),
    }
}

fn receiver(limits: &Value) -> Option<Link> {
    let number = |name: &str| Some(limits[name].as_u64()? as usize);
    let mut config = Config::new(Ahp::rules());
    config.rules.timeouts.idle = Some(Duration::from_millis(limits["groupTimeoutMs"].as_u64()?));
    config.limits = Limits::default();
    config.limits.frame = number("maxIncomingFrameBytes")?;
    config.limits.message = number("maxIncomingMessageBytes")?;
    config.limits.transfers = number("maxIncomingGroups")?;
    Some(link(Ahp, Ahp, config, Budget::unlimited()))
}
