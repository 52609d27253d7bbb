//! The pump between two connections: what comes in by one goes out by the other.

mod boxes;
mod end;
mod plain;
mod run;
mod skipped;
mod tunnel;
mod unsent;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use breakbulk_link::{Closed, Event, Key, Limits, Outgoing, SendError, Shape};
use breakbulk_net::Connection;
use bytes::Bytes;

pub use boxes::{BothBoxes, ClientBox, HostBox};
pub use breakbulk_ahp::foreign::Instead;
pub use plain::{Plain, Raw, whole_link};
pub use run::{HELLO, relay};
pub use skipped::{Oversized, Skipped};
pub use tunnel::{NoTunnel, Tunnel, TunnelSettings, greet};

/// What a sender closes with when a message that may not be lost is too large.
pub(crate) const TOO_LARGE: u16 = 4413;

/// One of the two connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that came to us.
    Listen,
    /// The one that we made for it.
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
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listen => "listen",
            Self::To => "to",
        })
    }
}

type Done = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection as the pump sees it.
pub struct Port {
    /// The connection.
    pub connection: Connection,
    /// Done when no more comes in by it, although it is open. Only some transports can tell.
    pub input_ended: Option<Done>,
    /// How the other end is told that no more goes out, although more may come in.
    pub end_output: EndOutput,
    /// Messages that were too large to be taken. Only some transports can skip them
    /// ([`Skipped::of`]); with others such a message is the end.
    pub skipped: Option<Skipped>,
}

/// How a connection ends one way and stays open the other.
#[derive(Default)]
pub enum EndOutput {
    /// It cannot: it is closed.
    #[default]
    Close,
    /// By this message, which goes out after all others.
    Message(Bytes),
    /// By what this does, once all that was queued is out.
    Run(Done),
}

impl Port {
    /// A connection that is open both ways or not at all.
    pub fn new(connection: Connection) -> Self {
        Self {
            connection,
            input_ended: None,
            end_output: EndOutput::Close,
            skipped: None,
        }
    }

    /// A connection over a stream whose directions end one by one.
    #[cfg(feature = "process")]
    pub fn with_ends(connection: Connection, ends: breakbulk_net::process::Ends) -> Self {
        let mut reading = ends.clone();
        Self {
            connection,
            skipped: None,
            input_ended: Some(Box::pin(async move { reading.input_ended().await })),
            end_output: EndOutput::Run(Box::pin(async move { ends.end_output().await })),
        }
    }
}

/// Both connections.
#[derive(Clone, Copy)]
pub struct Ports<'a> {
    /// The one that came to us.
    pub listen: &'a Connection,
    /// The one that we made for it.
    pub to: &'a Connection,
}

impl<'a> Ports<'a> {
    /// The connection of a side.
    pub fn of(self, side: Side) -> &'a Connection {
        match side {
            Side::Listen => self.listen,
            Side::To => self.to,
        }
    }
}

/// What is done to messages on their way.
pub trait Passing: Send {
    /// A message that came in by a side. Its charge goes with it by itself.
    fn pass(&mut self, from: Side, ports: Ports<'_>, message: Incoming<'_>) -> Pass;

    /// What else a connection tells: transfers that begin and fail.
    fn heard(&mut self, _from: Side, _event: &Event) {}

    /// A message could not go out by a side.
    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Instead;

    /// A message that came in by a side was too large to be taken. [`Instead::Replace`] is what then
    /// comes in in its place, and passes like any other; unless it says otherwise, both end.
    fn oversized(&mut self, _from: Side, oversized: &Oversized) -> Instead {
        let Oversized { size, limit, .. } = oversized;
        let reason = format!("a message of {size} bytes is over {limit}");
        Instead::Close(TOO_LARGE, reason)
    }
}

impl Passing for Box<dyn Passing> {
    fn pass(&mut self, from: Side, ports: Ports<'_>, message: Incoming<'_>) -> Pass {
        (**self).pass(from, ports, message)
    }

    fn heard(&mut self, from: Side, event: &Event) {
        (**self).heard(from, event);
    }

    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Instead {
        (**self).not_sent(to, bytes, error)
    }

    fn oversized(&mut self, from: Side, oversized: &Oversized) -> Instead {
        (**self).oversized(from, oversized)
    }
}

/// The numbers of a link in a pump: one message that comes in beside one that still goes out.
fn limits(max_message: usize) -> Limits {
    Limits {
        message: max_message,
        memory: session_memory(max_message),
        queued_bytes: max_message,
        ..Limits::default()
    }
}

/// What one side of a pump may hold of the shared budget.
pub fn session_memory(max_message: usize) -> usize {
    max_message.saturating_mul(2).saturating_add(1 << 20)
}

/// A message on its way.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// What it says.
    pub bytes: Bytes,
    /// What was found in it on the way.
    pub shape: &'a Shape,
    /// The transfer it came by; `None` if it came in one frame.
    pub key: Option<&'a Key>,
}

/// What becomes of a message.
#[derive(Debug)]
pub enum Pass {
    /// It goes out by the other side.
    On(Box<Outgoing>),
    /// It said that no more comes in by this side.
    InputEnded,
    /// It cannot go on: both connections end, with this code and reason.
    Refuse(u16, String),
}

/// How the pump behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long what is queued may take to go out once one side has ended, or all is to end.
    pub grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(10),
        }
    }
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The side that ended first.
    pub side: Side,
    /// Why.
    pub closed: Closed,
    /// Whether its other end closed it, rather than we.
    pub by_peer: bool,
    /// Messages that came in and did not go out.
    pub lost: usize,
}

impl Ended {
    /// Whether both sides said all they had to say.
    pub fn is_clean(&self) -> bool {
        matches!(self.closed.code, 1000 | 1001 | 1005) && self.lost == 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
