//! Errors: why a message could not be sent, what a peer did wrong, why a link closed. Each text has the
//! figures and says what to change.

use std::fmt;
use std::time::Duration;

use crate::Key;

/// Why a message cannot be sent, or was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The message is larger than the receiver accepts.
    MessageTooLarge {
        /// Bytes of the message.
        size: usize,
        /// The receiver's limit.
        limit: usize,
    },
    /// The message does not fit in one frame, and must not be cut.
    FrameTooLarge {
        /// The size of the frame, as the cap counts.
        size: usize,
        /// The cap.
        limit: usize,
        /// Why it must not be cut.
        uncut: Uncut,
    },
    /// The cap leaves no room for a piece.
    CapTooSmall {
        /// The cap.
        cap: usize,
        /// The smallest cap that would suffice.
        needed: usize,
    },
    /// The format has no room for such a large size.
    FormatLimit {
        /// Bytes of the message.
        size: usize,
        /// The largest size of the format.
        limit: usize,
    },
    /// The format or the receiver does not allow that many pieces.
    TooManyPieces {
        /// Bytes of the message.
        size: usize,
        /// The most pieces that the format or the receiver allows.
        limit: u64,
        /// The cap.
        cap: usize,
    },
    /// The message contains a raw line break, and frames are sent as lines.
    RawNewline,
    /// The message is not UTF-8, and the wire carries text.
    NotUtf8,
    /// The key does not have the form that the wire requires.
    BadKey {
        /// What it must be.
        expected: &'static str,
    },
    /// Another message is being sent with this key.
    KeyInUse {
        /// The key.
        key: Key,
    },
    /// The send queue is full; wait for [`Event::Writable`](crate::Event::Writable).
    QueueFull {
        /// What is in the queue.
        queued: usize,
        /// The limit.
        limit: usize,
        /// What both count.
        unit: Unit,
    },
    /// The peer did not accept the transfer in time.
    NotAccepted {
        /// How long this side waited.
        waited: Duration,
    },
    /// The peer aborted the transfer.
    Aborted {
        /// The peer's reason.
        reason: String,
    },
    /// The transport is too slow for the peer's timeout.
    TooSlow {
        /// Bytes of the message.
        size: usize,
        /// Bytes that were sent in that time.
        sent: usize,
        /// The peer's timeout.
        limit: Duration,
    },
    /// The transport refused a frame as too large.
    Refused {
        /// Bytes of the refused frame.
        size: usize,
    },
    /// The transport lost a frame.
    Lost,
    /// The link is closed.
    Closed,
}

/// What the numbers of an error count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Messages.
    Messages,
    /// Control words.
    Words,
    /// Pieces of a message.
    Pieces,
    /// Bytes.
    Bytes,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Messages => "messages",
            Self::Words => "control words",
            Self::Pieces => "pieces",
            Self::Bytes => "bytes",
        })
    }
}

/// Why a message must not be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncut {
    /// The peer did not announce that it can assemble pieces.
    NotNegotiated,
    /// The format requires the caller to name the transfer, and the message has no key.
    NoKey,
    /// The caller requires this message to be sent in one frame.
    NotAllowed,
    /// The message is a JSON-RPC batch.
    Batch,
    /// The wire has no pieces.
    NoPieces,
}

