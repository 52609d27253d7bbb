//! Sends 24 MB over a path of 1.5 Mbit/s with a round trip of 60 ms, in simulated time, by every wire: no
//! timeout of a format ends a transfer because the path is slow, and nothing is sent twice.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[allow(dead_code, reason = "the properties use the rest")]
#[path = "properties/oracles.rs"]
mod oracles;
#[allow(dead_code, reason = "the properties use the rest")]
#[path = "properties/setups.rs"]
mod setups;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use breakbulk_link::{Carries, Event, Frame, Link, Outgoing, Sent};
use bytes::Bytes;
use setups::{Setup, link, setups};

const SIZE: usize = 24_000_000;
/// 1.5 Mbit/s.
const BYTES_A_SECOND: f64 = 187_500.0;
const DELAY: Duration = Duration::from_millis(30);
const CAP: usize = 64_000;

/// Two links, and a connection between them that carries one frame at a time in each direction.
struct Path<'s> {
    setup: &'s Setup,
    now: Instant,
    links: [Link; 2],
    /// Until when each direction is busy with a frame.
    busy: [Instant; 2],
    /// Frames on their way: when they arrive, and where.
    arriving: BTreeMap<(Instant, u64), (usize, Frame)>,
    frames: u64,
    bytes: u64,
    events: [Vec<Event>; 2],
}

impl<'s> Path<'s> {
    fn new(setup: &'s Setup) -> Self {
        let now = breakbulk_testkit::links::Clock::new().now();
        let cap = (setup.cap)(CAP);
        Self {
            setup,
            now,
            links: [link(setup, cap, 1), link(setup, cap, 2)],
            busy: [now; 2],
            arriving: BTreeMap::new(),
            frames: 0,
            bytes: 0,
            events: [Vec::new(), Vec::new()],
        }
    }

    /// Begins to send the next frame of a side whose direction is free; false if it has no frame.
    fn transmit(&mut self, side: usize) -> bool {
        let mut buffer = Vec::new();
        let link = &mut self.links[side];
        let Some(transmit) = link.poll_transmit(self.now, &mut buffer) else {
            return false;
        };
        let size = (self.setup.weigh)(&buffer);
        self.bytes += size as u64;
        self.frames += 1;
        let bytes = Bytes::from(buffer);
        let frame = match transmit.carries {
            Carries::Text => Frame::Text(bytes),
            Carries::Binary => Frame::Binary(bytes),
        };
        self.busy[side] = self.now + Duration::from_secs_f64(size as f64 / BYTES_A_SECOND);
        let arrival = (self.busy[side] + DELAY, self.frames);
        self.arriving.insert(arrival, (1 - side, frame));
        link.handle_sent(self.now, transmit.frame, Sent::Ok);
        true
    }

    /// Runs until nothing is on its way and nothing is left to send.
    fn run(&mut self) {
        loop {
            let mut next = self.arriving.first_key_value().map(|((at, _), _)| *at);
            for side in 0..2 {
                if self.busy[side] <= self.now && !self.transmit(side) {
                    continue;
                }
                let free = self.busy[side];
                next = Some(next.map_or(free, |next| next.min(free)));
            }
            for (link, events) in self.links.iter_mut().zip(&mut self.events) {
                events.extend(std::iter::from_fn(|| link.poll_event()));
            }
            let Some(mut next) = next else { return };
            for link in &self.links {
                if let Some((due, _)) = link.poll_timeout() {
                    next = next.min(due);
                }
            }
            self.now = self.now.max(next);
            for link in &mut self.links {
                link.handle_timeout(self.now);
            }
            while let Some(entry) = self.arriving.first_entry()
                && entry.key().0 <= self.now
            {
                let (to, frame) = entry.remove();
                self.links[to].handle_frame(self.now, frame);
            }
        }
    }
}

#[test]
fn twenty_four_megabytes_arrive_over_a_slow_path_by_every_wire() {
    let text = "x".repeat(SIZE);
    let json = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":["{text}"]}}"#);
    let json = Bytes::from(json);
    // A wire without pieces has no transfers that could time out.
    for setup in setups().iter().filter(|setup| setup.pieces) {
        let mut path = Path::new(setup);
        let begun = path.now;
        let mut message = Outgoing::new(json.clone());
        message.key = (setup.key)(1);
        path.links[0].send(path.now, message).unwrap();
        path.run();
        let took = path.now - begun;
        println!(
            "{}: {} frames, {} bytes, {:.0} s",
            setup.name,
            path.frames,
            path.bytes,
            took.as_secs_f64()
        );
        let [sender, receiver] = &path.events;
        let messages: Vec<_> = receiver
            .iter()
            .filter_map(|event| match event {
                Event::Message(message) => Some(&message.bytes),
                _ => None,
            })
            .collect();
        let failed = |event: &&Event| {
            matches!(
                event,
                Event::TransferFailed { .. }
                    | Event::SendFailed { .. }
                    | Event::GaveUp { .. }
                    | Event::Fault(_)
                    | Event::Closed(_)
            )
        };
        let failures: Vec<_> = sender.iter().chain(receiver).filter(failed).collect();
        assert!(failures.is_empty(), "{}: {failures:?}", setup.name);
        assert!(messages == [&json], "{}: not byte for byte", setup.name);
        let least = Duration::from_secs_f64(SIZE as f64 / BYTES_A_SECOND);
        assert!(took > least, "{}: {took:?} is too fast", setup.name);
        // Escapes, base64 and encryption add bytes, but sending the message twice would add more than this.
        let most = SIZE as u64 * 19 / 10;
        assert!(path.bytes < most, "{}: {} bytes", setup.name, path.bytes);
    }
}
