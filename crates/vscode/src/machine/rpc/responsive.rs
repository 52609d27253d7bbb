//! Whether the peer acknowledges what it is asked.

use std::time::{Duration, Instant};

/// Counts what is owed, and watches the time.
#[derive(Debug)]
pub(super) struct Responsive {
    after: Duration,
    every: Duration,
    owed: usize,
    /// From when on it is too long.
    late_at: Option<Instant>,
    check_at: Option<Instant>,
    unresponsive: bool,
}

/// What an acknowledgement changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acknowledged {
    ForNothing,
    Expected,
    BackToLife,
}

impl Responsive {
    pub(super) fn new(after: Duration, every: Duration) -> Self {
        Self {
            after,
            every,
            owed: 0,
            late_at: None,
            check_at: None,
            unresponsive: false,
        }
    }

    pub(super) fn owed(&self) -> usize {
        self.owed
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.check_at
    }

    /// A request went out.
    pub(super) fn sent(&mut self, now: Instant) {
        if self.owed == 0 {
            self.late_at = Some(now + self.after);
        }
        self.owed += 1;
        self.check_at.get_or_insert(now + self.every);
    }

    /// A request did not reach the peer after all.
    pub(super) fn lost(&mut self) {
        self.owed = self.owed.saturating_sub(1);
        if self.owed == 0 {
            self.check_at = None;
        }
    }

    /// Whichever request it names, it counts as one; more than were owed count as none, where the
    /// original goes below zero and then misses that a peer is unresponsive.
    pub(super) fn acknowledged(&mut self, now: Instant) -> Acknowledged {
        if self.owed == 0 {
            return Acknowledged::ForNothing;
        }
        self.owed -= 1;
        self.late_at = Some(now + self.after);
        if self.owed == 0 {
            self.check_at = None;
        }
        match std::mem::take(&mut self.unresponsive) {
            true => {
                // The original looks again only with the next request; a peer that acknowledges one
                // of many and falls silent would count as responsive for ever.
                if self.owed > 0 {
                    self.check_at = Some(now + self.every);
                }
                Acknowledged::BackToLife
            }
            false => Acknowledged::Expected,
        }
    }

    /// True if it became too long just now.
    pub(super) fn check(&mut self, now: Instant) -> bool {
        if self.check_at.is_none_or(|at| now < at) {
            return false;
        }
        let late = self.late_at.is_some_and(|at| now >= at);
        self.check_at = (!late).then_some(now + self.every);
        self.unresponsive |= late;
        late
    }
}
