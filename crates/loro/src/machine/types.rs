//! What goes into the machine and comes out of it.

use std::sync::Arc;

use breakbulk_message::loro::{ChannelMsg, PeerIdentity, Transmission, VersionVector};
use bytes::Bytes;

/// A document's name.
pub type DocId = Arc<str>;

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub(crate) u64);

/// Something to be done to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub(crate) u64);

/// How a channel begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The name under which the peer came.
    pub claim: String,
    /// Whether this side called.
    pub dialed: bool,
    /// Whether this side says first who it is. Both do on a data channel.
    pub greets: bool,
}

/// A document as it is kept: how far, and how large.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The version that is kept.
    pub version: VersionVector,
    /// Bytes that are kept.
    pub size: u64,
}

/// What is to be done to one document. Tasks of one document are done in the order they were given.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Takes a peer's changes.
    Import {
        /// As loro exports it.
        data: Bytes,
        /// Whether it is a whole document.
        snapshot: bool,
    },
    /// What somebody lacks who has this much.
    Answer {
        /// What it has.
        since: VersionVector,
    },
    /// Keeps what was edited on this side.
    Local,
    /// Forgets the document.
    Delete,
}

/// What became of a task. It is told once everything in it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// The document as it is kept now.
    pub head: Head,
    /// Edits of this side that were found on the way, to be told to everybody.
    pub local: Option<Transmission>,
    /// What the task itself came to.
    pub result: Result<Outcome, WorkError>,
}

/// What a task came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The changes are kept; `Some`: they were news, and are to be told to the others.
    Imported(Option<Transmission>),
    /// The changes build on others that are missing here; they were not kept.
    Gap,
    /// What to answer.
    Answer(Transmission),
    /// Edits of this side are kept.
    Local,
    /// It is gone; false: there was nothing.
    Deleted(bool),
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// The peer's bytes are no changes of a document.
    #[error("the changes of document {doc:?} cannot be read ({reason}): sync it again")]
    Garbage {
        /// The document.
        doc: String,
        /// What loro says.
        reason: String,
    },
    /// The document would be too large.
    #[error("document {doc:?} would take {size} bytes, {limit} are allowed: split the document")]
    TooLarge {
        /// The document.
        doc: String,
        /// What it would take.
        size: u64,
        /// What is allowed.
        limit: u64,
    },
    /// The store failed: nothing is kept any more.
    #[error("{reason}")]
    Store {
        /// What it says.
        reason: String,
    },
    /// The document itself is damaged.
    #[error("document {doc:?} cannot be read ({reason}): restore it from a copy")]
    Damaged {
        /// The document.
        doc: String,
        /// What loro says.
        reason: String,
    },
}

/// Why a message was not taken, in HTTP's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// 400, 403, 409, 413, 429 or 503.
    pub status: u16,
    /// What is wrong.
    pub error: String,
}

impl Refused {
    pub(crate) fn new(status: u16, error: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
        }
    }
}

/// What is to be done for the machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send this message to each of these, in the document's lane.
    Send {
        /// To whom.
        to: Vec<ChannelId>,
        /// Which lane.
        doc: Option<DocId>,
        /// What.
        message: ChannelMsg,
    },
    /// A message that came in is done with.
    Settle {
        /// Where it came in.
        channel: ChannelId,
        /// What it was called.
        token: u64,
        /// Whether it was taken.
        outcome: Result<(), Refused>,
    },
    /// Do this to a document, and tell with [`Hub::handle_done`](super::Hub::handle_done).
    Task {
        /// What it is called.
        id: TaskId,
        /// The document.
        doc: DocId,
        /// What to do.
        work: Work,
    },
    /// Close this channel. It is gone from the machine already.
    Close {
        /// Which.
        channel: ChannelId,
        /// The code.
        code: u16,
        /// Why.
        reason: String,
    },
    /// Something that the application may want to know.
    Event(Event),
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A peer said who it is.
    Established {
        /// Its channel.
        channel: ChannelId,
        /// Who it is.
        identity: PeerIdentity,
    },
    /// A channel ended.
    Gone {
        /// Which.
        channel: ChannelId,
    },
    /// A document changed and the change is kept.
    Changed {
        /// The document.
        doc: DocId,
        /// What is kept now.
        version: VersionVector,
    },
    /// A peer answered a sync-request: it has this much.
    Answered {
        /// Its channel.
        channel: ChannelId,
        /// The document.
        doc: DocId,
        /// What it has; `None`: it does not have the document, or does not show it.
        version: Option<VersionVector>,
    },
    /// A document was deleted here.
    Deleted {
        /// The document.
        doc: DocId,
    },
    /// A peer answered a delete-request.
    DeleteAnswered {
        /// The document.
        doc: DocId,
        /// Whether it is gone there.
        deleted: bool,
    },
    /// A peer told which documents it has.
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
    /// A message of a peer was refused.
    Fault {
        /// Its channel.
        channel: ChannelId,
        /// Why.
        reason: String,
    },
    /// Edits of this side could not be kept.
    Failed {
        /// The document.
        doc: DocId,
        /// Why.
        error: WorkError,
    },
}
