//! Measures how fast a large message is sent, to warn early that it will take too long.

use std::time::{Duration, Instant};

/// The client of the crate `ahp` gives up a request after this.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Watches the message that is being sent.
#[derive(Debug)]
pub(super) struct Rate<Id> {
    watched: Option<Watched<Id>>,
}

#[derive(Debug)]
struct Watched<Id> {
    id: Id,
    since: Instant,
    from: usize,
    told: bool,
}

/// A message that will take longer than [`REQUEST_TIMEOUT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slow {
    pub(super) bytes_per_second: u64,
    pub(super) seconds: u64,
}

impl<Id: PartialEq> Rate<Id> {
    pub(super) const NEW: Self = Self { watched: None };

    /// `done` bytes of a message are sent. Returns once for each message that will take too long.
    pub(super) fn progress(
        &mut self,
        id: Id,
        done: usize,
        total: u64,
        now: Instant,
    ) -> Option<Slow> {
        let watched = match &mut self.watched {
            Some(watched) if watched.id == id => watched,
            _ => {
                self.watched = Some(Watched {
                    id,
                    since: now,
                    from: done,
                    told: false,
                });
                return None;
            }
        };
        let passed = now.duration_since(watched.since).as_secs_f64();
        let rate = done.saturating_sub(watched.from) as f64 / passed;
        if watched.told || !rate.is_finite() || rate <= 0.0 {
            return None;
        }
        let seconds = total as f64 / rate;
        if seconds <= REQUEST_TIMEOUT.as_secs_f64() {
            return None;
        }
        watched.told = true;
        Some(Slow {
            bytes_per_second: rate as u64,
            seconds: seconds as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_will_take_too_long_is_told_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut rate = Rate::NEW;
        let (one, two) = (1, 2);
        assert_eq!(rate.progress(one, 1000, 100_000, at(0)), None);
        assert_eq!(rate.progress(one, 2000, 100_000, at(0)), None);
        assert_eq!(rate.progress(one, 3000, 100_000, at(500)), None);
        let slow = Slow {
            bytes_per_second: 1000,
            seconds: 100,
        };
        assert_eq!(rate.progress(one, 4000, 100_000, at(3000)), Some(slow));
        assert_eq!(rate.progress(one, 5000, 100_000, at(9000)), None);
        assert_eq!(rate.progress(two, 1000, 100_000, at(9000)), None);
    }
}
