//! The inputs and outputs of the machine.

use std::sync::Arc;

use breakbulk_message::loro::{ChannelMsg, PeerIdentity, Transmission, VersionVector};
use bytes::Bytes;

/// A document's name.
pub type DocId = Arc<str>;

/// Identifies a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub(crate) u64);

/// Identifies a task on a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub(crate) u64);

/// How a channel was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The name under which the peer connected: authenticated, or its own claim.
    pub claim: String,
    /// The name that the connection was authenticated with.
    pub subject: Option<String>,
    /// Whether this node dialed.
    pub dialed: bool,
    /// Whether this node sends an establish-request. On a data channel both sides do.
    pub sends_establish: bool,
}

/// The stored version and size of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The stored version.
    pub version: VersionVector,
    /// Stored bytes.
    pub size: u64,
}

/// A task on one document. Tasks of one document run in the order they were given.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Imports a peer's changes.
    Import {
        /// In loro's export format.
        data: Bytes,
        /// Whether it is a whole document.
        snapshot: bool,
    },
    /// Exports what a peer lacks.
    Answer {
        /// The peer's version.
        since: VersionVector,
    },
    /// Stores the application's edits.
    Local,
    /// Deletes the document.
    Delete,
    /// Takes what other nodes did to the document in a store that they share.
    Others {
        /// The version that this node's peers were told of.
        since: VersionVector,
    },
}

/// The result of a task. It is passed on once all its changes are stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// The document as it is stored now.
    pub head: Head,
    /// Edits of the application that the task found and stored, to be sent to all subscribers.
    pub local: Option<Transmission>,
    /// The result of the task itself.
    pub result: Result<Outcome, WorkError>,
}

/// The result of a successful task.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The changes are stored; `Some`: they were new, and are to be sent to the other subscribers.
    Imported(Option<Transmission>),
    /// The changes depend on others that are missing here; they were not stored.
    Gap,
    /// The content of the response.
    Answer(Transmission),
    /// The application's edits are stored.
    Local,
    /// The document is deleted; false: it had no content.
    Deleted(bool),
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// The peer's bytes are not valid changes.
    #[error("the changes of document {doc:?} cannot be read ({reason}): sync it again")]
    Garbage {
        /// The document.
        doc: String,
        /// The error of the crate `loro`.
        reason: String,
    },
    /// The document would be too large.
    #[error("document {doc:?} would take {size} bytes, {limit} are allowed: split the document")]
    TooLarge {
        /// The document.
        doc: String,
        /// The size it would have.
        size: u64,
        /// [`Limits::document_bytes`](crate::Limits::document_bytes).
        limit: u64,
    },
    /// The document would be too large once it is decompressed.
    #[error("document {doc:?} would take more than {limit} bytes uncompressed: split the document")]
    Expands {
        /// The document.
        doc: String,
        /// [`Limits::expanded_bytes`](crate::Limits::expanded_bytes).
        limit: u64,
    },
    /// The store does not take changes: it is full, or it failed.
    #[error("{reason}")]
    Store {
        /// The store's error.
        reason: String,
    },
    /// The connection that asked for it is gone.
    #[error("cancelled, because the connection is closed")]
    Cancelled,
    /// The stored document cannot be read.
    #[error("document {doc:?} cannot be read ({reason}): restore it from a copy")]
    Damaged {
        /// The document.
        doc: String,
        /// The error of the crate `loro`.
        reason: String,
    },
}

/// Why a message was refused, with an HTTP status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// 400, 403, 409, 413, 429 or 503.
    pub status: u16,
    /// What is wrong.
    pub error: String,
    /// The document, if it was about one.
    pub doc: Option<DocId>,
}

impl Refused {
    pub(crate) fn new(status: u16, error: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
            doc: None,
        }
    }

    /// The same about a document.
    pub(crate) fn of(mut self, doc: &DocId) -> Self {
        self.doc = Some(doc.clone());
        self
    }
}

/// What the caller must do for the machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send a message to each of these channels.
    Send {
        /// The recipients.
        to: Vec<ChannelId>,
        /// The document, whose lane is used; `None`: the ordered lane.
        doc: Option<DocId>,
        /// The message.
        message: ChannelMsg,
    },
    /// A frame passed to [`Hub::handle_frame`](super::Hub::handle_frame) is handled and stored.
    Settle {
        /// Its channel.
        channel: ChannelId,
        /// Its token.
        token: u64,
        /// Whether it was accepted.
        outcome: Result<(), Refused>,
    },
    /// Run a task on a document, and pass its result to [`Hub::handle_done`](super::Hub::handle_done).
    Task {
        /// Identifies the task.
        id: TaskId,
        /// The document.
        doc: DocId,
        /// What to do.
        work: Work,
        /// The channel and token of the frame whose bytes the task works on.
        origin: Option<(ChannelId, u64)>,
    },
    /// Nobody waits for this task any more: if it has not begun, skip it and report
    /// [`WorkError::Cancelled`].
    Cancel {
        /// Identifies the task.
        id: TaskId,
    },
    /// Call [`Hub::handle_queue`](super::Hub::handle_queue) once the channel's send queue is this short.
    WaitForRoom {
        /// The channel.
        channel: ChannelId,
        /// At most this many messages.
        messages: usize,
        /// At most this many bytes.
        bytes: usize,
    },
    /// Close this channel, which the machine has removed already.
    Close {
        /// The channel.
        channel: ChannelId,
        /// The WebSocket close code.
        code: u16,
        /// Why.
        reason: String,
    },
    /// Something happened that the application may want to know.
    Event(Event),
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A channel was established.
    Established {
        /// Its channel.
        channel: ChannelId,
        /// The peer's identity.
        identity: PeerIdentity,
    },
    /// A channel ended.
    Gone {
        /// The channel.
        channel: ChannelId,
    },
    /// A document changed and the change is stored.
    Changed {
        /// The document.
        doc: DocId,
        /// The stored version.
        version: VersionVector,
    },
    /// A peer responded to a sync-request.
    Answered {
        /// Its channel.
        channel: ChannelId,
        /// The document.
        doc: DocId,
        /// The peer's version; `None`: it does not have the document, or does not show it.
        version: Option<VersionVector>,
    },
    /// A document was deleted on this node.
    Deleted {
        /// The document.
        doc: DocId,
    },
    /// A peer responded to a delete-request.
    DeleteAnswered {
        /// The document.
        doc: DocId,
        /// Whether the peer deleted it.
        deleted: bool,
    },
    /// A peer listed its documents.
    Directory {
        /// Its channel.
        channel: ChannelId,
        /// The documents.
        docs: Vec<DocId>,
    },
    /// Ephemeral stores of a document changed.
    Ephemeral {
        /// The document.
        doc: DocId,
    },
    /// A peer's message was refused.
    Fault {
        /// Its channel.
        channel: ChannelId,
        /// Why.
        reason: String,
    },
    /// Changes of a document could not be stored.
    Failed {
        /// The document.
        doc: DocId,
        /// Why.
        error: WorkError,
    },
}
