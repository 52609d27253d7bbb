//! Two links at the ends of one path.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Clock, Network, Weather};
use breakbulk_link::{Carries, Event, Frame, Link, Received, Sent, Transmit};

/// More steps than any test needs: a pair that takes more goes round in circles.
const TOO_MANY_STEPS: u64 = 20_000_000;

/// What the transport says of the frames of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirms {
    /// Each is through as soon as it is out.
    #[default]
    AtOnce,
    /// Nothing: the test calls [`Link::handle_sent`] itself.
    Never,
}

/// A link, the path away from it, and all that happened to it.
pub struct Side {
    /// The link.
    pub link: Link,
    /// The path to the other side.
    pub out: Network,
    /// What the transport says of its frames.
    pub confirms: Confirms,
    /// Its frames, in the order they were made.
    pub sent: Vec<(Transmit, Frame)>,
    /// What became of the frames that it got.
    pub received: Vec<Received>,
    /// What it told.
    pub events: Vec<Event>,
    closed: bool,
}

/// Two links with a clock and a network in each direction.
pub struct Pair {
    /// What time it is for both.
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

    /// Hands all frames that may go out now to the path; false if there was none.
    fn transmit(&mut self, now: Instant) -> bool {
        let mut any = false;
        loop {
            while let Some(job) = self.link.poll_plan() {
                self.link.handle_planned(job.run());
                any = true;
            }
            let mut frame = Vec::new();
            let Some(transmit) = self.link.poll_transmit(now, &mut frame) else {
                // Planning may have been what stood in the way.
                let Some(job) = self.link.poll_plan() else {
                    // What could not be planned is told although nothing went out.
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
    /// Two links on a path that loses nothing.
    pub fn new(left: Link, right: Link) -> Self {
        Self {
            clock: Clock::new(),
            left: Side::new(left),
            right: Side::new(right),
            steps: 0,
        }
    }

    /// Both directions get this weather; all chance comes from `seed`.
    pub fn weather(&mut self, weather: Weather, seed: u64) {
        self.left.out = Network::new(weather, seed);
        self.right.out = Network::new(weather, seed ^ u64::MAX);
    }

    /// Lets both work until nothing moves any more and no frame is under way. Time passes only as
    /// far as the path needs it; what has a deadline after that stays open.
    pub fn run(&mut self) {
        loop {
            self.settle();
            match [&self.left, &self.right]
                .into_iter()
                .filter_map(|side| side.out.next_arrival())
                .min()
            {
                // A deadline on the way there comes first.
                Some(arrival) => {
                    let then = self.next_timeout().map_or(arrival, |due| due.min(arrival));
                    self.clock.advance_to(then);
                }
                None => return,
            }
        }
    }

    /// The same, and then lets time pass until no deadline is left either.
    pub fn run_out(&mut self) {
        self.run();
        while let Some(due) = self.next_timeout() {
            self.clock.advance_to(due);
            self.run();
        }
    }

    /// Lets time pass for both, with all that happens on the way.
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

    /// All that happens without time passing.
    fn settle(&mut self) {
        loop {
            self.steps += 1;
            assert!(self.steps < TOO_MANY_STEPS, "the pair never comes to rest");
            let now = self.clock.now();
            let Self { left, right, .. } = self;
            let mut moved = step(now, left, right) | step(now, right, left);
            moved |= pass_on_the_end(left, right) | pass_on_the_end(right, left);
            if !moved {
                return;
            }
        }
    }
}

/// One side's timers, frames and events, and one frame to the other side.
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

/// A side that closed takes the path with it, and a broken path ends the other side.
fn pass_on_the_end(side: &mut Side, other: &mut Side) -> bool {
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
