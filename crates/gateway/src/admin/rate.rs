//! How many requests are answered in a second, whoever asks: the limits by address do not count programs of
//! this machine.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use breakbulk_link::lock;

/// Lets a number of requests through per second, and that many at once after a pause.
#[derive(Debug)]
pub(super) struct Rate {
    pause: Duration,
    /// The time until which the requests so far are paid for.
    paid_until: Mutex<Option<Instant>>,
}

impl Rate {
    pub(super) fn new(per_second: u32) -> Self {
        Self {
            pause: Duration::from_secs(1) / per_second.max(1),
            paid_until: Mutex::new(None),
        }
    }

    /// Counts a request; false if there are too many.
    pub(super) fn take(&self, now: Instant) -> bool {
        let mut paid_until = lock(&self.paid_until);
        let begin = paid_until.map_or(now, |until| until.max(now));
        let granted = begin < now + Duration::from_secs(1);
        if granted {
            *paid_until = Some(begin + self.pause);
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_room_for_so_many() {
        let (rate, start) = (Rate::new(10), Instant::now());
        let granted = |at: u64, times: usize| {
            let now = start + Duration::from_millis(at);
            (0..times).filter(|_| rate.take(now)).count()
        };
        assert_eq!(granted(0, 50), 10);
        assert_eq!(granted(100, 50), 1);
        assert_eq!(granted(600, 50), 5);
        assert_eq!(granted(9000, 50), 10);
    }
}
