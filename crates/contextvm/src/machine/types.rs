//! What passes in and out of a machine.

use crate::machine::{EventId, PublicKey, Seal};
use breakbulk_link::{Charge, Fault};
use bytes::Bytes;

use crate::machine::Failure;
use crate::machine::learned::Learned;

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It asks one server.
    Client {
        /// That server.
        server: PublicKey,
    },
    /// It answers whoever may ask.
    Server,
}

/// An event that came in and was opened.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Who signed it.
    pub from: PublicKey,
    /// The inner event's id.
    pub id: EventId,
    /// Its tags.
    pub tags: Vec<Vec<String>>,
    /// Its text.
    pub content: Bytes,
    /// How it travelled.
    pub seal: Seal,
}

/// Names what is to be published, for [`Machine::handle_signed`](super::Machine::handle_signed) and
/// [`Machine::handle_sent`](super::Machine::handle_sent).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublishId(pub(super) u64);

/// Names a message that was taken for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SendId(pub(crate) u64);

/// Something to be signed and published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Its name.
    pub id: PublishId,
    /// For whom.
    pub to: PublicKey,
    /// The text.
    pub content: String,
    /// All tags.
    pub tags: Vec<Vec<String>>,
    /// How it travels.
    pub seal: Seal,
}

/// Which way a transfer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To us.
    In,
    /// To the peer.
    Out,
}

/// A message for the application. It is charged until it is dropped.
#[derive(Debug)]
pub struct InboundMessage {
    /// Who sent it.
    pub peer: PublicKey,
    /// The JSON-RPC text.
    pub bytes: Bytes,
    pub(crate) charge: Option<Charge>,
}

impl InboundMessage {
    /// Its bytes, and the charge to be dropped with them; an error that was made here has none.
    pub fn into_parts(self) -> (Bytes, Option<Charge>) {
        (self.bytes, self.charge)
    }
}

/// What happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message for the application: the peer's own, plain progress of a transfer under the
    /// application's token, or an error in the place of an answer.
    Message(InboundMessage),
    /// A large transfer went on.
    Progress {
        /// With whom.
        peer: PublicKey,
        /// Its token on the wire.
        token: String,
        /// Which way.
        way: Way,
        /// Bytes that are through.
        done: usize,
        /// Bytes in all.
        total: Option<u64>,
    },
    /// A message of ours is with a relay, whole.
    Sent {
        /// To whom.
        peer: PublicKey,
        /// The message.
        id: SendId,
    },
    /// A message of ours did not do what it was sent for.
    Failed {
        /// To whom.
        peer: PublicKey,
        /// The message.
        id: SendId,
        /// Why.
        failure: Failure,
    },
    /// A transfer of a peer's failed; the peer was told.
    TransferFailed {
        /// Whose.
        peer: PublicKey,
        /// Why.
        fault: Fault,
    },
    /// A peer said what it can do.
    Learned {
        /// Who.
        peer: PublicKey,
        /// All that is known of it now.
        learned: Learned,
    },
    /// A peer made room for another. If it speaks again it is a new one.
    Gone {
        /// Who.
        peer: PublicKey,
    },
}

/// Why a message was not taken for sending.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A client speaks to its server alone, a server to those who spoke to it.
    #[error("{0} is not among the peers; a server can only answer who asked")]
    NoSuchPeer(String),
    /// An answer to nothing.
    #[error("no request with the id {0} waits for an answer; it may have been cancelled")]
    NoSuchRequest(String),
    /// Another request with this id waits for its answer.
    #[error("a request with the id {0} still waits for its answer; use another id")]
    IdInUse(String),
    /// Too much is waiting already.
    #[error("{0} messages wait to go out, which is the limit; wait for some of them")]
    QueueFull(usize),
}

/// Figures for tests and logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Peers that are held.
    pub peers: usize,
    /// Memory charged for what peers sent.
    pub memory: usize,
    /// Messages of ours that are not fully out.
    pub outgoing: usize,
    /// Requests of ours without an answer.
    pub asked: usize,
    /// Requests of peers without an answer.
    pub served: usize,
    /// Unfinished transfers of peers.
    pub transfers: usize,
    /// Events that were not for us or came again.
    pub ignored: u64,
    /// Peers that made room for others.
    pub evicted: u64,
}
