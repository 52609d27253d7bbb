//! What a link tells the peer above it.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::budget::{Charge, LinkBudget};
use crate::frame::{MessageId, TransferId};
use crate::wire::Shape;
use crate::{Closed, Fault, FaultKind, Key, SendError};

/// So many reports of faults wait at most; a flood of them is worth one line, not memory.
const REPORTS: usize = 1024;

/// Places for events that are kept once the queue was emptied.
const KEPT: usize = 64;

/// What happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A whole message came in.
    Message(Message),
    /// A word of the transport's own came in.
    Control(Bytes),
    /// A message of ours was handed to the transport, or through it where the transport tells.
    Sent {
        /// The message.
        id: TransferId,
        /// Its tag.
        tag: u64,
    },
    /// The peer gave leave for a message of ours.
    Accepted {
        /// The message.
        id: TransferId,
        /// Its tag.
        tag: u64,
    },
    /// A message of ours did not go out. It comes back, and holds its place in the lane until
    /// [`Link::replace`](crate::Link::replace) puts another there or gives the place up.
    SendFailed {
        /// The message.
        id: TransferId,
        /// Its tag.
        tag: u64,
        /// Why.
        error: SendError,
        /// The message itself.
        bytes: Bytes,
    },
    /// A message of ours that had begun cannot be finished, and the format cannot take it back: the
    /// link ends with it, and [`Event::Closed`] follows.
    GaveUp {
        /// The message.
        id: TransferId,
        /// Its tag.
        tag: u64,
        /// Why.
        error: SendError,
    },
    /// A large transfer went on.
    Progress {
        /// Which.
        of: ProgressOf,
        /// Bytes that are through.
        done: usize,
        /// Bytes in all, where known.
        total: Option<u64>,
    },
    /// There is room in the queue again.
    Writable,
    /// A frame was wrong; whatever it belonged to lives.
    Fault(Fault),
    /// A transfer of the peer's began; told where [`Config::tell_opened`](crate::Config::tell_opened)
    /// says so. It ends with a message of that key, a failure, or the link.
    Opened(Key),
    /// A transfer of the peer's ended without a message.
    TransferFailed(Fault),
    /// The last late frame of a key that was [discarded](crate::Link::discard) came by: the peer is
    /// done with it.
    Discarded(Key),
    /// The link is closed and stays closed. Everything that was queued is gone with it.
    Closed(Closed),
}

/// Whose progress it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgressOf {
    /// A transfer of the peer's.
    Incoming(Key),
    /// A message of ours.
    Outgoing(TransferId),
}

/// A message that came in. It is charged to the link's budget until it is dropped.
#[derive(Debug)]
pub struct Message {
    /// Its number.
    pub id: MessageId,
    /// What it says.
    pub bytes: Bytes,
    /// What was found in it on the way.
    pub shape: Shape,
    /// The transfer it came by; `None` if it came in one frame.
    pub key: Option<Key>,
    pub(crate) charge: Charge,
}

impl Message {
    /// What it is charged.
    pub fn charged(&self) -> usize {
        self.charge.amount()
    }

    /// Its bytes and its charge, to be dropped together.
    pub fn into_parts(self) -> (Bytes, Charge) {
        (self.bytes, self.charge)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Events {
    /// What a peer can cause is charged while it waits.
    queue: VecDeque<(Event, Option<Charge>)>,
    messages: usize,
    reports: usize,
    /// Reports that were not kept.
    unreported: u64,
}

impl Events {
    /// An end of something of ours, or a message.
    pub(crate) fn push(&mut self, event: Event) {
        self.messages += usize::from(matches!(event, Event::Message(_)));
        self.queue.push_back((event, None));
    }

    /// The end of a transfer, paid for by what the transfer was charged.
    pub(crate) fn push_charged(&mut self, event: Event, mut charge: Charge) {
        let cost = cost(&event).min(charge.amount());
        charge.shrink(charge.amount() - cost);
        self.reports += 1;
        self.queue.push_back((event, Some(charge)));
    }

    /// News that a peer can cause as often as it likes. False: there was no room for it.
    pub(crate) fn report(&mut self, event: Event, budget: &LinkBudget) -> bool {
        match budget.charge(cost(&event)) {
            Ok(charge) if self.reports < REPORTS => {
                self.reports += 1;
                self.queue.push_back((event, Some(charge)));
                true
            }
            _ => {
                self.unreported += 1;
                false
            }
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        let (event, charge) = self.queue.pop_front()?;
        self.messages -= usize::from(matches!(event, Event::Message(_)));
        self.reports -= usize::from(charge.is_some());
        // A flood leaves no large table behind.
        if self.queue.is_empty() && self.queue.capacity() > KEPT {
            self.queue.shrink_to(KEPT);
        }
        Some(event)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Messages that the application has not taken.
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// Whether reports are about to be dropped.
    pub(crate) fn is_flooded(&self) -> bool {
        self.reports >= REPORTS / 2
    }

    pub(crate) fn unreported(&self) -> u64 {
        self.unreported
    }
}

/// What an event costs while it waits: its place in a queue that grows by doubling, and what it holds.
fn cost(event: &Event) -> usize {
    2 * size_of::<(Event, Option<Charge>)>() + allocated(event)
}

/// What an event holds beside its fixed size.
fn allocated(event: &Event) -> usize {
    match event {
        Event::Fault(fault) | Event::TransferFailed(fault) => {
            let reason = match &fault.kind {
                FaultKind::Aborted { reason } => reason.capacity(),
                _ => 0,
            };
            reason + fault.key.as_ref().map_or(0, Key::allocated)
        }
        Event::Progress {
            of: ProgressOf::Incoming(key),
            ..
        } => key.allocated(),
        Event::Opened(key) | Event::Discarded(key) => key.allocated(),
        Event::Control(text) => 64 + text.len(),
        _ => 0,
    }
}