impl std::error::Error for SendError {}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MessageTooLarge { size, limit } => write!(f, "message of {size} bytes exceeds the receiver's limit of {limit}; raise the receiver's maximum message size or send less"),
            Self::FrameTooLarge { size, limit, uncut } => write!(f, "frame of {size} bytes exceeds the cap of {limit} and cannot be cut: {uncut}"),
            Self::CapTooSmall { cap, needed } => write!(f, "a frame cap of {cap} bytes leaves no room for data; it must be at least {needed} bytes"),
            Self::FormatLimit { size, limit } => write!(
                f,
                "message of {size} bytes is over the {limit} that this format can count; use another wire"
            ),
            Self::TooManyPieces { size, limit, cap } => write!(f, "message of {size} bytes needs more than {limit} pieces under a frame cap of {cap} bytes; raise the cap or send less"),
            Self::RawNewline => f.write_str("the message contains a raw line break, which a line transport cannot carry; send it without or use a wire with pieces"),
            Self::NotUtf8 => f.write_str("the message is not UTF-8, and this wire carries text; use one that carries bytes"),
            Self::BadKey { expected } => write!(f, "the key must be {expected}"),
            Self::KeyInUse { key } => write!(f, "a transfer with the key {key} is still under way; use another key or wait for its end"),
            Self::QueueFull { queued, limit, unit } => write!(f, "the send queue is full: {queued} {unit} wait, the limit is {limit}; wait until it is writable again"),
            Self::NotAccepted { waited } => write!(f, "the peer did not accept the transfer within {} s; it may not support oversized transfers", waited.as_secs()),
            Self::Aborted { reason } => write!(f, "the peer aborted the transfer: {reason}"),
            Self::TooSlow { size, sent, limit } => write!(f, "only {sent} of {size} bytes went out in the {} s that the peer allows a transfer; send less or raise the peer's timeout", limit.as_secs_f64()),
            Self::Refused { size } => write!(f, "the transport refused a frame of {size} bytes as too large; lower the frame cap"),
            Self::Lost => f.write_str("the transport lost a frame of this message"),
            Self::Closed => f.write_str("the link is closed"),
        }
    }
}

impl fmt::Display for Uncut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotNegotiated => "the peer has not said that it can assemble pieces",
            Self::NoKey => "it has no key (progress token or id) to name the transfer by",
            Self::NotAllowed => "this message must arrive in one frame",
            Self::Batch => "a batch is not one message; send its members one by one",
            Self::NoPieces => "this wire has no pieces; choose another wire or raise the cap",
        })
    }
}

/// What a peer did wrong, with the transfer's key if it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The transfer, if the frame belongs to one.
    pub key: Option<Key>,
    /// What is wrong.
    pub kind: FaultKind,
}

