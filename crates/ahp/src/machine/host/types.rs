//! The inputs and outputs of a host, and the trait by which it asks the application.

use std::sync::Arc;

use breakbulk_link::{Charge, Outgoing, TransferId};
use breakbulk_message::ahp::{Chunking, InitializeParams, Origin, ReconnectParams};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::dispatch::Dispatching;
use super::error::RpcError;
use super::introduce::Introduction;
use super::write::Writing;

/// A connection, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub(super) u64);

/// A request that the application works on, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(super) u64);

/// The questions that a host asks its application synchronously.
///
/// `snapshot`, `permits`, `apply` and `has_room` are called while the machine is borrowed, so that a
/// snapshot is exactly the state after the actions that it claims to contain.
pub trait Channels {
    /// The state of a channel, or `None` if there is no such channel (any more).
    fn snapshot(&self, channel: &str) -> Option<State>;

    /// Whether this client may see this channel.
    fn permits(&self, _client_id: &str, _channel: &str) -> bool {
        true
    }

    /// An action became visible.
    fn apply(&self, action: &Applied<'_>);

    /// Whether an action of this many bytes could be published now
    /// ([`Pending::has_room`](super::Pending::has_room)).
    fn has_room(&self, bytes: usize) -> bool;

    /// Decides on an `initialize`; see [`Introduction::read`].
    fn initialize(&self, _params: &InitializeParams<'_>) -> Result<Extras, RpcError> {
        Ok(Extras::default())
    }

    /// Decides on a `reconnect`; see [`Introduction::read`].
    fn reconnect(&self, _params: &ReconnectParams<'_>) -> Result<(), RpcError> {
        Ok(())
    }
}

/// What the caller of the machine has to do. All but [`Output::Work`] is done at once and in order.
#[derive(Debug)]
pub enum Output {
    /// Queue this message on the client's link. If the link rejects it:
    /// [`Host::handle_rejected`](super::Host::handle_rejected).
    Send {
        /// The receiver.
        client: ClientId,
        /// The message.
        message: Outgoing,
    },
    /// Put this in the place of a message that could not be sent ([`breakbulk_link::Link::replace`]).
    Replace {
        /// Whose link.
        client: ClientId,
        /// The message that failed.
        id: TransferId,
        /// What to send in its place, if anything.
        with: Option<Outgoing>,
    },
    /// The handshake is done: configure the link with the client's limits
    /// ([`Config::apply_peer`](crate::Config::apply_peer)).
    Negotiated {
        /// Whose link.
        client: ClientId,
        /// The client's limits; `None` if it takes no segments.
        peer: Option<Chunking>,
    },
    /// Close the client's connection.
    Close {
        /// Whose connection.
        client: ClientId,
        /// The code of the close frame.
        code: u16,
        /// Its reason.
        reason: String,
        /// Whether to wait for the queue.
        when: When,
    },
    /// Do something that may take long, or that calls the application: the client's next message waits
    /// for it, and no other client does.
    Work {
        /// For which client.
        client: ClientId,
        /// What to do.
        work: Work,
    },
}

/// When a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Now: what is queued is dropped.
    Now,
    /// Once all that is queued is sent.
    AfterQueue,
}

/// Work that is done while the machine is not borrowed.
#[derive(Debug)]
pub enum Work {
    /// Read a handshake and ask the application: [`Introduction::read`], then
    /// [`Host::handle_introduced`](super::Host::handle_introduced).
    Introduce(Introduction),
    /// Write an answer that contains states or a replay: [`Writing::run`], then
    /// [`Host::handle_written`](super::Host::handle_written).
    Write(Box<Writing>),
    /// Let the application decide on an action: [`Dispatching::run`], then
    /// [`Host::handle_dispatched`](super::Host::handle_dispatched).
    Dispatch(Dispatching),
    /// Let the application answer a request:
    /// [`Host::handle_answer`](super::Host::handle_answer). The client's next message does not wait
    /// for it, unless the client has its maximum of open requests.
    Call(RequestId, Call),
    /// Let others have their turn, then call
    /// [`Host::handle_continue`](super::Host::handle_continue): many messages of the client waited, and
    /// not all of them are handled yet.
    Continue,
}

/// What an application answers to a request.
pub type Answer = Result<Box<RawValue>, RpcError>;

/// The state of a channel as JSON, cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct State(Option<Arc<RawValue>>);

impl State {
    /// A state.
    pub fn new(state: impl Into<Arc<RawValue>>) -> Self {
        Self(Some(state.into()))
    }

    /// A channel that has no state: subscribers get its actions and no snapshot.
    pub fn none() -> Self {
        Self(None)
    }

    pub(super) fn json(&self) -> Option<&str> {
        self.0.as_deref().map(RawValue::get)
    }
}

/// An action that became visible.
#[derive(Clone, Copy, Debug)]
pub struct Applied<'a> {
    /// The channel.
    pub channel: &'a str,
    /// Its number.
    pub seq: i64,
    /// What happens, as JSON.
    pub action: &'a str,
    /// Which client dispatched it.
    pub origin: Option<&'a Origin<'static>>,
    /// Why it was refused; then it changes nothing.
    pub rejection: Option<&'a str>,
}

/// An action that a client dispatched.
#[derive(Clone, Copy, Debug)]
pub struct Dispatch<'a> {
    /// The client.
    pub client_id: &'a str,
    /// Its own number for it.
    pub client_seq: i64,
    /// The channel.
    pub channel: &'a str,
    /// What shall happen.
    pub action: &'a RawValue,
}

impl<'a> Dispatch<'a> {
    /// Who dispatched it.
    pub fn origin(&self) -> Origin<'a> {
        Origin {
            client_id: self.client_id.into(),
            client_seq: self.client_seq,
        }
    }
}

/// A client's request. Its memory is charged to that client until it is dropped.
#[derive(Debug)]
pub struct Call {
    pub(super) client_id: Arc<str>,
    pub(super) method: String,
    pub(super) params: Bytes,
    pub(super) _charge: Charge,
}

impl Call {
    /// The client.
    pub fn client_id(&self) -> &Arc<str> {
        &self.client_id
    }

    /// The method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The params as JSON, `null` where there are none.
    pub fn params(&self) -> &str {
        // The wire has checked that it is UTF-8.
        std::str::from_utf8(&self.params).unwrap_or("null")
    }
}

/// Members of the `initialize` result that the application adds, such as `serverInfo`.
#[derive(Clone, Debug, Default)]
pub struct Extras(pub(super) Vec<(String, Box<RawValue>)>);

impl Extras {
    /// Adds a member. Those that the host writes itself cannot be changed.
    pub fn with(mut self, name: &str, value: Box<RawValue>) -> Self {
        let taken = ["protocolVersion", "serverSeq", "snapshots", "capabilities"];
        if !taken.contains(&name) {
            self.0.push((name.to_owned(), value));
        }
        self
    }
}
