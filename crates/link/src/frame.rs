//! Frames, and the ids of frames, messages and transfers.

use bytes::Bytes;

use crate::Key;

/// One frame. An incoming one must have memory of its own: a message in one frame keeps that
/// memory, and is charged only its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Text; the wire checks that it is UTF-8.
    Text(Bytes),
    /// Bytes.
    Binary(Bytes),
}

impl Frame {
    /// The bytes of either kind.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Text(bytes) | Self::Binary(bytes) => bytes,
        }
    }

    /// The bytes of either kind.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Text(bytes) | Self::Binary(bytes) => bytes,
        }
    }
}

/// The kind of frames that a wire makes, or that a transport can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// Text frames.
    Text,
    /// Binary frames.
    Binary,
}

/// The id of a message that was given to [`Link::send`](crate::Link::send); a later message has a larger one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId {
    pub(crate) serial: u64,
    /// Where its message is kept.
    pub(crate) slot: u32,
}

impl std::fmt::Debug for TransferId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TransferId").field(&self.serial).finish()
    }
}

/// The id of a message that came in, in the order of completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub(crate) u64);

/// The id of a frame that was given to the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub(crate) u64);

/// Messages in one lane arrive whole and in the order they were sent; lanes share the path fairly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u32);

impl Lane {
    /// The lane of all messages whose order matters, or about which nothing is known.
    pub const ORDERED: Self = Self(0);
}

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameKind {
    /// A message in one frame.
    Whole,
    /// The frame that announces pieces.
    Open,
    /// A piece.
    Piece,
    /// The frame after the last piece.
    Close,
    /// Accepts a transfer of the peer.
    Accept,
    /// Aborts a transfer.
    Abort,
    /// A control message, such as a ping in text form; it belongs to no message.
    Control,
}

/// A frame that [`Link::poll_transmit`](crate::Link::poll_transmit) made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its id, for [`Link::handle_sent`](crate::Link::handle_sent).
    pub frame: FrameId,
    /// The message that it belongs to; `None` for control messages, and for frames that accept or
    /// abort a transfer.
    pub transfer: Option<TransferId>,
    /// The tag of that message.
    pub tag: u64,
    /// What it is for.
    pub kind: FrameKind,
    /// Whether to send it as a text or a binary frame.
    pub carries: Carries,
    /// The transfer that it accepts or aborts.
    pub answers: Option<Key>,
}
