//! What a transfer that was too slow for its receiver has shown, so that a larger one is not tried.

use std::time::{Duration, Instant};

use breakbulk_message::ahp::{Chunking, TimeoutFrom};

/// For how long it is believed where nothing else is said: the path may be another by then.
pub(crate) const SLOW_FOR: Duration = Duration::from_secs(600);

/// What a transfer that was given up has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slow {
    /// Bytes that went out.
    pub(crate) sent: usize,
    /// In this time, which is all that the receiver gives a transfer.
    pub(crate) within: Duration,
    /// For how long it is believed.
    pub(crate) until: Instant,
}

impl Slow {
    /// Why a message of this size is not tried, if it would be too slow again. Who counts from the last
    /// segment has all the time.
    pub(crate) fn refuses(
        &self,
        receiver: Option<&Chunking>,
        size: usize,
        now: Instant,
    ) -> Option<String> {
        let from_first = receiver.is_some_and(|it| it.timeout_from == TimeoutFrom::First);
        if !from_first || now >= self.until || size <= self.sent {
            return None;
        }
        Some(format!(
            "message too large for this path: {size} bytes, and only {} went out in the {} s that the receiver gives a message; send less or raise its groupTimeoutMs",
            self.sent,
            self.within.as_secs_f64()
        ))
    }
}
