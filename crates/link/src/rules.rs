//! The configuration of a link, and the rules in which formats differ, as data.

use std::time::Duration;

use crate::FaultKind;

/// The rules of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What to do with a piece of an unknown transfer.
    pub unknown: Unknown,
    /// How pieces are numbered.
    pub numbering: Numbering,
    /// In which order pieces may come.
    pub order: Order,
    /// What to do with a piece that was received before.
    pub duplicate: Duplicate,
    /// What to do when there is no room for another transfer.
    pub full: Full,
    /// Whether a closing frame ends a transfer; otherwise its last piece does.
    pub closing: bool,
    /// How long an unfinished transfer is kept.
    pub timeouts: Timeouts,
    /// Whether frames of several messages may be sent interleaved.
    pub interleave: bool,
    /// What cancelling a message does once its first frame was sent.
    pub cancel: OnCancel,
    /// Whether this side answers the opening of an admitted transfer with an accept.
    pub accept: bool,
    /// Whether this side sends the peer an abort for a failed transfer.
    pub abort: bool,
    /// Whether messages are sent contiguously, so that a new message ends all unfinished transfers.
    pub contiguous: bool,
    /// What a fault ends.
    pub scopes: Scopes,
    /// The close code, and the beginning of the close reason, for a fault whose scope is the link.
    pub close: (u16, &'static str),
}

/// What to do with a piece of an unknown transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The first piece begins a transfer; others are faults.
    OpensFirst,
    /// Any piece begins a transfer.
    Opens,
    /// The piece is dropped: it is late, or its opening frame was lost.
    Ignored,
}

/// How pieces are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// From 0.
    FromZero,
    /// From the opening frame's number on: the first piece is 1 above it, or 2 if the sender reserves a
    /// number for the accept frame.
    AfterOpening {
        /// A piece that is further ahead than this, while the one with the first number is missing, shows that this
        /// number is reserved.
        reserved: u64,
    },
}

/// In which order pieces may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Only in order.
    Strict,
    /// Within a window ahead of the first missing piece.
    Window {
        /// How far ahead a piece may be.
        ahead: u64,
        /// How many pieces may wait for the missing one.
        stashed: usize,
    },
    /// In any order; pieces that wait count against the memory of the message.
    Any,
}

/// What to do with a piece that was received before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicate {
    /// It is a fault.
    Fault,
    /// It is ignored if its content is the same, otherwise a fault.
    IgnoreIfEqual,
}

/// What to do when there is no room for another transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The new transfer is refused.
    Refuse,
    /// The oldest transfer is dropped.
    EvictOldest,
}

/// How long an unfinished transfer is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The limit since its last piece.
    pub idle: Option<Duration>,
    /// The limit since it began.
    pub age: Option<Duration>,
    /// The limit since it began grows by a second for each this many bytes that came in, so that a slow path
    /// is not mistaken for a peer that sends a few bytes now and then.
    pub age_rate: Option<usize>,
    /// How long an outgoing transfer waits for the peer's accept.
    pub accept: Duration,
}

/// What cancelling a message does once its first frame was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCancel {
    /// The message is sent to its end: the format has no way to stop.
    Finish,
    /// No further frame is sent.
    Stop,
    /// An abort frame is sent, and nothing else.
    Abort,
}

/// What a fault ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nothing; the fault is not reported.
    Silent,
    /// Nothing; the fault is reported, and the transfer goes on.
    Report,
    /// The transfer.
    Transfer,
    /// The link.
    Link,
}

/// The scope of each class of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scopes {
    /// Frames that cannot be read.
    pub frame: Scope,
    /// A piece that was received before, or whose index is out of range.
    pub piece: Scope,
    /// A second opening frame for an open transfer.
    pub reopened: Scope,
    /// A refused transfer, or content that contradicts what was declared.
    pub transfer: Scope,
    /// This side's memory budget is exhausted.
    pub busy: Scope,
    /// A timeout.
    pub timeout: Scope,
}

