//! Remembers a transfer that took longer than its receiver waits, so that larger ones are refused.

use std::time::{Duration, Instant};

use breakbulk_message::ahp::{Chunking, TimeoutFrom};

/// For how long a slow transfer is remembered by default: the path may be faster later.
pub(crate) const SLOW_FOR: Duration = Duration::from_secs(600);

/// A transfer that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slow {
    /// Bytes that went out.
    pub(crate) sent: usize,
    /// How long that took, which is as long as the receiver waits for a transfer.
    pub(crate) within: Duration,
    /// Until when it is remembered.
    pub(crate) until: Instant,
}

impl Slow {
    /// Why a message of this size is refused, if it would take too long again. A receiver whose timeout
    /// starts anew with each segment waits long enough for any size.
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
