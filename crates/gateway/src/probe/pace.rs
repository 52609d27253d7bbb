//! How long to wait for an answer, by what the path was seen to take. Does no IO.

use std::time::Duration;

use super::course::{Direction, Question};

/// The rate that is assumed of a path of which nothing is known, in bytes per second.
const UNKNOWN_RATE: f64 = 32e3;

/// The longest time to wait for any answer.
const LONGEST: Duration = Duration::from_secs(120);

/// How fast a path is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// The least time to wait.
    floor: Duration,
    round_trip: Option<Duration>,
    up: Rate,
    down: Rate,
}

/// The largest message that passed in one direction, and how long it took.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    size: usize,
    took: Duration,
}

impl Pace {
    pub(super) fn new(floor: Duration) -> Self {
        Self {
            floor,
            round_trip: None,
            up: Rate::default(),
            down: Rate::default(),
        }
    }

    /// A small message was answered after this time.
    pub(super) fn returned(&mut self, took: Duration) {
        self.round_trip = Some(self.round_trip.map_or(took, |it| it.min(took)));
    }

    /// A message passed in this time.
    pub(super) fn passed(&mut self, question: &Question, took: Duration) {
        let rate = self.rate_mut(question.direction);
        if question.size >= rate.size {
            *rate = Rate {
                size: question.size,
                took,
            };
        }
    }

    /// How long to wait for the answer to a question.
    pub(super) fn patience(&self, question: &Question) -> Duration {
        let rate = match question.direction {
            Direction::Up => self.up,
            Direction::Down => self.down,
        };
        let rate = match rate.size {
            0 => UNKNOWN_RATE,
            size => size as f64 / rate.took.as_secs_f64().max(1e-6),
        };
        let round_trip = self.round_trip.unwrap_or(Duration::from_secs(1));
        let bytes = Duration::try_from_secs_f64(question.size as f64 / rate).unwrap_or(LONGEST);
        let usual = self.floor + round_trip * 8 + bytes.min(LONGEST) * 4;
        let patience = if question.again { usual * 3 } else { usual };
        patience.min(LONGEST)
    }

    /// The shortest time of a round trip.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// The bytes per second of the largest message that passed, without the round trip; with it if the
    /// message took no longer than a small one, so that this is the least it can be.
    pub(super) fn bytes_per_second(&self, direction: Direction) -> Option<f64> {
        let Rate { size, took } = match direction {
            Direction::Up => self.up,
            Direction::Down => self.down,
        };
        let sending = took.saturating_sub(self.round_trip.unwrap_or_default());
        let seconds = if sending.is_zero() { took } else { sending }.as_secs_f64();
        (size > 0 && seconds > 0.0).then(|| size as f64 / seconds)
    }

    fn rate_mut(&mut self, direction: Direction) -> &mut Rate {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::course::Content;

    // PATH-2
    #[test]
    fn patience_follows_what_the_path_was_seen_to_take() {
        let question = |size, again| Question {
            direction: Direction::Up,
            content: Content::Text,
            size,
            fragment: None,
            again,
        };
        let second = Duration::from_secs(1);
        let mut pace = Pace::new(second);
        // Nothing is known: a slow path is assumed.
        assert_eq!(pace.patience(&question(32_000, false)), second * 13);
        pace.returned(Duration::from_millis(200));
        pace.returned(Duration::from_millis(100));
        pace.passed(&question(100_000, false), second);
        let expected = Duration::from_millis(1000 + 800 + 4000);
        assert_eq!(pace.patience(&question(100_000, false)), expected);
        assert_eq!(pace.patience(&question(100_000, true)), expected * 3);
        // A smaller message that passes later does not change the rate.
        pace.passed(&question(1000, false), second);
        assert_eq!(pace.patience(&question(100_000, false)), expected);
        assert_eq!(pace.patience(&question(usize::MAX, true)), LONGEST);
        assert_eq!(pace.round_trip(), Some(Duration::from_millis(100)));
        let rate = pace.bytes_per_second(Direction::Up).unwrap();
        assert!((rate - 111_111.1).abs() < 1.0, "{rate}");
        assert_eq!(pace.bytes_per_second(Direction::Down), None);
        // A message that takes no longer than a small one: the rate is at least its bytes in that time.
        let mut fast = Pace::new(second);
        fast.returned(Duration::from_millis(100));
        fast.passed(&question(1000, false), Duration::from_millis(100));
        assert_eq!(fast.bytes_per_second(Direction::Up), Some(10_000.0));
    }
}