impl Scopes {
    /// The scope of a fault.
    pub fn of(&self, fault: &FaultKind) -> Scope {
        use FaultKind as F;
        match fault {
            F::FrameTooLarge { .. }
            | F::WrongCarrier
            | F::NotUtf8
            | F::NotJson
            | F::Malformed { .. }
            | F::UnknownProtocol
            | F::UnknownKind
            | F::WrongStream
            | F::NotNegotiated => self.frame,
            F::Duplicate { .. } | F::BadIndex { .. } => self.piece,
            F::Reopened => self.reopened,
            F::Busy => self.busy,
            F::TimedOut { .. } => self.timeout,
            F::BadOpening { .. }
            | F::UnknownMode
            | F::TooManyTransfers { .. }
            | F::TooManyPieces { .. }
            | F::MessageTooLarge { .. }
            | F::Inconsistent { .. }
            | F::Conflict { .. }
            | F::OutOfOrder { .. }
            | F::BeyondWindow { .. }
            | F::StashFull { .. }
            | F::Overrun { .. }
            | F::Incomplete { .. }
            | F::SizeMismatch { .. }
            | F::DigestMismatch
            | F::NotJsonRpc
            | F::Batch
            | F::Nested
            | F::Aborted { .. }
            | F::Superseded
            | F::Evicted => self.transfer,
        }
    }
}

/// The limits of a link. Each limits something that a peer could otherwise make grow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The largest incoming frame, in bytes.
    pub frame: usize,
    /// The largest incoming message, in bytes.
    pub message: usize,
    /// The most pieces of an incoming message.
    pub pieces: u64,
    /// The most unfinished incoming transfers.
    pub transfers: usize,
    /// The most received bytes of all unfinished transfers, for formats that have such a limit.
    pub pending_bytes: usize,
    /// The memory for incoming messages: allocated bytes and fixed charges.
    pub memory: usize,
    /// How many messages may wait for the application before reading stops.
    pub undelivered: usize,
    /// How many discarded keys are remembered.
    pub discarded: usize,
    /// The most messages in the send queue.
    pub queued: usize,
    /// The most bytes in the send queue.
    pub queued_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame: 4 << 20,
            message: 32 << 20,
            pieces: 1 << 20,
            transfers: 8,
            pending_bytes: usize::MAX,
            // Eight messages of the largest size, each with a quarter of spare room.
            memory: 328 << 20,
            undelivered: 64,
            discarded: 4096,
            queued: 4096,
            queued_bytes: 256 << 20,
        }
    }
}

/// The configuration of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The rules of the format.
    pub rules: Rules,
    /// The limits of this side.
    pub limits: Limits,
    /// Whether pieces are accepted at all; a format with a negotiation sets it afterwards.
    pub receives_pieces: bool,
    /// For a transport that confirms each frame: how far a frame of a transfer may be ahead of the
    /// oldest unconfirmed one. `None` if the transport confirms nothing.
    pub confirm: Option<u32>,
    /// Messages of at least this size are planned by [`Link::poll_plan`](crate::Link::poll_plan), on
    /// another thread; `None` plans all messages within the link.
    pub plan_elsewhere: Option<usize>,
    /// Whether [`Event::Opened`](crate::Event::Opened) is reported.
    pub report_opened: bool,
    /// Whether a message of one frame is sent before the first frame of a larger one in another
    /// lane. If false, messages begin in the order in which they were queued.
    pub small_first: bool,
    /// Progress is reported after each this many bytes; 0 never reports it.
    pub progress: usize,
}

crate::with!(Config, Limits);

impl Config {
    /// The rules of a format, with default limits.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            limits: Limits::default(),
            receives_pieces: true,
            confirm: None,
            plan_elsewhere: None,
            report_opened: false,
            small_first: true,
            progress: 1 << 20,
        }
    }
}
