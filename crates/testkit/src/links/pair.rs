//! Two links with a simulated network between them.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Clock, Network, Weather};
use breakbulk_link::{Carries, Event, Frame, Link, Received, Sent, Transmit};

/// More steps than any test needs: a pair that takes more does not terminate.
const TOO_MANY_STEPS: u64 = 20_000_000;

/// Whether the simulated transport confirms sent frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirms {
    /// It confirms each frame as soon as it is sent.
    #[default]
    AtOnce,
    /// It confirms nothing: the test calls [`Link::handle_sent`] itself.
    Never,
}

/// A link, the network from it to the other side, and a record of what happened.
pub struct Side {
    /// The link.
    pub link: Link,
    /// The network to the other side.
    pub out: Network,
    /// Whether its sent frames are confirmed.
    pub confirms: Confirms,
    /// The frames that it sent, in order.
    pub sent: Vec<(Transmit, Frame)>,
    /// What it did with the frames that it received.
    pub received: Vec<Received>,
    /// Its events.
    pub events: Vec<Event>,
    closed: bool,
}

/// Two links with a clock and a network in each direction.
pub struct Pair {
    /// The clock of both sides.
    pub clock: Clock,
    /// One side.
    pub left: Side,
    /// The other.
    pub right: Side,
    steps: u64,
}

impl Side {
    fn new(link: Link) -> Self {
        let out = Network::new(Weather::FAIR, 0);
        let (sent, received, events) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            link,
            out,
            confirms: Confirms::AtOnce,
            sent,
            received,
            events,
            closed: false,
        }
    }

    /// The messages that came in, in their order.
    pub fn messages(&self) -> Vec<Bytes> {
        let message = |event: &Event| {
            if let Event::Message(message) = event {
                Some(message.bytes.clone())
            } else {
                None
            }
        };
        self.events.iter().filter_map(message).collect()
    }

    /// Sends all frames that may be sent now; returns false if there were none.
    fn transmit(&mut self, now: Instant) -> bool {
        let mut any = false;
        loop {
            while let Some(job) = self.link.poll_plan() {
                self.link.handle_planned(job.run());
                any = true;
            }
            let mut frame = Vec::new();
            let Some(transmit) = self.link.poll_transmit(now, &mut frame) else {
                // The link may wait for a plan.
                let Some(job) = self.link.poll_plan() else {
                    // A message that could not be planned causes an event although nothing was sent.
                    self.take_events();
                    return any;
                };
                self.link.handle_planned(job.run());
                continue;
            };
            any = true;
            let bytes = Bytes::from(frame);
            let frame = match transmit.carries {
                Carries::Text => Frame::Text(bytes),
                Carries::Binary => Frame::Binary(bytes),
            };
            self.sent.push((transmit.clone(), frame.clone()));
            self.out.send(now, frame);
            if self.confirms == Confirms::AtOnce {
                self.link.handle_sent(now, transmit.frame, Sent::Ok);
            }
            self.take_events();
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.link.poll_event() {
            self.events.push(event);
        }
    }
}

impl Pair {
    /// Two links with a reliable network.
    pub fn new(left: Link, right: Link) -> Self {
        Self {
            clock: Clock::new(),
            left: Side::new(left),
            right: Side::new(right),
            steps: 0,
        }
    }

    /// Sets the conditions of both directions; all randomness comes from `seed`.
    pub fn weather(&mut self, weather: Weather, seed: u64) {
        self.left.out = Network::new(weather, seed);
        self.right.out = Network::new(weather, seed ^ u64::MAX);
    }

    /// Runs both sides until there is nothing to do and no frame is in transit. The clock advances
    /// only as far as frames need to arrive; later deadlines stay pending.
    pub fn run(&mut self) {
        loop {
            self.settle();
            match [&self.left, &self.right]
                .into_iter()
                .filter_map(|side| side.out.next_arrival())
                .min()
            {
                // A deadline before the arrival comes first.
                Some(arrival) => {
                    let then = self.next_timeout().map_or(arrival, |due| due.min(arrival));
                    self.clock.advance_to(then);
                }
                None => return,
            }
        }
    }

    /// Like [`run`](Self::run), and then advances the clock until no deadline is left either.
    pub fn run_out(&mut self) {
        self.run();
        while let Some(due) = self.next_timeout() {
            self.clock.advance_to(due);
            self.run();
        }
    }

    /// Advances the clock, and runs everything that happens meanwhile.
    pub fn advance(&mut self, by: Duration) {
        let until = self.clock.now() + by;
        self.run();
        while let Some(due) = self.next_timeout().filter(|due| *due <= until) {
            self.clock.advance_to(due);
            self.run();
        }
        self.clock.advance_to(until);
        self.run();
    }

    fn next_timeout(&self) -> Option<Instant> {
        let due = |side: &Side| side.link.poll_timeout().map(|(at, _)| at);
        [due(&self.left), due(&self.right)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Runs everything that needs no time.
    fn settle(&mut self) {
        loop {
            self.steps += 1;
            assert!(self.steps < TOO_MANY_STEPS, "the pair never comes to rest");
            let now = self.clock.now();
            let Self { left, right, .. } = self;
            let mut moved = step(now, left, right) | step(now, right, left);
            moved |= propagate_close(left, right) | propagate_close(right, left);
            if !moved {
                return;
            }
        }
    }
}

/// Runs one side's timers, frames and events, and delivers one frame to the other side.
fn step(now: Instant, side: &mut Side, other: &mut Side) -> bool {
    let mut moved = false;
    if side.link.poll_timeout().is_some_and(|(due, _)| due <= now) {
        side.link.handle_timeout(now);
        moved = true;
    }
    side.take_events();
    moved |= side.transmit(now);
    if let Some(frame) = side.out.receive(now) {
        let received = other.link.handle_frame(now, frame);
        other.received.push(received);
        other.take_events();
        moved = true;
    }
    moved
}

/// Breaks the network of a side that closed, and closes the other side when its network is broken.
fn propagate_close(side: &mut Side, other: &mut Side) -> bool {
    let mut moved = false;
    if !side.closed && side.link.closed().is_some() {
        side.closed = true;
        side.out.cut();
        moved = true;
    }
    if side.out.is_cut() && other.link.closed().is_none() {
        other.link.close(1006, "the path broke");
        other.take_events();
        moved = true;
    }
    moved
}
