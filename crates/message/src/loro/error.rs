//! What can be wrong with a message.

use std::convert::Infallible;
use std::fmt;

use super::frame::WIRE_VERSION;
use super::{MAX_BATCH_DEPTH, VersionVectorError};

/// Why a frame is no message.
///
/// The code is what the original calls it, and two faults of one kind may have two codes; the
/// detail is what was wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct DecodeError {
    /// The original's word.
    pub code: DecodeErrorCode,
    /// What was wrong.
    pub detail: Detail,
}

impl DecodeError {
    pub(super) fn new(code: DecodeErrorCode, detail: Detail) -> Self {
        Self { code, detail }
    }
}

/// The original's five codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeErrorCode {
    /// The payload is no CBOR that the original reads, or lacks what it cannot do without.
    InvalidCbor,
    /// The first byte is no version that this side speaks.
    UnsupportedVersion,
    /// The frame is shorter than its header, or than the header says.
    TruncatedFrame,
    /// A required field is absent.
    MissingField,
    /// A field, or the message itself, is of no type that belongs there.
    InvalidType,
}

impl DecodeErrorCode {
    /// The word that the original uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidCbor => "invalid_cbor",
            Self::UnsupportedVersion => "unsupported_version",
            Self::TruncatedFrame => "truncated_frame",
            Self::MissingField => "missing_field",
            Self::InvalidType => "invalid_type",
        }
    }
}

impl fmt::Display for DecodeErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What was wrong with a frame. Offsets count from the start of the CBOR payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Detail {
    /// Header or payload are not all there.
    #[error("the frame has {have} bytes and needs {need}")]
    FrameTooShort {
        /// The frame's length.
        have: usize,
        /// What header, or header and declared payload, need.
        need: u64,
    },
    /// Another version of the format.
    #[error("the frame is of wire version {found}, this side speaks {WIRE_VERSION}")]
    Version {
        /// The frame's first byte.
        found: u8,
    },
    /// An item reaches beyond the payload.
    #[error("the CBOR item at byte {at} reaches beyond the payload's {len} bytes")]
    Ends {
        /// Where the item starts.
        at: usize,
        /// The payload's length.
        len: usize,
    },
    /// A reserved or indefinite length, or a small one in a long form.
    #[error("the CBOR item at byte {at} has an indefinite, reserved or overlong argument")]
    Argument {
        /// Where the item starts.
        at: usize,
    },
    /// A simple value or half-precision float that the original does not read.
    #[error("the CBOR item at byte {at} is a simple value or half float that is not in use here")]
    Simple {
        /// Where the item starts.
        at: usize,
    },
    /// A map key that is neither text nor a number.
    #[error("the CBOR map key at byte {at} is {found}, not text or a number")]
    Key {
        /// Where the key starts.
        at: usize,
        /// What it is.
        found: &'static str,
    },
    /// A map has a key twice.
    #[error("the CBOR map at byte {at} has a key twice")]
    DuplicateKey {
        /// Where the map starts.
        at: usize,
    },
    /// The payload goes on after its item.
    #[error("the CBOR item ends at byte {at}, the payload has {len} bytes")]
    Trailing {
        /// Where the item ends.
        at: usize,
        /// The payload's length.
        len: usize,
    },
    /// Items within items, deeper than any message needs.
    #[error("the CBOR items nest deeper than {limit}")]
    NestsTooDeep {
        /// How deep they may.
        limit: usize,
    },
    /// More items than the receiver wants to hold.
    #[error("the payload has more than {limit} CBOR items: raise max_items, or send less at once")]
    TooManyItems {
        /// How many it may have.
        limit: usize,
    },
    /// Text that is not UTF-8.
    #[error("{field} is not UTF-8: it breaks off after {valid} of {len} bytes")]
    NotUtf8 {
        /// The field's name on the wire.
        field: &'static str,
        /// How many bytes are UTF-8.
        valid: usize,
        /// The text's length.
        len: usize,
    },
    /// `t` names no message.
    #[error("no message has type {found}")]
    UnknownMessage {
        /// What `t` is.
        found: String,
    },
    /// A required field is absent or undefined.
    #[error("the field {field} is missing")]
    Missing {
        /// The field's name on the wire.
        field: &'static str,
    },
    /// A field is something else than it must be.
    #[error("{field} is {found}, not {expected}")]
    WrongType {
        /// The field's name on the wire.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// A field has none of the values that it may have.
    #[error("{field} cannot be {found}")]
    UnknownValue {
        /// The field's name on the wire.
        field: &'static str,
        /// The value, or how it begins.
        found: String,
    },
    /// A version vector cannot be read.
    #[error("{0}")]
    BadVersionVector(#[from] VersionVectorError),
    /// Batches within batches.
    #[error("batches nest deeper than {MAX_BATCH_DEPTH}")]
    BatchesTooDeep,
}

/// Why a message has no frame.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The length field has 32 bits.
    #[error(
        "the message takes {bytes} bytes of CBOR, a frame holds at most {}: send less at once",
        u32::MAX
    )]
    TooLong {
        /// The length of the CBOR.
        bytes: u64,
    },
    /// A receiver would refuse it.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// The CBOR writer's own error, which a buffer in memory never gives.
    #[error("{0}")]
    Cbor(#[from] minicbor::encode::Error<Infallible>),
}

/// What makes a message one that no form can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutOfBounds {
    /// Batches within batches.
    #[error("batches nest deeper than {MAX_BATCH_DEPTH}")]
    BatchesTooDeep,
    /// JavaScript counts to 2^53 - 1.
    #[error("{hops} hops are more than JavaScript can count")]
    Hops {
        /// The message's hops.
        hops: i64,
    },
}
