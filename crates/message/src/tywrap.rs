//! tywrap/1: calls of a host into a language bridge, and its answers.
//!
//! Arguments and results stay raw JSON both ways. How a message is cut into frames is no matter
//! of this module: that is a wire.
//!
//! ```
//! use breakbulk_message::tywrap::{self, Style};
//!
//! let args = serde_json::from_str(r#"["é"]"#)?;
//! let line = tywrap::call(1, "math", "sqrt", args, None, Style::Ascii);
//! assert_eq!(
//!     line,
//!     r#"{"method":"call","params":{"module":"math","functionName":"sqrt","args":["\u00e9"]},"id":1,"protocol":"tywrap/1"}"#
//! );
//! assert_eq!(tywrap::Request::read(&line)?.id, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bytes;
mod error;
mod meta;
mod request;
mod response;
mod style;

pub use bytes::{
    BytesError, read_request_bytes, read_response_bytes, request_bytes, response_bytes,
};
pub use error::{DecodeError, DecodeErrorKind};
pub use meta::{BridgeKind, Meta};
pub use request::{Call, Method, Request, call, probe};
pub use response::{ErrorBody, Response, error, result};
pub use style::Style;

/// The protocol's name in every message.
pub const PROTOCOL: &str = "tywrap/1";

/// The framing protocol's name.
pub const FRAME_PROTOCOL: &str = "tywrap-frame/1";

/// The id of a reply to what has no readable id, and of the probe.
pub const UNKNOWN_ID: i64 = -1;
