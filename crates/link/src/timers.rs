//! All deadlines of a link, in one table, each with a reason.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::TransferId;

/// The key of a timer in the table.
pub(crate) type TimerKey = (Instant, u64);

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The timeout of an incoming transfer, by its serial number.
    Incoming(u64),
    /// An outgoing transfer that waits for the peer's accept.
    Accept(TransferId),
    /// The peer's timeout for an outgoing transfer.
    Outgoing(TransferId),
}

impl Timer {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Incoming(_) => "unfinished transfer",
            Self::Accept(_) => "waiting for accept",
            Self::Outgoing(_) => "peer's transfer timeout",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    table: BTreeMap<TimerKey, Timer>,
    serial: u64,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Instant, timer: Timer) -> TimerKey {
        self.serial += 1;
        let key = (at, self.serial);
        self.table.insert(key, timer);
        key
    }

    pub(crate) fn remove(&mut self, key: Option<TimerKey>) {
        if let Some(key) = key {
            self.table.remove(&key);
        }
    }

    pub(crate) fn next(&self) -> Option<(Instant, &'static str)> {
        self.table
            .first_key_value()
            .map(|((at, _), timer)| (*at, timer.reason()))
    }

    /// Removes one timer that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        let entry = self.table.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    pub(crate) fn clear(&mut self) {
        self.table.clear();
    }
}
