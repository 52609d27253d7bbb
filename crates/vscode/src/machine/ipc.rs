//! `ipc.net` as pure machines: what lies between RPC messages and a byte stream.
//!
//! - [`Protocol`]: frames, nothing more; what ends the stream ends the session.
//! - [`PersistentProtocol`]: numbered and acknowledged frames that outlive their stream.
//! - [`Inflow`]: finds the frames in a stream that is read into its own room.
//!
//! Bytes to write lie in [`Chunks`](super::Chunks), which a writer empties from the front.

mod inflow;
mod load;
mod persistent;
mod plain;
mod replay;

#[cfg(test)]
mod persistent_tests;

use breakbulk_message::vscode::Out;
use breakbulk_message::vscode::ipc::{FrameType, Header};
use bytes::Bytes;

pub use inflow::Inflow;
pub use persistent::{
    PersistentConfig, PersistentError, PersistentEvent, PersistentProtocol, Received,
};
pub use plain::Protocol;

/// What a WebSocket message holds of the stream at most. Where it is cut means nothing.
pub const WEBSOCKET_CUT: usize = 262_144;

/// Something that can be the payload of a frame.
pub trait Payload {
    /// Its bytes.
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

/// Appends a header. Lengths over the format's were refused before.
fn put_header(out: &mut impl Out, frame_type: FrameType, id: u32, ack: u32, len: usize) {
    let mut bytes = [0; Header::LEN];
    bytes[0] = frame_type.to_u8();
    bytes[1..5].copy_from_slice(&id.to_be_bytes());
    bytes[5..9].copy_from_slice(&ack.to_be_bytes());
    bytes[9..].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
    out.put(&bytes);
}

/// The length field has four bytes.
fn check_len(len: usize) -> Result<(), breakbulk_message::vscode::ipc::IpcError> {
    match u32::try_from(len) {
        Ok(_) => Ok(()),
        Err(_) => Err(breakbulk_message::vscode::ipc::IpcError::PayloadTooLong { len }),
    }
}
