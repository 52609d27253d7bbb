//! Tests of the machine: two ends of a session, a line between them that is cut, and a clock.

mod cuts;
mod hostile;

use std::collections::VecDeque;

use breakbulk_link::{Carries, Event, Link, Outgoing};

use super::line::LONGEST_PAUSE;
use super::*;
use crate::tunnel::TunnelConfig;

/// A generator of random numbers (xorshift), so that a seed repeats a run.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}

pub(super) fn config(cap: usize, budget: &Budget) -> TunnelConfig {
    TunnelConfig {
        cap: breakbulk_link::Cap::frame(cap),
        max_frame: cap,
        max_message: 1 << 20,
        budget: budget.clone(),
        carries: Carries::Text,
        resume_for: Duration::from_secs(60),
        window: 16 << 10,
        caps: Default::default(),
        watched: Default::default(),
    }
}

pub(super) fn settings(cap: usize, budget: &Budget) -> Settings {
    Settings {
        resume_for: Duration::from_secs(60),
        window: 16 << 10,
        peer_window: 16 << 10,
        frame_limit: cap + cap / 8,
        cap,
        binary: false,
        budget: budget.clone(),
        seed: 1,
    }
}

/// One end: an application, its link, and its end of the session.
pub(super) struct End {
    pub(super) machine: Machine,
    pub(super) link: Link,
    /// The number of the line, as this end knows it.
    line: u64,
    /// A frame of the link that the machine has no room for.
    waiting: Option<Frame>,
    /// What is on the line towards the other end.
    out: VecDeque<Frame>,
    pub(super) got: Vec<String>,
    /// Whether the application takes frames.
    pub(super) takes: bool,
    /// The largest frame that the path lets through from this end, and whether its close reason says so.
    pub(super) path: Option<(usize, bool)>,
    /// The sizes that the path refused.
    pub(super) refused: Vec<usize>,
}

impl End {
    fn new(now: Instant, cap: usize, budget: &Budget, seed: u8) -> Self {
        let config = config(cap, budget);
        let hello = config.hello(None);
        Self {
            machine: Machine::new(now, settings(cap, budget), None, true),
            link: config.link(&hello, [seed; 32]),
            line: 0,
            waiting: None,
            out: VecDeque::new(),
            got: Vec::new(),
            takes: true,
            path: None,
            refused: Vec::new(),
        }
    }

    pub(super) fn send(&mut self, now: Instant, text: &str) {
        let sent = self.link.send(now, Outgoing::new(text.to_owned()));
        assert!(sent.is_ok());
    }

    /// Makes frames, as far as the window allows, and puts them on the line.
    fn transmit(&mut self, now: Instant) {
        loop {
            let frame = self.waiting.take().or_else(|| {
                let mut bytes = Vec::new();
                self.link.poll_transmit(now, &mut bytes)?;
                Some(Frame::Text(bytes.into()))
            });
            let Some(frame) = frame else { break };
            if let Err(frame) = self.machine.push(frame) {
                self.waiting = Some(frame);
                break;
            }
        }
        while let Some(frame) = self.machine.poll_transmit(self.line) {
            assert!(frame.bytes().len() <= self.machine.cap());
            self.out.push_back(frame);
        }
        while let Some((line, write)) = self.machine.poll_write(now) {
            self.machine.wrote(line, &write);
            if let Write::Control(control) = write {
                self.out.push_back(Frame::Text(control.to_json().into()));
            }
        }
    }

    /// A frame comes out of the line.
    fn receive(&mut self, now: Instant, frame: Frame) {
        match self.machine.handle_frame(now, self.line, frame).unwrap() {
            Heard::Frame(frame) if self.takes && self.machine.inbox.is_empty() => {
                self.machine.take(now, &frame);
                self.deliver(now, frame);
            }
            Heard::Frame(frame) => assert!(self.machine.stash(frame).unwrap()),
            Heard::Handled => {}
        }
    }

    fn take_stashed(&mut self, now: Instant) {
        while self.takes
            && let Some(frame) = self.machine.take_stashed(now)
        {
            self.deliver(now, frame);
        }
    }

