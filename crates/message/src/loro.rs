//! The channel messages of loro-extended, wire format v2.
//!
//! A message is sent as a [frame](encode_frame): `02 | flags | u32 BE length | CBOR`. From server
//! to client over SSE and polling it is sent as [JSON text](to_json) instead. Cutting a frame into
//! fragments is done by the wire crate.
//!
//! ```
//! use breakbulk_message::loro::{ChannelMsg, decode_frame, encode_frame};
//!
//! let message = ChannelMsg::DeleteRequest { doc_id: "d".into() };
//! let frame = encode_frame(&message)?;
//! assert_eq!(frame[..], *b"\x02\x00\x00\x00\x00\x0b\xa2at\x18\x30cdocad");
//! assert_eq!(decode_frame(frame)?, [message]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A frame that the original implementation refuses is refused here with the same error code. A
//! frame that the original accepts although the format forbids it (a missing document, a number for
//! a name) is refused here, too.

mod cbor;
mod decode;
mod encode;
mod ephemeral;
mod error;
mod frame;
mod json;
mod message;
mod version;

pub use decode::{DecodeLimits, decode};
pub use encode::encode;
pub use ephemeral::{EphemeralEntry, EphemeralError};
pub use error::{DecodeError, DecodeErrorCode, Detail, EncodeError, OutOfBounds};
pub use frame::{
    FLAG_BATCH, HEADER_LEN, WIRE_VERSION, decode_frame, decode_frame_within, encode_batch_frame,
    encode_frame,
};
pub use json::{JsonError, from_json, to_json};
pub use message::{
    ChannelMsg, DeleteStatus, EphemeralStore, MAX_BATCH_DEPTH, PeerIdentity, PeerType, Transmission,
};
pub use version::{VersionVector, VersionVectorError};

#[cfg(test)]
mod hostile_tests;
