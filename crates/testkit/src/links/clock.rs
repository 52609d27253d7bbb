//! A clock that only a test advances.

use std::time::{Duration, Instant};

/// A clock that a test advances.
#[derive(Clone, Debug)]
pub struct Clock {
    base: Instant,
    now: Instant,
}

impl Clock {
    /// A new clock.
    pub fn new() -> Self {
        let base = Instant::now();
        Self { base, now: base }
    }

    /// The current time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The time since the clock was made: the same in every run, unlike [`now`](Self::now).
    pub fn elapsed(&self) -> Duration {
        self.now - self.base
    }

    /// Advances the clock.
    pub fn advance(&mut self, by: Duration) {
        self.now += by;
    }

    /// Advances the clock to `then`; it never goes back.
    pub fn advance_to(&mut self, then: Instant) {
        self.now = self.now.max(then);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
