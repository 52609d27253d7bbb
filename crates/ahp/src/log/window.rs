//! Which run of numbers a log keeps, and what is trimmed when a batch is appended; used by all logs.

use super::{Entry, Limits, LogError, Replay};

/// The actions `floor + 1 ..= last` are kept, every one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) floor: i64,
    pub(super) last: i64,
    /// The total cost of the kept actions.
    pub(super) bytes: u64,
}

/// What appending a batch would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admission {
    /// The part of the batch from this index on is kept.
    pub(super) keep_from: usize,
    /// What that part costs.
    bytes: u64,
    /// All actions kept so far are trimmed, since there would be a gap between them and the batch.
    clears: bool,
    last: i64,
}

impl Window {
    pub(super) const EMPTY: Self = Self {
        floor: 0,
        last: 0,
        bytes: 0,
    };

    /// How many actions are kept.
    pub(super) fn count(&self) -> u64 {
        self.last.abs_diff(self.floor)
    }

    /// Checks the numbers of a batch and finds the part of it that fits.
    pub(super) fn admit(&self, batch: &[Entry], limits: Limits) -> Result<Admission, LogError> {
        let mut last = self.last;
        for (at, entry) in batch.iter().enumerate() {
            let follows = if at == 0 {
                entry.seq > last
            } else {
                last.checked_add(1) == Some(entry.seq)
            };
            if !follows {
                return Err(LogError::OutOfOrder {
                    last,
                    got: entry.seq,
                });
            }
            last = entry.seq;
        }
        let mut keep_from = batch.len();
        let mut bytes = 0u64;
        for entry in batch.iter().rev() {
            let more = bytes.saturating_add(entry.cost());
            if more > limits.bytes || batch.len() - keep_from >= limits.count {
                if entry.cost() > limits.bytes {
                    tracing::warn!(
                        seq = entry.seq,
                        cost = entry.cost(),
                        limit = limits.bytes,
                        "an action is larger than the whole replay log; clients that miss it get snapshots"
                    );
                }
                break;
            }
            bytes = more;
            keep_from -= 1;
        }
        let jumps = batch
            .first()
            .is_some_and(|first| self.last.checked_add(1) != Some(first.seq));
        Ok(Admission {
            keep_from,
            bytes,
            clears: jumps || keep_from > 0,
            last,
        })
    }

    /// The window after the batch is appended; `oldest` are the costs of the kept actions, oldest first.
    pub(super) fn after<E>(
        &self,
        admission: &Admission,
        batch: &[Entry],
        limits: Limits,
        oldest: impl IntoIterator<Item = Result<u64, E>>,
    ) -> Result<Self, E> {
        let kept = (batch.len() - admission.keep_from) as u64;
        if admission.clears {
            return Ok(Self {
                floor: admission.last - kept as i64,
                last: admission.last,
                bytes: admission.bytes,
            });
        }
        let mut next = Self {
            floor: self.floor,
            last: admission.last,
            bytes: self.bytes.saturating_add(admission.bytes),
        };
        if next.fits(limits) {
            return Ok(next);
        }
        for cost in oldest {
            next.bytes = next.bytes.saturating_sub(cost?);
            next.floor += 1;
            if next.fits(limits) {
                break;
            }
        }
        Ok(next)
    }

    fn fits(&self, limits: Limits) -> bool {
        self.bytes <= limits.bytes && self.count() <= limits.count as u64
    }

    /// [`Replay::Gone`] if not all actions after `seq` are kept.
    pub(super) fn missing(&self, seq: i64) -> Option<Replay> {
        (seq < self.floor || seq > self.last).then_some(Replay::Gone {
            from: self.floor,
            last: self.last,
        })
    }
}
