//! The inputs and outputs of a machine.

use crate::machine::{EventId, PublicKey, Seal};
use breakbulk_link::{Charge, Fault};
use bytes::Bytes;

use crate::machine::Failure;
use crate::machine::learned::Learned;
use crate::machine::prepared::Kind;

/// Client or server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Talks to one server.
    Client {
        /// The server's public key.
        server: PublicKey,
    },
    /// Answers all clients that are allowed.
    Server,
}

/// An event from a relay, decrypted if it was a gift wrap.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The key that signed it.
    pub from: PublicKey,
    /// Its id; for a gift wrap the inner event's.
    pub id: EventId,
    /// Its tags.
    pub tags: Vec<Vec<String>>,
    /// Its text.
    pub content: Bytes,
    /// The form in which it came.
    pub seal: Seal,
    /// When it was made, in Unix seconds by its author's clock; for a gift wrap the inner event's time:
    /// the wrap's own may be any.
    pub created_at: u64,
    /// When it came, in Unix seconds by our clock.
    pub received_at: u64,
}

/// Identifies a publication, for [`Machine::handle_signed`](super::Machine::handle_signed) and
/// [`Machine::handle_sent`](super::Machine::handle_sent).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublishId(pub(super) u64);

/// Identifies a message that was queued for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SendId(pub(crate) u64);

/// An event to be signed and published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Identifies this publication.
    pub id: PublishId,
    /// The recipient.
    pub to: PublicKey,
    /// The text.
    pub content: String,
    /// All tags.
    pub tags: Vec<Vec<String>>,
    /// The form in which it is published.
    pub seal: Seal,
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Incoming.
    In,
    /// Outgoing, to the peer.
    Out,
}

/// A message for the application. Its bytes count against the memory limits until it is dropped.
#[derive(Debug)]
pub struct InboundMessage {
    /// Who sent it.
    pub peer: PublicKey,
    /// Request, notification or response.
    pub kind: Kind,
    /// The JSON-RPC text.
    pub bytes: Bytes,
    pub(crate) charge: Option<Charge>,
}

impl InboundMessage {
    /// The bytes, and the memory charge to be dropped with them; an error made by the machine itself
    /// has no charge.
    pub fn into_parts(self) -> (Bytes, Option<Charge>) {
        (self.bytes, self.charge)
    }
}

/// An event for the caller.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message for the application: from the peer, or made by the machine itself (progress of a
    /// transfer under the application's token, or an error response to a request that failed).
    Message(InboundMessage),
    /// A chunked transfer progressed.
    Progress {
        /// The peer.
        peer: PublicKey,
        /// Its token on the wire.
        token: String,
        /// The direction.
        way: Way,
        /// Bytes sent or received so far.
        done: usize,
        /// Bytes in all.
        total: Option<u64>,
    },
    /// A relay has accepted a sent message in full.
    Sent {
        /// The receiver.
        peer: PublicKey,
        /// The message.
        id: SendId,
    },
    /// A sent message failed, or a request got no response. A request that failed is answered with an
    /// error here, and a response is replaced by an error to the peer; a notification is lost.
    Failed {
        /// The receiver.
        peer: PublicKey,
        /// The message.
        id: SendId,
        /// Request, notification or response.
        kind: Kind,
        /// Why.
        failure: Failure,
    },
    /// An incoming transfer failed; an abort was sent to the peer.
    TransferFailed {
        /// The peer.
        peer: PublicKey,
        /// Why.
        fault: Fault,
    },
    /// A peer announced features.
    Learned {
        /// The peer.
        peer: PublicKey,
        /// All that is known about it now.
        learned: Learned,
    },
    /// A peer was evicted because the table is full. Its next event makes a new peer of it.
    Gone {
        /// The peer.
        peer: PublicKey,
    },
}

/// Why a message was not queued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A client sends only to its server, a server only to clients it has heard from.
    #[error("{0} has sent this server nothing, and a server can only answer its clients")]
    NoSuchPeer(String),
    /// A response without an open request.
    #[error("no request with the id {0} waits for an answer; it may have been cancelled")]
    NoSuchRequest(String),
    /// A request with this id is still open.
    #[error("a request with the id {0} still waits for its answer; use another id")]
    IdInUse(String),
    /// The queue to this peer is full.
    #[error("{0} messages wait to go out, which is the limit; wait for some of them")]
    QueueFull(usize),
}

/// Figures for tests and logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Peers in the table.
    pub peers: usize,
    /// Bytes charged for what peers sent.
    pub memory: usize,
    /// Messages that are not sent in full.
    pub outgoing: usize,
    /// Requests to peers without a response.
    pub asked: usize,
    /// Requests from peers without a response.
    pub served: usize,
    /// Unfinished incoming transfers.
    pub transfers: usize,
    /// Events dropped: not allowed, not encrypted where required, too old or too new, or duplicates.
    pub ignored: u64,
    /// Peers evicted so far.
    pub evicted: u64,
    /// Notifications of the application that could not be sent: nobody waits for an answer to them.
    pub lost: u64,
}