    fn deliver(&mut self, now: Instant, frame: Frame) {
        self.link.handle_frame(now, frame);
        while let Some(event) = self.link.poll_event() {
            match event {
                Event::Message(message) => {
                    self.got
                        .push(String::from_utf8(message.bytes.to_vec()).unwrap());
                }
                Event::Fault(fault) | Event::TransferFailed(fault) => panic!("{fault}"),
                Event::Closed(closed) => panic!("{closed:?}"),
                _ => {}
            }
        }
    }
}

/// Two ends and the line between them.
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) client: End,
    pub(super) server: End,
    /// How many frames passed the line.
    pub(super) passed: u64,
    pub(super) cuts: u64,
}

impl World {
    pub(super) fn new(cap: usize, budget: &Budget) -> Self {
        let now = Instant::now();
        Self {
            now,
            client: End::new(now, cap, budget, 1),
            server: End::new(now, cap, budget, 2),
            passed: 0,
            cuts: 0,
        }
    }

    /// Both ends do what they can; then one frame passes, if there is one. False if nothing moves.
    pub(super) fn step(&mut self, to_server: bool) -> bool {
        let now = self.now;
        for end in [&mut self.client, &mut self.server] {
            end.take_stashed(now);
            end.transmit(now);
        }
        let (from, to) = match to_server {
            true => (&mut self.client, &mut self.server),
            false => (&mut self.server, &mut self.client),
        };
        let Some(frame) = from.out.pop_front() else {
            return false;
        };
        let size = frame.bytes().len();
        if let Some((cap, says)) = from.path
            && size > cap
        {
            from.refused.push(size);
            let reason = match says {
                true => format!("message of {size} bytes over the cap of {cap}"),
                false => String::new(),
            };
            self.cut(Closed { code: 1009, reason });
            return true;
        }
        self.passed += 1;
        to.receive(now, frame);
        true
    }

    /// Cuts the line: frames on it are lost, and the client opens another line.
    pub(super) fn cut(&mut self, closed: Closed) {
        let now = self.now;
        self.cuts += 1;
        for end in [&mut self.client, &mut self.server] {
            end.out.clear();
        }
        let (client, server) = (&mut self.client.machine, &mut self.server.machine);
        client.line_down(now, client.line(), closed.clone());
        // In every other case the server learns of the cut only from the next line.
        if self.cuts.is_multiple_of(2) {
            server.line_down(now, server.line(), closed);
        } else {
            server.learner.line_ended(&closed);
        }
        assert!(client.needs_line() && client.dials_now(now + LONGEST_PAUSE));
        client.dialing();
        self.server.line = server.line_up(now, client.received(), None, true).unwrap();
        self.client.line = client.line_up(now, server.received(), None, true).unwrap();
    }

    /// Runs until nothing moves any more, although the clock goes on.
    pub(super) fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 3 {
            let moved = self.step(true) | self.step(false);
            if moved {
                quiet = 0;
                continue;
            }
            self.now += Duration::from_secs(1);
            quiet += 1;
        }
    }

    pub(super) fn has_all(&self, up: &[String], down: &[String]) -> bool {
        self.server.got.len() == up.len() && self.client.got.len() == down.len()
    }

    /// Everything came once and in order, and nothing is kept.
    pub(super) fn check(&mut self, up: &[String], down: &[String], name: &str) {
        self.settle();
        assert!(
            self.server.got == up,
            "{name}: {} of {}",
            self.server.got.len(),
            up.len()
        );
        assert!(
            self.client.got == down,
            "{name}: {} of {}",
            self.client.got.len(),
            down.len()
        );
        for end in [&self.client, &self.server] {
            assert_eq!(end.machine.undelivered(), 0, "{name}");
        }
    }
}

/// Messages of all sizes: one frame, several, and such that begin like a control frame.
pub(super) fn messages(count: usize, way: &str, random: &mut Random) -> Vec<String> {
    let each = (0..count).map(|number| {
        let size = match random.below(8) {
            0..5 => random.below(300),
            5 | 6 => random.below(3000),
            _ => random.below(9000),
        };
        let text = "x".repeat(size as usize);
        match random.below(16) {
            0 => format!(r#"{CONTROL}x","{way}":{number},"params":["{text}"]}}"#),
            _ => {
                format!(r#"{{"jsonrpc":"2.0","method":"m","{way}":{number},"params":["{text}"]}}"#)
            }
        }
    });
    each.collect()
}

const CONTROL: &str = breakbulk_message::tunnel::CONTROL;
