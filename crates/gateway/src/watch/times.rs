//! A histogram of durations with fixed bounds: single values are not kept, so a gateway that nobody looks at
//! stores nothing for later.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::counts::add_alone;

/// The upper bounds of the buckets, in seconds.
pub const BUCKETS: [f64; 12] = [
    0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0,
];

/// The bounds in microseconds.
const MICROSECONDS: [u64; 12] = [
    100, 500, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 10_000_000,
    60_000_000,
];

/// Durations, by bucket. One task alone writes here.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// How many durations are within each bound and over the one before; the last count is of those over all
    /// bounds.
    counts: [AtomicU64; MICROSECONDS.len() + 1],
    sum: AtomicU64,
}

/// A snapshot of a histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimesView {
    /// How many durations are within each of [`BUCKETS`], those within the bounds before included.
    pub within: [u64; BUCKETS.len()],
    /// How many there are in all.
    pub count: u64,
    /// Their sum in seconds.
    pub sum: f64,
}

impl AddAssign<&TimesView> for TimesView {
    fn add_assign(&mut self, other: &Self) {
        for (within, more) in self.within.iter_mut().zip(other.within) {
            *within += more;
        }
        self.count += other.count;
        self.sum += other.sum;
    }
}

impl Times {
    pub(super) fn record(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = MICROSECONDS.partition_point(|bound| *bound < micros);
        add_alone(&self.counts[bucket], 1);
        add_alone(&self.sum, micros);
    }

    pub(super) fn view(&self) -> TimesView {
        let mut view = TimesView::default();
        for (index, count) in self.counts.iter().enumerate() {
            view.count += count.load(Relaxed);
            if let Some(within) = view.within.get_mut(index) {
                *within = view.count;
            }
        }
        view.sum = self.sum.load(Relaxed) as f64 / 1e6;
        view
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_its_bucket_and_all_larger_ones() {
        for (micros, first) in [
            (0, 0),
            (100, 0),
            (101, 1),
            (1_000, 2),
            (60_000_000, 11),
            (60_000_001, 12),
        ] {
            let times = Times::default();
            times.record(Duration::from_micros(micros));
            let view = times.view();
            let within: Vec<u64> = (0..BUCKETS.len())
                .map(|at| u64::from(at >= first))
                .collect();
            assert_eq!(view.within.to_vec(), within, "{micros}");
            assert_eq!((view.count, view.sum), (1, micros as f64 / 1e6));
            let mut both = view.clone();
            both += &view;
            assert_eq!(both.within, view.within.map(|count| 2 * count));
            assert_eq!((both.count, both.sum), (2, 2.0 * view.sum));
        }
        for (seconds, micros) in BUCKETS.into_iter().zip(MICROSECONDS) {
            assert_eq!(
                Duration::from_secs_f64(seconds),
                Duration::from_micros(micros)
            );
        }
    }
}
