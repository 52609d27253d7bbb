//! The state of one connection in the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::types::{DocId, Opening, Refused};
use super::waiting::Waiting;
use crate::permissions::Peer;

/// Invalid messages are counted over this long.
const FAULT_WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) opening: Opening,
    /// Until when its peer must establish.
    pub(super) deadline: Instant,
    /// When this node sends its establish-request; `None` once it was sent, or is not needed.
    pub(super) greet_at: Option<Instant>,
    /// `None` until it is established.
    pub(super) peer: Option<Peer>,
    /// Documents whose changes its peer gets.
    pub(super) subscriptions: BTreeSet<DocId>,
    /// Documents that its peer announced, that do not exist here, and whose content was requested.
    pub(super) requested: BTreeSet<DocId>,
    /// What is still to be sent to its peer.
    pub(super) waiting: Waiting,
    /// Messages with unfinished tasks, by token.
    inbound: BTreeMap<u64, Inbound>,
    /// Whether changes that its peer sent were refused because the store accepts none at the moment.
    pub(super) refused: bool,
    faults: Option<(Instant, u32)>,
    /// Documents that its peer created, with or without content.
    pub(super) created: usize,
    /// Bytes of changes that its peer sent.
    pub(super) sent: u64,
}

/// A message with unfinished tasks.
#[derive(Debug)]
struct Inbound {
    /// Unfinished tasks, plus one while the message itself is handled.
    left: usize,
    outcome: Result<(), Refused>,
}

impl Channel {
    pub(super) fn new(opening: Opening, deadline: Instant) -> Self {
        Self {
            opening,
            deadline,
            greet_at: None,
            peer: None,
            subscriptions: BTreeSet::new(),
            requested: BTreeSet::new(),
            waiting: Waiting::default(),
            inbound: BTreeMap::new(),
            refused: false,
            faults: None,
            created: 0,
            sent: 0,
        }
    }

    /// Adds a task to this message.
    pub(super) fn begin(&mut self, token: u64) {
        let inbound = self.inbound.entry(token).or_insert(Inbound {
            left: 0,
            outcome: Ok(()),
        });
        inbound.left += 1;
    }

    /// Ends a task of this message; the first refusal is kept. `Some`: it was the last task.
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

    /// Counts an invalid message; returns how many there were within the window.
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
