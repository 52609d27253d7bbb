//! One connection, as the machine sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::types::{DocId, Opening, Refused};
use crate::permissions::Peer;

/// Bad messages are counted over this long.
const FAULT_WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) opening: Opening,
    /// When it must have said who it is.
    pub(super) deadline: Instant,
    /// `None` until it said so.
    pub(super) peer: Option<Peer>,
    /// What its peer is told about.
    pub(super) subscriptions: BTreeSet<DocId>,
    /// Messages that are being worked on.
    inbound: BTreeMap<u64, Inbound>,
    faults: Option<(Instant, u32)>,
    /// Documents that it created.
    pub(super) created: usize,
    /// Bytes of changes that it sent.
    pub(super) sent: u64,
}

/// A message that came in.
#[derive(Debug)]
struct Inbound {
    /// Tasks, and the reading itself.
    left: usize,
    outcome: Result<(), Refused>,
}

impl Channel {
    pub(super) fn new(opening: Opening, deadline: Instant) -> Self {
        Self {
            opening,
            deadline,
            peer: None,
            subscriptions: BTreeSet::new(),
            inbound: BTreeMap::new(),
            faults: None,
            created: 0,
            sent: 0,
        }
    }

    /// One more task for this message.
    pub(super) fn begin(&mut self, token: u64) {
        let inbound = self.inbound.entry(token).or_insert(Inbound {
            left: 0,
            outcome: Ok(()),
        });
        inbound.left += 1;
    }

    /// One task less; the first refusal counts. `Some`: that was the last.
    pub(super) fn end(
        &mut self,
        token: u64,
        outcome: Result<(), Refused>,
    ) -> Option<Result<(), Refused>> {
        let inbound = self.inbound.get_mut(&token)?;
        if inbound.outcome.is_ok() {
            inbound.outcome = outcome;
        }
        inbound.left -= 1;
        if inbound.left > 0 {
            return None;
        }
        self.inbound.remove(&token).map(|inbound| inbound.outcome)
    }

    /// Counts a bad message: how many there were lately.
    pub(super) fn count_fault(&mut self, now: Instant) -> u32 {
        let (since, count) = match self.faults {
            Some((since, count)) if now.saturating_duration_since(since) < FAULT_WINDOW => {
                (since, count)
            }
            _ => (now, 0),
        };
        self.faults = Some((since, count.saturating_add(1)));
        count.saturating_add(1)
    }
}
