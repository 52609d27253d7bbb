//! The events that a link reports to the layer above it.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::budget::{Charge, LinkBudget};
use crate::frame::{MessageId, TransferId};
use crate::wire::Shape;
use crate::{Closed, Fault, FaultKind, Key, SendError};

/// How many reports that a peer can cause are queued; more are only counted.
const REPORTS: usize = 1024;

/// The capacity that an empty queue keeps.
const KEPT: usize = 64;

/// What happened on a link.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A complete message came in.
    Message(Message),
    /// A control message came in, such as a ping in text form.
    Control(Bytes),
    /// All frames of a message were given to the transport; if the transport confirms frames, all were
    /// confirmed.
    Sent {
        /// The message.
        id: TransferId,
        /// Its tag.
        tag: u64,
        /// How many frames it took.
        frames: u64,
    },
    /// The peer accepted a transfer of this side.
    Accepted {
        /// The message.
        id: TransferId,
        /// Its tag.
        tag: u64,
    },
    /// A message could not be sent. It is returned, and keeps its place in the lane until
    /// [`Link::replace`](crate::Link::replace) puts another message there or frees the place.
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
    /// A message that was partly sent cannot be finished, and the format cannot abort it: the link
    /// closes, and [`Event::Closed`] follows.
    GaveUp {
        /// The message.
        id: TransferId,
        /// Its tag.
        tag: u64,
        /// Why.
        error: SendError,
    },
    /// Progress of a large transfer.
    Progress {
        /// Which transfer.
        of: ProgressOf,
        /// Bytes sent or received.
        done: usize,
        /// The total, if known.
        total: Option<u64>,
    },
    /// The send queue has room again.
    Writable,
    /// A frame was faulty; its transfer, if any, goes on. There is no such event for a fault that closes the
    /// link ([`Scope::Link`](crate::Scope::Link)): [`Event::Closed`] has its text as the reason, and
    /// [`Link::handle_frame`](crate::Link::handle_frame) returns it.
    Fault(Fault),
    /// The peer opened a transfer; reported if
    /// [`Config::report_opened`](crate::Config::report_opened) is set. It ends with a message of
    /// that key, with `TransferFailed`, or with the link.
    Opened(Key),
    /// A transfer of the peer ended without a message.
    TransferFailed(Fault),
    /// The last frame of a [discarded](crate::Link::discard) key came in: no more will come.
    Discarded(Key),
    /// The link is closed, for good. Everything that was queued is dropped.
    Closed(Closed),
}

/// Which transfer a progress report is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgressOf {
    /// A transfer of the peer.
    Incoming(Key),
    /// A message of this side.
    Outgoing(TransferId),
}

/// A message that came in. It is charged to the link's budget until it is dropped.
#[derive(Debug)]
pub struct Message {
    /// Its number.
    pub id: MessageId,
    /// The content.
    pub bytes: Bytes,
    /// What parsing found in it.
    pub shape: Shape,
    /// The transfer it came by; `None` if it came in one frame.
    pub key: Option<Key>,
    /// How many pieces it came in; 1 if it came in one frame.
    pub pieces: u64,
    pub(crate) charge: Charge,
}

impl Message {
    /// The memory that it is charged, in bytes.
    pub fn charged(&self) -> usize {
        self.charge.amount()
    }

    /// Its bytes and its charge; drop them together.
    pub fn into_parts(self) -> (Bytes, Charge) {
        (self.bytes, self.charge)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
    /// The charges of the [reports](is_report) in the queue, in the same order: events that a peer can cause
    /// carry one while they are queued. A queue of its own, since most events are no reports.
    charges: VecDeque<Charge>,
    messages: usize,
    /// How many reports were dropped.
    unreported: u64,
}

impl Events {
    /// Queues a message, or an event about this side's own messages: not limited.
    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        debug_assert!(!is_report(&event));
        self.messages += usize::from(matches!(event, Event::Message(_)));
        self.queue.push_back(event);
    }

    /// Queues the end of a transfer, charged with a part of the transfer's own charge.
    pub(crate) fn push_charged(&mut self, event: Event, mut charge: Charge) {
        let cost = cost(&event).min(charge.amount());
        charge.shrink(charge.amount() - cost);
        self.push_report(event, charge);
    }

    fn push_report(&mut self, event: Event, charge: Charge) {
        debug_assert!(is_report(&event));
        self.charges.push_back(charge);
        self.queue.push_back(event);
    }

    /// Queues an event that a peer can cause as often as it likes; returns false if it was dropped.
    pub(crate) fn report(&mut self, event: Event, budget: &LinkBudget) -> bool {
        match budget.charge(cost(&event)) {
            Ok(charge) if self.charges.len() < REPORTS => {
                self.push_report(event, charge);
                true
            }
            _ => {
                self.unreported += 1;
                false
            }
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        let first = self.queue.front()?;
        self.messages -= usize::from(matches!(first, Event::Message(_)));
        if !self.charges.is_empty() && is_report(first) {
            self.charges.pop_front();
        }
        // Releases the memory that a flood of events took, once the last one is being taken.
        if self.queue.capacity() > KEPT && self.queue.len() == 1 {
            self.queue.shrink_to(KEPT);
            self.charges.shrink_to(KEPT);
        }
        self.queue.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Messages that the application has not taken.
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// Whether the queue of reports is half full, so that reading should stop.
    pub(crate) fn is_flooded(&self) -> bool {
        self.charges.len() >= REPORTS / 2
    }

    pub(crate) fn unreported(&self) -> u64 {
        self.unreported
    }
}

/// Whether an event is one that a peer can cause as often as it likes, without a message of its own.
fn is_report(event: &Event) -> bool {
    match event {
        Event::Control(_)
        | Event::Progress { .. }
        | Event::Fault(_)
        | Event::Opened(_)
        | Event::TransferFailed(_)
        | Event::Discarded(_) => true,
        Event::Message(_)
        | Event::Sent { .. }
        | Event::Accepted { .. }
        | Event::SendFailed { .. }
        | Event::GaveUp { .. }
        | Event::Writable
        | Event::Closed(_) => false,
    }
}

/// What a queued event costs: its entries in queues that grow by doubling, and its allocations.
fn cost(event: &Event) -> usize {
    2 * (size_of::<Event>() + size_of::<Charge>()) + allocated(event)
}

/// What an event has allocated, in addition to its fixed size.
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
