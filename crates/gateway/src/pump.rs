//! The pump between two ports: messages received by one are sent by the other.
//!
//! Each direction is held back by its own receiver alone: a message stays charged to the side it came by
//! until it is sent on the other, so that a slow receiver stops its sender and nobody else. A [`Passing`]
//! may edit the messages on their way.

mod batch;
mod boxes;
mod end;
mod instead;
mod open_requests;
mod plain;
mod port;
mod process_id;
mod receiver;
mod refused;
mod run;
mod skipped;
mod tunnel;
mod unanswered;
mod unsent;

use std::fmt;
use std::time::Duration;

use breakbulk_link::{Closed, Event, Key, Limits, MessageId, Outgoing, SendError, Shape};
use bytes::Bytes;

pub use boxes::{BothBoxes, ClientBox, HostBox};
pub use breakbulk_ahp::foreign::Instead as Replacement;
pub(crate) use breakbulk_ahp::host::close::TOO_LARGE;
#[cfg(feature = "otlp")]
pub(crate) use open_requests::{Step, steps};
pub use plain::{Plain, Raw, whole_link};
pub use port::Port;
#[cfg(feature = "nostr")]
pub(crate) use port::{Arrived, Channel, Heard, Outcome};
pub use process_id::NoProcessId;
pub(crate) use receiver::{ForReceivers, ReceiverLimit};
pub use refused::{Cutting, RefusedFrame};
#[cfg(feature = "nostr")]
pub(crate) use run::HELLO;
pub use run::relay;
pub(crate) use run::{Stopped, relay_watched};
pub(crate) use skipped::Missed;
pub use skipped::{Oversized, Skipped};
pub use tunnel::Tunnel;
pub(crate) use unanswered::unanswered_words;

/// One of the two ends of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that programs connect to.
    Listen,
    /// The target, to which the gateway connects.
    To,
}

impl Side {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Listen => Self::To,
            Self::To => Self::Listen,
        }
    }

    /// The program at it, in words for a log.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Listen => "the client",
            Self::To => "the target",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listen => "listen",
            Self::To => "to",
        })
    }
}

/// How messages are edited between the two sides, and what is done about those that cannot be sent.
pub trait Passing: Send {
    /// A message came in by a side. The pump moves its charge along with it.
    fn pass(&mut self, from: Side, message: Incoming<'_>) -> Pass;

    /// Another event of the link of a side: transfers that begin and fail.
    fn heard(&mut self, _from: Side, _event: &Event) {}

    /// Whether a request with this method gets no error when nobody is left to answer it: the close of the
    /// connection tells its sender, which then connects and asks again.
    fn asks_again(&self, _method: &str) -> bool {
        false
    }

    /// A message with a tag of its own was sent by a side.
    fn sent(&mut self, _to: Side, _tag: u64) {}

    /// A message could not be sent by a side.
    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Replacement;

    /// A message that arrived by a side was too large and was skipped. The message of a
    /// [`Replacement::Replace`] takes its place. The default closes both sides.
    fn oversized(&mut self, _from: Side, oversized: &Oversized) -> Replacement {
        let Oversized { size, limit, .. } = oversized;
        let reason = format!("a message of {size} bytes is over {limit}");
        Replacement::Close(TOO_LARGE, reason)
    }
}

impl Passing for Box<dyn Passing> {
    fn pass(&mut self, from: Side, message: Incoming<'_>) -> Pass {
        (**self).pass(from, message)
    }

    fn heard(&mut self, from: Side, event: &Event) {
        (**self).heard(from, event);
    }

    fn asks_again(&self, method: &str) -> bool {
        (**self).asks_again(method)
    }

    fn sent(&mut self, to: Side, tag: u64) {
        (**self).sent(to, tag);
    }

    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Replacement {
        (**self).not_sent(to, bytes, error)
    }

    fn oversized(&mut self, from: Side, oversized: &Oversized) -> Replacement {
        (**self).oversized(from, oversized)
    }
}

/// The limits of a link in a pump: room for one message that arrives while another is still being sent.
pub(crate) fn limits(max_message: usize) -> Limits {
    Limits::default().with(|limits| {
        limits.message = max_message;
        limits.memory = session_memory(max_message);
        limits.queued_bytes = max_message;
    })
}

/// The most bytes that one side of a pump holds of the shared budget.
pub fn session_memory(max_message: usize) -> usize {
    max_message.saturating_mul(2).saturating_add(1 << 20)
}

/// A message on its way.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The message.
    pub bytes: Bytes,
    /// The byte ranges of its id, method and params.
    pub shape: &'a Shape,
    /// The transfer it came by; `None` if it came in one frame.
    pub key: Option<&'a Key>,
    /// The name by which its connection can be told what became of it.
    pub id: Option<MessageId>,
}

/// What to do with a message.
#[derive(Debug)]
pub enum Pass {
    /// Send this by the other side.
    On(Box<Outgoing>),
    /// Do not pass it on: it announces that no more messages arrive by this side.
    InputEnded,
    /// Close both sides with this code and reason.
    Refuse(u16, String),
}

/// The options of the pump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// How long what is queued may take to be sent once one side has ended, or the pump is stopped.
    pub grace: Duration,
}

breakbulk_link::with!(Options);

impl Default for Options {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(10),
        }
    }
}

/// How the pump between two sides ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The side that was closed first.
    pub side: Side,
    /// The close code and reason.
    pub closed: Closed,
    /// Whether its other end closed it, rather than this gateway.
    pub by_peer: bool,
    /// Messages that arrived and were not sent.
    pub lost: usize,
    /// Requests that were not answered by the program they were sent to. Their senders got an error, as
    /// far as they could be reached.
    pub unanswered: usize,
    /// Messages of which only a part arrived.
    pub incomplete: usize,
    /// Bytes that were read from a stream and belong to no whole message.
    pub unframed: u64,
    /// The frame that was too large, if the other end closed with 1009.
    pub refused: Option<RefusedFrame>,
}

impl Ended {
    /// Whether both sides closed normally, with all messages sent and all requests answered.
    pub fn is_clean(&self) -> bool {
        is_normal(self.closed.code) && !self.has_losses()
    }

    /// Whether a message or an answer was lost.
    pub fn has_losses(&self) -> bool {
        self.lost + self.unanswered + self.incomplete > 0 || self.unframed > 0
    }
}

/// Whether a close code says that a side ended normally.
fn is_normal(code: u16) -> bool {
    matches!(code, 1000 | 1001 | 1005)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod lost_tests;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
