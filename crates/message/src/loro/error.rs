//! Errors of decoding and encoding messages.

use std::convert::Infallible;
use std::fmt;

use super::frame::WIRE_VERSION;
use super::{MAX_BATCH_DEPTH, VersionVectorError};

/// Why a frame cannot be decoded.
///
/// The code is the original implementation's, which may use different codes for similar errors; the
/// detail says what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct DecodeError {
    /// The original's code.
    pub code: DecodeErrorCode,
    /// What is wrong.
    pub detail: Detail,
}

impl DecodeError {
    pub(super) fn new(code: DecodeErrorCode, detail: Detail) -> Self {
        Self { code, detail }
    }
}

/// The five error codes of the original implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeErrorCode {
    /// The payload is not CBOR that the original can parse, or lacks something essential.
    InvalidCbor,
    /// The first byte is not a supported version.
    UnsupportedVersion,
    /// The frame is shorter than its header, or than its declared length.
    TruncatedFrame,
    /// A required field is absent.
    MissingField,
    /// A field, or the message itself, has the wrong type.
    InvalidType,
}

impl DecodeErrorCode {
    /// The code as the original writes it.
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

/// What is wrong with a frame. Offsets count from the start of the CBOR payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Detail {
    /// The header or the payload is incomplete.
    #[error("the frame has {have} bytes and needs {need}")]
    FrameTooShort {
        /// The frame's length.
        have: usize,
        /// The length of the header, or of the header and the declared payload.
        need: u64,
    },
    /// The frame has another version of the format.
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
    /// A length is reserved, indefinite, or not in its shortest form.
    #[error("the CBOR item at byte {at} has an indefinite, reserved or overlong argument")]
    Argument {
        /// Where the item starts.
        at: usize,
    },
    /// A simple value or half-precision float that the original does not accept.
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
        /// What it is instead.
        found: &'static str,
    },
    /// A map has a key twice.
    #[error("the CBOR map at byte {at} has a key twice")]
    DuplicateKey {
        /// Where the map starts.
        at: usize,
    },
    /// There are bytes after the item.
    #[error("the CBOR item ends at byte {at}, the payload has {len} bytes")]
    Trailing {
        /// Where the item ends.
        at: usize,
        /// The payload's length.
        len: usize,
    },
    /// Items nest too deep.
    #[error("the CBOR items nest deeper than {limit}")]
    NestsTooDeep {
        /// The limit on nesting.
        limit: usize,
    },
    /// There are more items than the receiver's limit.
    #[error("the payload has more than {limit} CBOR items: raise max_items, or send less at once")]
    TooManyItems {
        /// The limit on items.
        limit: usize,
    },
    /// A text is not UTF-8.
    #[error("{field} is not UTF-8: it breaks off after {valid} of {len} bytes")]
    NotUtf8 {
        /// The field's name on the wire.
        field: &'static str,
        /// How many bytes are valid.
        valid: usize,
        /// The text's length.
        len: usize,
    },
    /// `t` is not the type of a message.
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
    /// A field has the wrong type.
    #[error("{field} is {found}, not {expected}")]
    WrongType {
        /// The field's name on the wire.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is instead.
        found: &'static str,
    },
    /// A field has a value that is not allowed.
    #[error("{field} cannot be {found}")]
    UnknownValue {
        /// The field's name on the wire.
        field: &'static str,
        /// The value, or its beginning.
        found: String,
    },
    /// A version vector cannot be decoded.
    #[error("{0}")]
    BadVersionVector(#[from] VersionVectorError),
    /// Batches nest too deep.
    #[error("batches nest deeper than {MAX_BATCH_DEPTH}")]
    BatchesTooDeep,
}

/// Why a message cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// It is too large for the length field, which has 32 bits.
    #[error(
        "the message takes {bytes} bytes of CBOR, a frame holds at most {}: send less at once",
        u32::MAX
    )]
    TooLong {
        /// The length of the CBOR.
        bytes: u64,
    },
    /// It exceeds the bounds of the format.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// An error of the CBOR writer, which does not occur when writing to memory.
    #[error("{0}")]
    Cbor(#[from] minicbor::encode::Error<Infallible>),
}

/// Why a message can be written neither as CBOR nor as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutOfBounds {
    /// Batches nest too deep.
    #[error("batches nest deeper than {MAX_BATCH_DEPTH}")]
    BatchesTooDeep,
    /// The hops exceed the largest integer of JavaScript, 2^53 - 1.
    #[error("{hops} hops are more than JavaScript can count")]
    Hops {
        /// The message's hops.
        hops: i64,
    },
}
