//! Detects a peer that does not acknowledge requests.

use std::time::{Duration, Instant};

/// Counts unacknowledged requests and the time since the last acknowledgement.
#[derive(Debug)]
pub(super) struct Responsive {
    after: Duration,
    every: Duration,
    unacknowledged: usize,
    /// When the peer becomes unresponsive.
    late_at: Option<Instant>,
    check_at: Option<Instant>,
    unresponsive: bool,
}

/// The effect of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acknowledged {
    Surplus,
    Expected,
    ResponsiveAgain,
}

impl Responsive {
    pub(super) fn new(after: Duration, every: Duration) -> Self {
        Self {
            after,
            every,
            unacknowledged: 0,
            late_at: None,
            check_at: None,
            unresponsive: false,
        }
    }

    pub(super) fn unacknowledged(&self) -> usize {
        self.unacknowledged
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.check_at
    }

    /// A request was sent.
    pub(super) fn sent(&mut self, now: Instant) {
        if self.unacknowledged == 0 {
            self.late_at = Some(now + self.after);
        }
        self.unacknowledged += 1;
        self.check_at.get_or_insert(now + self.every);
    }

    /// A request could not be sent.
    pub(super) fn lost(&mut self) {
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
        if self.unacknowledged == 0 {
            self.check_at = None;
        }
    }

    /// Counts an acknowledgement, whichever request it names. Surplus ones are ignored; the original's
    /// counter goes below zero and then misses that a peer is unresponsive.
    pub(super) fn acknowledged(&mut self, now: Instant) -> Acknowledged {
        if self.unacknowledged == 0 {
            return Acknowledged::Surplus;
        }
        self.unacknowledged -= 1;
        self.late_at = Some(now + self.after);
        if self.unacknowledged == 0 {
            self.check_at = None;
        }
        match std::mem::take(&mut self.unresponsive) {
            true => {
                // The original checks again only after the next request; a peer that acknowledges
                // one of many and then stops would count as responsive for ever.
                if self.unacknowledged > 0 {
                    self.check_at = Some(now + self.every);
                }
                Acknowledged::ResponsiveAgain
            }
            false => Acknowledged::Expected,
        }
    }

    /// Checks the time if that is due. True if the peer became unresponsive just now.
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
