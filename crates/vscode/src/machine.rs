//! The pure state machines: messages in, messages out, time as an argument. No IO, no clock, no runtime.
//!
//! - [`rpc::Rpc`]: calls, replies, acknowledgements and cancellation.
//! - [`ipc`]: the framing of RPC messages in a byte stream.
//! - [`handshake`]: the messages before the first RPC message.

mod chunks;
pub mod handshake;
pub mod ipc;
pub mod rpc;

pub use chunks::Chunks;
