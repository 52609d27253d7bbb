//! Errors of the decoder. They become the reason of a close, which holds only 123 bytes: the remedy
//! must fit.

use breakbulk_link::Closed;

use super::{Framing, Members};

/// The longest headers of one frame, in bytes.
pub(super) const HEADERS: usize = 4096;

/// Why a stream cannot be read further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// A line is over the limit.
    #[error("a line is longer than {limit} bytes; raise the maximum message size or send less")]
    LineTooLong {
        /// The limit.
        limit: usize,
    },
    /// A `Content-Length` is over the limit.
    #[error(
        "Content-Length {size} is over {limit} bytes; raise the maximum message size or send less"
    )]
    TooLong {
        /// The announced size; `u64::MAX` if it is larger.
        size: u64,
        /// The limit.
        limit: usize,
    },
    /// A binary frame is over the limit.
    #[error(
        "a frame of {size} bytes ({name}) is over {limit}; raise the maximum message size or send less"
    )]
    FrameTooLong {
        /// The name of the format.
        name: &'static str,
        /// The announced size.
        size: u64,
        /// The limit.
        limit: usize,
    },
    /// The stream begins like HTTP.
    #[error("the other end speaks HTTP, and this is a plain stream; use ws:// or check the port")]
    Http,
    /// A message over the limit was skipped, and reading can go on. Only a few of its members were
    /// kept.
    #[error(
        "a message of {size} bytes is over {limit}; raise the maximum message size or send less"
    )]
    Oversized {
        /// Its size in bytes.
        size: u64,
        /// The limit.
        limit: usize,
        /// The requested members, if it was a JSON object.
        members: Members,
    },
    /// The stream uses the other framing.
    #[error("this stream has {}, not {}; use ?framing={seen}", shown(*.seen), shown(*.expected))]
    WrongFraming {
        /// The framing that it seems to use.
        seen: Framing,
        /// The framing that was configured.
        expected: Framing,
    },
    /// The headers are too long.
    #[error("the headers of a frame are longer than {HEADERS} bytes; {}", hint())]
    HeadersTooLong,
    /// The headers contain no `Content-Length`.
    #[error("a frame has no Content-Length; {}", hint())]
    NoLength,
    /// A header is invalid.
    #[error("a frame's header is wrong: {what}; {}", hint())]
    BadHeader {
        /// What is wrong.
        what: &'static str,
    },
    /// A frame is not UTF-8.
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
        /// How many bytes came in.
        size: usize,
        /// How it begins.
        start: String,
    },
    /// The input ended within a body.
    #[error(
        "the input ends within a message: {size} of its {announced} bytes came; did the program stop, or count characters?"
    )]
    CutBody {
        /// How many bytes came in.
        size: u64,
        /// The announced size.
        announced: u64,
    },
    /// The input ended within headers.
    #[error(
        "the input ends within the headers of a message, after {size} bytes; why did the program stop?"
    )]
    CutHeaders {
        /// How many bytes came in.
        size: usize,
    },
}

/// The most likely remedy.
fn hint() -> &'static str {
    "for JSON lines use ?framing=lines"
}

fn shown(framing: Framing) -> &'static str {
    match framing {
        Framing::Lines => "JSON lines",
        Framing::ContentLength => "Content-Length headers",
        Framing::LengthField(field) => field.name,
    }
}

impl Unreadable {
    /// The error as a close, with the matching WebSocket close code.
    pub fn closed(&self) -> Closed {
        let code = match self {
            Self::LineTooLong { .. }
            | Self::TooLong { .. }
            | Self::FrameTooLong { .. }
            | Self::Oversized { .. }
            | Self::HeadersTooLong => 1009,
            Self::NoLength | Self::BadHeader { .. } | Self::WrongFraming { .. } | Self::Http => {
                1002
            }
            Self::NotUtf8 { .. } => 1007,
            Self::CutLine { .. } | Self::CutBody { .. } | Self::CutHeaders { .. } => 1006,
        };
        Closed {
            code,
            reason: self.to_string(),
        }
    }
}