/// All faults of all wires.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// A frame is over this side's limit.
    FrameTooLarge {
        /// The size of the frame.
        size: usize,
        /// This side's limit.
        limit: usize,
    },
    /// A text frame where the wire has binary ones, or the other way round.
    WrongCarrier,
    /// A text frame that is not UTF-8, or data with a lone surrogate.
    NotUtf8,
    /// A text frame that is not JSON where the wire requires JSON.
    NotJson,
    /// A field that is missing, of the wrong type or out of its range.
    Malformed {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// An opening frame with a field that is missing, of the wrong type or out of its range.
    BadOpening {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// A frame of an unknown protocol or version.
    UnknownProtocol,
    /// A kind of frame that the format does not define.
    UnknownKind,
    /// A frame that belongs to the opposite direction.
    WrongStream,
    /// An unknown completion mode.
    UnknownMode,
    /// A piece, although this side did not announce that it accepts pieces.
    NotNegotiated,
    /// More open transfers than this side allows.
    TooManyTransfers {
        /// This side's limit.
        limit: usize,
    },
    /// More pieces than this side allows.
    TooManyPieces {
        /// The declared number.
        pieces: u64,
        /// This side's limit.
        limit: u64,
    },
    /// A message whose declared or received size is over this side's limit.
    MessageTooLarge {
        /// The declared or received size.
        size: u64,
        /// This side's limit.
        limit: u64,
    },
    /// This side's memory budget is exhausted; the peer did nothing wrong.
    Busy,
    /// A later piece contradicts an earlier frame.
    Inconsistent {
        /// The field that changed.
        field: &'static str,
    },
    /// A piece that was received before.
    Duplicate {
        /// Its index.
        index: u64,
    },
    /// A piece that was received before, with different content.
    Conflict {
        /// Its index.
        index: u64,
    },
    /// A second opening frame for an open transfer.
    Reopened,
    /// A piece that is not the next one, and the format requires strict order.
    OutOfOrder {
        /// Its index.
        index: u64,
        /// The index of the next piece.
        expected: u64,
    },
    /// A piece whose index is outside the declared number.
    BadIndex {
        /// Its index.
        index: u64,
        /// The number of pieces.
        count: u64,
    },
    /// A piece too far ahead of the first missing one.
    BeyondWindow {
        /// How far ahead.
        gap: u64,
        /// The window.
        limit: u64,
    },
    /// Too many pieces wait for the first missing one.
    StashFull {
        /// What would wait.
        waiting: usize,
        /// The limit.
        limit: usize,
        /// What both count.
        unit: Unit,
    },
    /// More bytes than were declared.
    Overrun {
        /// Bytes received.
        size: u64,
        /// Bytes declared.
        declared: u64,
    },
    /// The closing frame came while pieces were missing.
    Incomplete {
        /// Pieces received.
        have: u64,
        /// Pieces declared.
        want: u64,
    },
    /// The message does not have the declared number of bytes.
    SizeMismatch {
        /// Bytes received.
        size: u64,
        /// Bytes declared.
        declared: u64,
    },
    /// The digest of the message does not match.
    DigestMismatch,
    /// The message is not JSON-RPC.
    NotJsonRpc,
    /// The message is a JSON-RPC batch.
    Batch,
    /// The message is itself a frame of this wire.
    Nested,
    /// The peer aborted the transfer.
    Aborted {
        /// The peer's reason.
        reason: String,
    },
    /// Another message began before this transfer was complete, and the format sends messages
    /// contiguously.
    Superseded,
    /// The transfer was not complete in time.
    TimedOut {
        /// Which timeout.
        timer: &'static str,
        /// The bytes that came in.
        received: usize,
        /// The bytes of the whole message, if declared.
        declared: Option<u64>,
    },
    /// The transfer was dropped to make room for a newer one.
    Evicted,
}

impl FaultKind {
    /// A malformed field.
    pub const fn malformed(field: &'static str, expected: &'static str) -> Self {
        Self::Malformed { field, expected }
    }

    /// This fault, for a known transfer.
    pub fn of(self, key: &Key) -> Fault {
        Fault {
            key: Some(key.clone()),
            kind: self,
        }
    }

    /// A short name without the figures, for logs, tables and programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::FrameTooLarge { .. } => "frame-too-large",
            Self::WrongCarrier => "wrong-carrier",
            Self::NotUtf8 => "not-utf8",
            Self::NotJson => "not-json",
            Self::Malformed { .. } => "malformed",
            Self::BadOpening { .. } => "bad-opening",
            Self::UnknownProtocol => "unknown-protocol",
            Self::UnknownKind => "unknown-kind",
            Self::WrongStream => "wrong-stream",
            Self::UnknownMode => "unknown-mode",
            Self::NotNegotiated => "not-negotiated",
            Self::TooManyTransfers { .. } => "too-many-transfers",
            Self::TooManyPieces { .. } => "too-many-pieces",
            Self::MessageTooLarge { .. } => "message-too-large",
            Self::Busy => "busy",
            Self::Inconsistent { .. } => "inconsistent",
            Self::Duplicate { .. } => "duplicate",
            Self::Conflict { .. } => "conflict",
            Self::Reopened => "reopened",
            Self::OutOfOrder { .. } => "out-of-order",
            Self::BadIndex { .. } => "bad-index",
            Self::BeyondWindow { .. } => "beyond-window",
            Self::StashFull { .. } => "stash-full",
            Self::Overrun { .. } => "overrun",
            Self::Incomplete { .. } => "incomplete",
            Self::SizeMismatch { .. } => "size-mismatch",
            Self::DigestMismatch => "digest-mismatch",
            Self::NotJsonRpc => "not-jsonrpc",
            Self::Batch => "batch",
            Self::Nested => "nested",
            Self::Aborted { .. } => "aborted",
            Self::Superseded => "superseded",
            Self::TimedOut { .. } => "timed-out",
            Self::Evicted => "evicted",
        }
    }
}

