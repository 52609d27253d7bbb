//! How a link behaves, as data: what one format does differently from another.

use std::time::Duration;

use crate::FaultKind;

/// The rules of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What a piece of an unknown transfer does.
    pub unknown: Unknown,
    /// How pieces are numbered.
    pub numbering: Numbering,
    /// In which order pieces may come.
    pub order: Order,
    /// What the same piece twice is.
    pub duplicate: Duplicate,
    /// What happens when there is no room for another transfer.
    pub full: Full,
    /// A frame closes the transfer; without one the last piece does.
    pub closing: bool,
    /// How long an unfinished transfer is held.
    pub timeouts: Timeouts,
    /// Whether frames of several messages may be mixed on their way out.
    pub interleave: bool,
    /// What cancelling a message does once its first frame is out.
    pub cancel: OnCancel,
    /// Whether we answer an admitted opening with leave to go on.
    pub accept: bool,
    /// Whether we tell the peer about a failed transfer.
    pub abort: bool,
    /// Whether a whole message or a new transfer ends all that are unfinished.
    pub contiguous: bool,
    /// What a fault ends.
    pub scopes: Scopes,
    /// The code and the words to close with on a fault whose scope is the link.
    pub close: (u16, &'static str),
}

/// What a piece of an unknown transfer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It begins one, if it is the first.
    OpensFirst,
    /// It begins one, whichever it is.
    Opens,
    /// It is late or lost its opening, and is dropped.
    Ignored,
}

/// How pieces are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// From 0.
    FromZero,
    /// On from the opening frame, with or without a slot for the leave between them.
    AfterOpening,
}

/// In which order pieces may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other.
    Strict,
    /// At most so far ahead of the first missing one, and so many waiting.
    Window {
        /// How far ahead.
        ahead: u64,
        /// How many may wait.
        stashed: usize,
    },
    /// In any; what waits counts against the memory of the message.
    Any,
}

/// What the same piece twice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicate {
    /// A fault.
    Fault,
    /// Nothing, if its content is the same.
    IgnoreIfEqual,
}

/// What happens when there is no room for another transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The new one is refused.
    Refuse,
    /// The oldest goes.
    EvictOldest,
}

/// How long an unfinished transfer is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Since its last piece.
    pub idle: Option<Duration>,
    /// Since it began.
    pub age: Option<Duration>,
    /// How long a transfer of ours waits for the peer's leave.
    pub accept: Duration,
}

/// What cancelling does once the first frame is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCancel {
    /// It is finished all the same: the format has no way to stop.
    Finish,
    /// No further frame goes out.
    Stop,
    /// No further frame but the one that says so.
    Abort,
}

/// What a fault ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nothing, and nobody is told.
    Silent,
    /// Nothing, but it is reported; the transfer lives.
    Report,
    /// The transfer.
    Transfer,
    /// The link.
    Link,
}

/// The scopes of all classes of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scopes {
    /// Frames that cannot be read.
    pub frame: Scope,
    /// A piece that came before, or whose index is outside the declared number.
    pub piece: Scope,
    /// A second opening of a transfer that is under way.
    pub reopened: Scope,
    /// A refused transfer, or content that breaks what was declared.
    pub transfer: Scope,
    /// Our own memory is short.
    pub busy: Scope,
    /// Time is up.
    pub timeout: Scope,
}

impl Scopes {
    /// The scope of this fault.
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
            | F::StashFull
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

/// The numbers of a link. Each bounds something that a peer could grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a frame that comes in.
    pub frame: usize,
    /// Bytes of a message that comes in.
    pub message: usize,
    /// Pieces of a message that comes in.
    pub pieces: u64,
    /// Unfinished transfers.
    pub transfers: usize,
    /// Received bytes of all unfinished transfers, as formats with such a limit count them.
    pub pending_bytes: usize,
    /// All memory that this link may hold for messages coming in: allocated bytes and charges.
    pub memory: usize,
    /// Messages that wait for the application before the transport is told to stop reading.
    pub undelivered: usize,
    /// Keys whose late frames are dropped.
    pub discarded: usize,
    /// Messages waiting to go out.
    pub queued: usize,
    /// Bytes of messages waiting to go out.
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
            // Eight messages of that size, each with a quarter of spare room.
            memory: 328 << 20,
            undelivered: 64,
            discarded: 4096,
            queued: 4096,
            queued_bytes: 256 << 20,
        }
    }
}

/// How a link is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What the format demands.
    pub rules: Rules,
    /// What we allow.
    pub limits: Limits,
    /// Whether pieces are taken at all; a format with a negotiation sets it once that is done.
    pub receives_pieces: bool,
    /// How far a frame of a transfer may be ahead of the first of which the transport has not said
    /// that it went through; `None` where the transport reports nothing.
    pub confirm: Option<u32>,
    /// Messages at least this large are planned by whoever takes [`Link::poll_plan`](crate::Link::poll_plan).
    pub plan_elsewhere: Option<usize>,
    /// Whether [`Event::Opened`](crate::Event::Opened) is told.
    pub tell_opened: bool,
    /// Whether a message of one frame goes before the first frame of a larger one in another lane. Off,
    /// messages begin in the order in which they were sent.
    pub small_first: bool,
    /// Progress is told each time so many more bytes are through; 0: never.
    pub progress: usize,
}

impl Config {
    /// The rules of a format with the default numbers.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            limits: Limits::default(),
            receives_pieces: true,
            confirm: None,
            plan_elsewhere: None,
            tell_opened: false,
            small_first: true,
            progress: 1 << 20,
        }
    }
}
