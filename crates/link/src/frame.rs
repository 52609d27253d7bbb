//! What the transport carries, and the numbers by which it is spoken of.

use bytes::Bytes;

use crate::Key;

/// One frame as it came in, in memory of its own: a whole message keeps that memory, and is charged
/// by its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Text; the wire checks that it is UTF-8.
    Text(Bytes),
    /// Bytes.
    Binary(Bytes),
}

impl Frame {
    /// The bytes, whatever the kind.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Text(bytes) | Self::Binary(bytes) => bytes,
        }
    }
}

/// The kind of frames that a wire makes; a transport says which it can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// Text frames.
    Text,
    /// Binary frames.
    Binary,
}

/// A message that was given to [`Link::send`](crate::Link::send).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub(crate) u64);

/// A message that came in, in the order of completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub(crate) u64);

/// A frame that was handed to the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub(crate) u64);

/// Messages in one lane arrive whole and in the order they were sent; lanes share the path fairly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u32);

impl Lane {
    /// The lane of everything that carries order, and of what nobody knows better.
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
    /// Our leave for the peer to send its pieces.
    Accept,
    /// The end of a transfer that failed.
    Abort,
    /// A word of the transport's own, which belongs to no message.
    Control,
}

/// A frame that [`Link::poll_transmit`](crate::Link::poll_transmit) made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its number, for [`Link::handle_sent`](crate::Link::handle_sent).
    pub frame: FrameId,
    /// The message it belongs to; `None` for answers to the peer's transfers.
    pub transfer: Option<TransferId>,
    /// The tag that came with that message.
    pub tag: u64,
    /// What it is for.
    pub kind: FrameKind,
    /// Whether it goes out as text or as bytes.
    pub carries: Carries,
    /// The peer's transfer that it answers, or ours that it ends.
    pub answers: Option<Key>,
}
