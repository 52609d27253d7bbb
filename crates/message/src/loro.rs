//! loro-extended's channel messages, wire format v2.
//!
//! A message travels as a [frame](encode_frame): `02 | flags | u32 BE length | CBOR`. From server
//! to client over SSE and polling it travels as [JSON text](to_json) instead. How a frame is cut
//! into fragments is no matter of this module: that is a wire.
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
//! Where the original refuses a frame, ours refuses it with the same code. Where the original
//! lets pass what the format does not allow (a missing document, a number for a name), ours
//! refuses that too, after everything the original would have refused.

mod cbor;
mod decode;
mod encode;
mod error;
mod frame;
mod json;
mod message;
mod version;

pub use decode::{DecodeLimits, decode};
pub use encode::encode;
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
mod hostile;
