//! Messages of VSCode's extension-host RPC.
//!
//! A message is a five-byte header (`u8` type, `u32` request id) and a payload that depends on the
//! type: a request with JSON or mixed arguments, an acknowledgement, a cancel, or one of six
//! replies.
//!
//! There are three layers, each usable alone:
//! - [`RpcMessage`] with [`encode`] and [`decode`]: the bytes. JSON stays text and buffers stay
//!   slices of the input, so that a relayed message keeps its bytes and is not copied.
//! - [`Value`], [`Passed`], [`Thrown`]: the values that JSON and buffers represent, written as
//!   JavaScript does, with a [`UriTransformer`] if the two ends see different file systems.
//! - [`ipc`]: the frames of the byte stream below.
//!
//! Nothing here waits, assigns ids or answers requests: the vscode crate does.
//!
//! ```
//! use breakbulk_message::vscode::*;
//! use bytes::Bytes;
//!
//! let picture = Passed::Plain(Value::Buffer(Bytes::from_static(b"\x89PNG")));
//! let request = RpcMessage {
//!     req: 1,
//!     body: Body::Request(Request {
//!         rpc_id: RpcId::new(2)?,
//!         method: "$show".into(),
//!         args: Args::write(vec![picture, Passed::Plain(2.into())], None)?,
//!         cancellation: false,
//!     }),
//! };
//! let mut bytes = Vec::new();
//! encode(&request, &mut bytes)?;
//! assert_eq!(decode(bytes.into(), &Limits::default())?, request);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod args;
mod decode;
mod ecma;
mod encode;
mod error;
pub mod ipc;
mod json;
mod message;
mod parse;
mod refs;
mod text;
mod typed;
mod uri;
mod value;
mod write;

#[cfg(test)]
mod tests;

pub use args::{Passed, ReadError};
pub use decode::{DecodeError, DecodeErrorKind, Limits, decode};
pub use encode::{EncodeError, Out, encode, encode_to, encoded_len, request_len};
pub use error::{SerializedError, Thrown};
pub use json::JsonError;
pub use message::{
    Arg, Args, Body, Header, MessageType, Reply, Request, RpcId, RpcMessage, WithBuffers,
};
pub use text::{NotUtf8, Text};
pub use typed::to_json;
pub use uri::{Place, StockTransformer, UriTransformer};
pub use value::{MAX_DEPTH, Value};