/// A fault that belongs to no known transfer.
impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Self {
        Self { key: None, kind }
    }
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.key {
            write!(f, "transfer {key}: ")?;
        }
        self.kind.fmt(f)
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrameTooLarge { size, limit } => {
                write!(f, "frame of {size} bytes is over the limit of {limit}")
            }
            Self::WrongCarrier => {
                f.write_str("a text frame where this wire takes binary ones, or a binary one where it takes text")
            }
            Self::NotUtf8 => f.write_str("not valid UTF-8"),
            Self::NotJson => f.write_str("not valid JSON"),
            Self::Malformed { field, expected } | Self::BadOpening { field, expected } => {
                write!(f, "{field} must be {expected}")
            }
            Self::UnknownProtocol => f.write_str("unknown protocol or version"),
            Self::UnknownKind => f.write_str("unknown kind of frame"),
            Self::WrongStream => f.write_str("frame of the other direction"),
            Self::UnknownMode => f.write_str("completionMode must be \"render\""),
            Self::NotNegotiated => {
                f.write_str("this side has not announced that it takes pieces")
            }
            Self::TooManyTransfers { limit } => write!(f, "more than {limit} transfers at once"),
            Self::TooManyPieces { pieces, limit } => {
                write!(f, "{pieces} pieces are over the limit of {limit}")
            }
            Self::MessageTooLarge { size, limit } => {
                write!(f, "message of {size} bytes is over the limit of {limit}")
            }
            Self::Busy => {
                f.write_str("no memory to spare for this transfer at the moment; try again later")
            }
            Self::Inconsistent { field } => write!(f, "{field} changed within the transfer"),
            Self::Duplicate { index } => write!(f, "piece {index} came twice"),
            Self::Conflict { index } => {
                write!(f, "piece {index} came twice with different content")
            }
            Self::Reopened => {
                f.write_str("a second opening frame for a transfer that is under way")
            }
            Self::OutOfOrder { index, expected } => {
                write!(f, "piece {index} is out of order, expected {expected}")
            }
            Self::BadIndex { index, count } => {
                write!(f, "piece {index} is outside the {count} declared")
            }
            Self::BeyondWindow { gap, limit } => write!(
                f,
                "piece is {gap} ahead of the first missing one; the window is {limit}"
            ),
            Self::StashFull {
                waiting,
                limit,
                unit,
            } => write!(
                f,
                "{waiting} {unit} wait for a missing piece, the limit is {limit}"
            ),
            Self::Overrun { size, declared } => {
                write!(f, "{size} bytes received where {declared} were declared")
            }
            Self::Incomplete { have, want } => write!(f, "ended with {have} of {want} pieces"),
            Self::SizeMismatch { size, declared } => {
                write!(f, "{size} bytes assembled where {declared} were declared")
            }
            Self::DigestMismatch => {
                f.write_str("the digest of the assembled message is not the declared one")
            }
            Self::NotJsonRpc => f.write_str("the assembled message is not JSON-RPC"),
            Self::Batch => f.write_str("the assembled message is a batch"),
            Self::Nested => f.write_str("the assembled message is itself a piece"),
            Self::Aborted { reason } => write!(f, "aborted by the peer: {reason}"),
            Self::Superseded => f.write_str("a new message began before this one was complete"),
            Self::TimedOut {
                timer,
                received,
                declared,
            } => {
                let what = match *timer {
                    "idle" => "no further piece came in time",
                    _ => "it came too slowly",
                };
                match declared {
                    Some(all) => write!(f, "timed out after {received} of {all} bytes: {what}"),
                    None => write!(f, "timed out after {received} bytes: {what}"),
                }
            }
            Self::Evicted => f.write_str("evicted to make room for a newer transfer"),
        }
    }
}

/// Why a link is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// A WebSocket close code; other transports use the same codes.
    pub code: u16,
    /// Why, in at most 123 bytes, as many as a WebSocket close frame holds.
    pub reason: String,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "closed with {}", self.code)?;
        match self.reason.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.reason),
        }
    }
}
