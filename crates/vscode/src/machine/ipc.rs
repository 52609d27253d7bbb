//! `ipc.net` as pure state machines: the framing of RPC messages in a byte stream.
//!
//! - [`Protocol`]: frames only; the session ends with its stream.
//! - [`PersistentProtocol`]: numbered and acknowledged frames; the session survives its streams.
//! - [`FrameReader`]: reads a stream into its own buffers and finds the frames.
//!
//! Bytes to be written are queued in [`Chunks`](super::Chunks).

mod frame_reader;
mod load;
mod persistent;
mod plain;
mod replay;

#[cfg(test)]
mod persistent_tests;

use breakbulk_message::vscode::Out;
use breakbulk_message::vscode::ipc::{FrameType, Header};
use bytes::Bytes;

pub use frame_reader::FrameReader;
pub use persistent::{
    PersistentConfig, PersistentError, PersistentEvent, PersistentProtocol, Received,
};
pub use plain::Protocol;

/// The most bytes of the stream in one WebSocket message. The cuts need not match the frames.
pub const WEBSOCKET_CUT: usize = 262_144;

/// The payload of a frame.
pub trait Payload {
    /// Its size in bytes.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends exactly [`len`](Self::len) bytes.
    fn write(&self, out: &mut impl Out);
}

impl Payload for Bytes {
    fn len(&self) -> usize {
        Bytes::len(self)
    }

    fn write(&self, out: &mut impl Out) {
        out.put_shared(self);
    }
}

impl Payload for super::rpc::Packet {
    fn len(&self) -> usize {
        super::rpc::Packet::len(self)
    }

    fn write(&self, out: &mut impl Out) {
        super::rpc::Packet::write(self, out);
    }
}

/// Appends a header. Lengths over the format's limit were refused before.
fn put_header(out: &mut impl Out, frame_type: FrameType, id: u32, ack: u32, len: usize) {
    let mut bytes = [0; Header::LEN];
    bytes[0] = frame_type.to_u8();
    bytes[1..5].copy_from_slice(&id.to_be_bytes());
    bytes[5..9].copy_from_slice(&ack.to_be_bytes());
    bytes[9..].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
    out.put(&bytes);
}

/// Checks that a length fits the four bytes of its field.
fn check_len(len: usize) -> Result<(), breakbulk_message::vscode::ipc::IpcError> {
    match u32::try_from(len) {
        Ok(_) => Ok(()),
        Err(_) => Err(breakbulk_message::vscode::ipc::IpcError::PayloadTooLong { len }),
    }
}
