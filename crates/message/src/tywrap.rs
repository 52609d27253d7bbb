//! tywrap/1: a host's calls into a language bridge, and the bridge's answers.
//!
//! Arguments and results stay raw JSON. Cutting a message into frames is done by the wire crate.
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

/// The id of the probe, and of a reply to a message whose id cannot be read.
pub const UNKNOWN_ID: i64 = -1;
