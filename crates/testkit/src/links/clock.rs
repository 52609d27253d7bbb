//! Time that stands still until a test moves it.

use std::time::{Duration, Instant};

/// A source of instants that a test moves by hand.
#[derive(Clone, Debug)]
pub struct Clock {
    base: Instant,
    now: Instant,
}

impl Clock {
    /// A clock at its beginning.
    pub fn new() -> Self {
        let base = Instant::now();
        Self { base, now: base }
    }

    /// What it shows.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Time since the beginning: the same in every run, unlike [`now`](Self::now).
    pub fn elapsed(&self) -> Duration {
        self.now - self.base
    }

    /// Lets time pass.
    pub fn advance(&mut self, by: Duration) {
        self.now += by;
    }

    /// Lets time pass up to `then`; a clock never goes back.
    pub fn advance_to(&mut self, then: Instant) {
        self.now = self.now.max(then);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
