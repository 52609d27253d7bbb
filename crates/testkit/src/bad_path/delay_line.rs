//! The rate limit and the delay of one direction.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// The most bytes read at once.
pub(super) const CHUNK: usize = 16 * 1024;

/// The most bytes that are delayed at a time.
const ROOM: usize = 4 * 1024 * 1024;

/// The most chunks that are delayed at a time, so that single-byte chunks cannot fill memory.
const READS: usize = 4096;

/// Delayed chunks, each with the time when it is due.
#[derive(Debug, Default)]
pub(super) struct DelayLine {
    waiting: VecDeque<(Instant, Bytes)>,
    bytes: usize,
}

impl DelayLine {
    pub(super) fn has_room(&self, delay: Duration) -> bool {
        if delay.is_zero() {
            self.waiting.is_empty()
        } else {
            self.bytes < ROOM && self.waiting.len() < READS
        }
    }

    /// Adds a chunk; an empty one stands for the end of the stream.
    pub(super) fn push(&mut self, due: Instant, bytes: Bytes) {
        self.bytes += bytes.len();
        self.waiting.push_back((due, bytes));
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.front().map(|(due, _)| *due)
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        let (_, bytes) = self.waiting.pop_front()?;
        self.bytes -= bytes.len();
        Some(bytes)
    }
}

/// A token bucket with small bursts.
#[derive(Debug)]
pub(super) struct Bucket {
    rate: Option<u64>,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    pub(super) fn new(rate: Option<u64>, now: Instant) -> Self {
        Self {
            rate,
            tokens: 0.0,
            filled: now,
        }
    }

    pub(super) fn set_rate(&mut self, rate: Option<u64>, now: Instant) {
        if self.rate != rate {
            *self = Self::new(rate, now);
        }
    }

    /// How many bytes may be forwarded now, or when to ask again.
    pub(super) fn allowance(&mut self, now: Instant) -> Result<usize, Instant> {
        let Some(rate) = self.rate else {
            return Ok(CHUNK);
        };
        // The bucket holds the bytes of 4 ms, since timers have a resolution of 1 ms; at slow rates those
        // of 100 ms, but at most 4 KiB.
        let burst = (rate / 250).max((rate / 10).min(4096)).max(1) as f64;
        let rate = rate.max(1) as f64;
        let refill = (now - self.filled).as_secs_f64() * rate;
        self.tokens = (self.tokens + refill).min(burst);
        self.filled = now;
        let enough = (burst / 2.0).max(1.0);
        if self.tokens >= enough {
            Ok((self.tokens as usize).min(CHUNK))
        } else {
            Err(now + Duration::from_secs_f64((enough - self.tokens) / rate))
        }
    }

    pub(super) fn take(&mut self, bytes: usize) {
        if self.rate.is_some() {
            self.tokens -= bytes as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_rate_on_timers_of_a_millisecond() {
        for rate in [1, 10, 1000, 64_000, 4_000_000, 300_000_000] {
            let start = Instant::now();
            let (mut now, mut passed) = (start, 0.0);
            let mut bucket = Bucket::new(Some(rate), start);
            let seconds = 10;
            while now < start + Duration::from_secs(seconds) {
                match bucket.allowance(now) {
                    Ok(bytes) => {
                        bucket.take(bytes);
                        passed += bytes as f64;
                    }
                    Err(refill) => now = refill + Duration::from_millis(1),
                }
            }
            let due = (rate * seconds) as f64;
            assert!(passed <= due, "{passed} at {rate}");
            assert!(passed >= due * 0.9, "{passed} at {rate}");
        }
    }

    #[test]
    fn a_line_is_bounded_by_bytes_and_by_reads() {
        let delay = Duration::from_secs(1);
        for (chunk, reads) in [(1, READS), (CHUNK, ROOM / CHUNK)] {
            let mut line = DelayLine::default();
            for read in 0..reads {
                assert!(line.has_room(delay), "{read} reads of {chunk}");
                line.push(Instant::now(), Bytes::from(vec![0; chunk]));
            }
            assert!(!line.has_room(delay), "{reads} reads of {chunk}");
            line.pop();
            assert!(line.has_room(delay));
            assert!(!line.has_room(Duration::ZERO));
        }
    }
}
