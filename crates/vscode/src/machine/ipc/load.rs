//! Measures whether this process is too busy to tell the peer's silence from its own delay.

use std::time::{Duration, Instant};

const TICKS: usize = 10;
const EVERY: Duration = Duration::from_secs(1);

/// Records when each one-second tick really came.
#[derive(Debug)]
pub(super) struct Load {
    ticks: [Option<Instant>; TICKS],
    next: usize,
    due: Instant,
}

impl Load {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            // Assume no load before the first tick.
            ticks: [Some(now); TICKS],
            next: 0,
            due: now + EVERY,
        }
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Starts over after a time without ticks, so that they do not count as missed.
    pub(super) fn reset(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    pub(super) fn tick(&mut self, now: Instant) {
        if now >= self.due {
            self.ticks[self.next] = Some(now);
            self.next = (self.next + 1) % TICKS;
            self.due = now + EVERY;
        }
    }

    /// Whether half of the last ticks are older than they would be in an idle process.
    pub(super) fn is_high(&self, now: Instant) -> bool {
        let window = EVERY * (TICKS as u32 + 1);
        let recent = self.ticks.iter().flatten();
        let recent = recent.filter(|&&at| now.duration_since(at) <= window);
        recent.count() * 2 <= TICKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_ticks_are_load() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut load = Load::new(start);
        for second in 1..=30 {
            load.tick(at(second));
            assert!(!load.is_high(at(second)));
        }
        // The process was stopped: only one tick in the last eleven seconds.
        load.tick(at(60));
        assert!(load.is_high(at(60)));
        for second in 61..=64 {
            load.tick(at(second));
            assert!(load.is_high(at(second)), "{second}");
        }
        load.tick(at(65));
        assert!(!load.is_high(at(65)));
    }
}
