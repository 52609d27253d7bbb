//! One message per frame: for transports without a cap, and for directions in which a format has no
//! pieces.

use breakbulk_link::{
    Assembled, Cap, Carries, Duplicate, Fault, FaultKind, Frame, Full, Inbound, Key, Numbering,
    OnCancel, Order, Part, Piece, Pieces, Plan, PlanOptions, Random, Rules, Scope, Scopes,
    SendError, Shape, Timeouts, Uncut, Unknown, Wire,
};
use bytes::Bytes;
use std::time::Duration;

use crate::json_text::Growth;
use crate::shape::shape_of;

/// The wire without pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Whether its frames are text or binary.
    pub carries: Carries,
}

impl Whole {
    /// Messages as text frames.
    pub const TEXT: Self = Self {
        carries: Carries::Text,
    };
    /// Messages as binary frames.
    pub const BINARY: Self = Self {
        carries: Carries::Binary,
    };

    /// There are no transfers; a frame that cannot be read is reported.
    pub fn rules() -> Rules {
        Rules {
            unknown: Unknown::Ignored,
            numbering: Numbering::FromZero,
            order: Order::Strict,
            duplicate: Duplicate::Fault,
            full: Full::Refuse,
            closing: false,
            timeouts: Timeouts {
                idle: None,
                age: None,
                age_rate: None,
                accept: Duration::from_secs(30),
            },
            interleave: true,
            cancel: OnCancel::Finish,
            accept: false,
            abort: false,
            contiguous: false,
            scopes: Scopes {
                frame: Scope::Report,
                piece: Scope::Report,
                reopened: Scope::Report,
                transfer: Scope::Report,
                busy: Scope::Link,
                timeout: Scope::Silent,
            },
            close: (1008, "refused"),
        }
    }
}

/// The size of a message in one frame, as the cap counts.
pub(crate) fn counted(message: &[u8], cap: &Cap) -> usize {
    let growth = if cap.escapes() {
        Growth::Once
    } else {
        Growth::None
    };
    cap.counted(growth.len(message))
}

/// Like [`counted`], but cheaper: a lower bound if the unescaped length is over the cap already.
pub(crate) fn counted_at_least(message: &[u8], cap: &Cap) -> usize {
    match cap.counted(message.len()) {
        over if over > cap.max => over,
        _ => counted(message, cap),
    }
}

/// The plan for a message that must not be cut: one frame if `size` is within the limit, else an error.
pub(crate) fn uncut(
    size: usize,
    limit: usize,
    broken: bool,
    why: Uncut,
) -> Result<Plan, SendError> {
    match size <= limit {
        true if broken => Err(SendError::RawNewline),
        true => Ok(Plan::Whole),
        false => Err(SendError::FrameTooLarge {
            size,
            limit,
            uncut: why,
        }),
    }
}

/// A text frame, checked to be UTF-8.
pub(crate) fn text(frame: &Frame) -> Result<(&Bytes, &str), FaultKind> {
    let Frame::Text(bytes) = frame else {
        return Err(FaultKind::WrongCarrier);
    };
    let text = simdutf8::basic::from_utf8(bytes).map_err(|_| FaultKind::NotUtf8)?;
    Ok((bytes, text))
}

pub(crate) fn has_line_break(message: &[u8]) -> bool {
    memchr::memchr2(b'\n', b'\r', message).is_some()
}

impl Wire for Whole {
    fn name(&self) -> &'static str {
        "whole"
    }

    fn carries(&self) -> Carries {
        self.carries
    }

    fn mint(&self, _random: &mut Random) -> Option<Key> {
        None
    }

    fn plan(&self, message: &[u8], options: &PlanOptions<'_>) -> Result<Plan, SendError> {
        let size = counted(message, options.cap);
        if size > options.cap.max {
            return Err(SendError::FrameTooLarge {
                size,
                limit: options.cap.max,
                uncut: Uncut::NoPieces,
            });
        }
        if options.cap.lines && has_line_break(message) {
            return Err(SendError::RawNewline);
        }
        let text = self.carries == Carries::Binary || options.known_text;
        if !text && simdutf8::basic::from_utf8(message).is_err() {
            return Err(SendError::NotUtf8);
        }
        Ok(Plan::Whole)
    }

    fn cut(&self, _pieces: &Pieces, message: &[u8], _from: usize) -> usize {
        message.len()
    }

    fn write(&self, part: Part<'_>, out: &mut Vec<u8>) {
        if let Part::Whole(message) = part {
            out.extend_from_slice(message);
        }
    }

    fn read<'a>(&self, frame: &'a Frame) -> Result<Inbound<'a>, Fault> {
        match (frame, self.carries) {
            (Frame::Binary(bytes), Carries::Binary) => Ok(Inbound::Whole(bytes, Shape::default())),
            (Frame::Text(bytes), Carries::Text) => {
                let text = simdutf8::basic::from_utf8(bytes).map_err(|_| FaultKind::NotUtf8)?;
                let shape = shape_of(text);
                Ok(Inbound::Whole(bytes, shape))
            }
            _ => Err(FaultKind::WrongCarrier.into()),
        }
    }

    fn decoded_max(&self, piece: &Piece<'_>) -> usize {
        piece.data.len()
    }

    fn decode(&self, piece: &Piece<'_>, into: &mut Vec<u8>) -> Result<(), FaultKind> {
        into.extend_from_slice(piece.data);
        Ok(())
    }

    fn finish(&self, _whole: &Assembled<'_>) -> Result<Shape, FaultKind> {
        Ok(Shape::default())
    }
}
