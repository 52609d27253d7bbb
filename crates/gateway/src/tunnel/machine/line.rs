//! The current line of a session, and the attempts to open another one.

use std::time::{Duration, Instant};

use breakbulk_link::Closed;
use breakbulk_message::tunnel::Received;

/// The longest pause between two attempts to open a line.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The first pause; the first attempt is made at once.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The line of a session.
#[derive(Debug)]
pub(super) struct Line {
    /// Lines are numbered; what comes from an earlier one is ignored.
    pub(super) number: u64,
    pub(super) is_up: bool,
    pub(super) pings: bool,
    /// Since when it is up or down.
    pub(super) since: Instant,
    pub(super) last_heard: Instant,
    pub(super) last_ping: Instant,
    /// Set when a write failed: if the line gives no reason until this time, it is lost for this one.
    pub(super) failed: Option<(Instant, Closed)>,
    /// Whether this side does not read for lack of memory, so that silence of the line means nothing.
    pub(super) paused: bool,
    /// How far this side's close is on this line.
    pub(super) close: CloseFrame,
}

/// How far this side's close is on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseFrame {
    NotSent,
    Begun,
    Sent,
}

/// The attempts to open a line.
#[derive(Debug)]
pub(super) struct Attempts {
    pub(super) next_at: Instant,
    /// How many were made since a line was of use.
    pub(super) failed: u32,
    /// Why the last one failed, or why the last line was lost.
    pub(super) why: String,
    pub(super) random: u64,
}

impl Attempts {
    /// The first attempt is made at once, and each further one after a pause that doubles. A random part
    /// of it, up to a half, is left out, so that many clients of one server do not come at once.
    pub(super) fn pause(&mut self, now: Instant, why: String) {
        self.why = why;
        self.next_at = now;
        if let Some(doublings) = self.failed.checked_sub(1) {
            let doubled = FIRST_PAUSE.saturating_mul(1 << doublings.min(10));
            let pause = doubled.min(LONGEST_PAUSE);
            let left_out = pause.mul_f64(self.random() / 2.0);
            self.next_at += pause - left_out;
        }
    }

    /// A number from 0 to 1 (xorshift).
    fn random(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// How many lines in a row may end before any frame arrived while there are frames to send: enough to find a
/// small cap by halving, without going on for ever.
pub(super) const FRUITLESS_LINES: u32 = 64;

/// Counts lines in a row on which nothing arrived at either end.
#[derive(Debug, Default)]
pub(super) struct Fruitless {
    /// What had arrived at this end and at the other one when the last line began.
    arrived: (Received, Received),
    lines: u32,
}

impl Fruitless {
    /// A line begins; returns on how many lines in a row before it nothing arrived.
    pub(super) fn line_up(&mut self, arrived: (Received, Received)) -> u32 {
        self.lines = match std::mem::replace(&mut self.arrived, arrived) == arrived {
            true => self.lines.saturating_add(1),
            false => 0,
        };
        self.lines
    }
}

/// How a line ended, for people.
pub(super) fn words(closed: &Closed) -> String {
    match (&*closed.reason, closed.code) {
        ("", code) => format!("closed with {code}"),
        (reason, 1006) => reason.to_owned(),
        (reason, code) => format!("{reason} ({code})"),
    }
}
