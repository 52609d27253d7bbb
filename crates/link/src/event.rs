//! What a link tells the peer above it.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::budget::Charge;
use crate::frame::{MessageId, TransferId};
use crate::wire::Shape;
use crate::{Closed, Fault, Key, SendError};

/// So many reports of faults wait at most; a flood of them is worth one line, not memory.
const REPORTS: usize = 1024;

/// What happened.
#[derive(Debug)]
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
    /// A message of ours did not go out. It comes back.
    SendFailed {
        /// The message.
        id: TransferId,
        /// Its tag.
        tag: u64,
        /// Why.
        error: SendError,
        /// The message itself.
        bytes: Bytes,
        /// It holds its place in the lane until [`Link::replace`](crate::Link::replace).
        holds_lane: bool,
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
    /// A transfer of the peer's ended without a message.
    TransferFailed(Fault),
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
    queue: VecDeque<Event>,
    messages: usize,
    reports: usize,
    /// Reports that were not kept.
    unreported: u64,
}

impl Events {
    pub(crate) fn push(&mut self, event: Event) {
        match &event {
            Event::Message(_) => self.messages += 1,
            Event::Fault(_)
            | Event::TransferFailed(_)
            | Event::Progress { .. }
            | Event::Control(_) => {
                if self.reports >= REPORTS {
                    self.unreported += 1;
                    return;
                }
                self.reports += 1;
            }
            _ => {}
        }
        self.queue.push_back(event);
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        let event = self.queue.pop_front()?;
        match &event {
            Event::Message(_) => self.messages -= 1,
            Event::Fault(_)
            | Event::TransferFailed(_)
            | Event::Progress { .. }
            | Event::Control(_) => self.reports -= 1,
            _ => {}
        }
        Some(event)
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
