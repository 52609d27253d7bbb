//! The pure part: what comes in, what goes out, time passed in. No IO, no clock, no runtime.
//!
//! - [`rpc::Rpc`]: calls, replies, acknowledgements and cancellation.
//! - [`ipc`]: what lies between RPC messages and a byte stream.
//! - [`handshake`]: what is said before the first RPC message.

mod chunks;
pub mod handshake;
pub mod ipc;
pub mod rpc;

pub use chunks::Chunks;
