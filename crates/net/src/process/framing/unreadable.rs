//! Why a stream cannot be read on. A close takes 123 bytes of words: the remedy must fit.

use breakbulk_link::Closed;

use super::{Framing, Members};

/// The most bytes of all headers of one frame.
pub(super) const HEADERS: usize = 4096;

/// Why a stream cannot be read on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// A line that does not end in time.
    #[error("a line is longer than {limit} bytes; raise the maximum message size or send less")]
    LineTooLong {
        /// The limit.
        limit: usize,
    },
    /// A header announces too much.
    #[error(
        "Content-Length {size} is over {limit} bytes; raise the maximum message size or send less"
    )]
    TooLong {
        /// What it announces; saturated where that is more than anybody can count.
        size: u64,
        /// The limit.
        limit: usize,
    },
    /// A message over the limit was skipped, and the stream can be read on. Only these few bytes of it
    /// were kept.
    #[error(
        "a message of {size} bytes is over {limit}; raise the maximum message size or send less"
    )]
    Oversized {
        /// The bytes that it had.
        size: u64,
        /// The limit.
        limit: usize,
        /// Those of its members that were asked for, if it was a JSON object.
        members: Members,
    },
    /// The stream is framed in another way.
    #[error("this stream has {}, not {}; use ?framing={seen}", shown(*.seen), shown(*.expected))]
    WrongFraming {
        /// What it looks like.
        seen: Framing,
        /// What it should be.
        expected: Framing,
    },
    /// Headers without an end.
    #[error("the headers of a frame are longer than {HEADERS} bytes; {}", hint())]
    HeadersTooLong,
    /// Headers without the one that counts.
    #[error("a frame has no Content-Length; {}", hint())]
    NoLength,
    /// Something that is no header.
    #[error("a frame's header is wrong: {what}; {}", hint())]
    BadHeader {
        /// What is wrong.
        what: &'static str,
    },
    /// Frames are text.
    #[error("a frame of {size} bytes is not UTF-8")]
    NotUtf8 {
        /// Its size.
        size: usize,
    },
    /// The input ended within a line.
    #[error(
        "the input ends within a message: {size} bytes, {start:?}…, are dropped; why did the program stop?"
    )]
    CutLine {
        /// Bytes of it that came.
        size: usize,
        /// How it begins.
        start: String,
    },
    /// The input ended within a body.
    #[error(
        "the input ends within a message: {size} of its {announced} bytes came; did the program stop, or count characters?"
    )]
    CutBody {
        /// Bytes of it that came.
        size: u64,
        /// What was announced.
        announced: u64,
    },
    /// The input ended within headers.
    #[error(
        "the input ends within the headers of a message, after {size} bytes; why did the program stop?"
    )]
    CutHeaders {
        /// Bytes of them that came.
        size: usize,
    },
}

/// Most often it is this.
fn hint() -> &'static str {
    "for JSON lines use ?framing=lines"
}

fn shown(framing: Framing) -> &'static str {
    match framing {
        Framing::Lines => "JSON lines",
        Framing::ContentLength => "Content-Length headers",
    }
}

impl Unreadable {
    /// The same as an end, with WebSocket's code for it.
    pub fn closed(&self) -> Closed {
        let code = match self {
            Self::LineTooLong { .. }
            | Self::TooLong { .. }
            | Self::Oversized { .. }
            | Self::HeadersTooLong => 1009,
            Self::NoLength | Self::BadHeader { .. } | Self::WrongFraming { .. } => 1002,
            Self::NotUtf8 { .. } => 1007,
            Self::CutLine { .. } | Self::CutBody { .. } | Self::CutHeaders { .. } => 1006,
        };
        Closed {
            code,
            reason: self.to_string(),
        }
    }
}
