//! The messages that two breakbulk gateways send each other: `breakbulk/hello`, the first frame of a
//! tunnel, and `breakbulk/end`, the end of one side's input.
//!
//! A tunnel carries programs that negotiate no frame sizes themselves (MCP, LSP). Their messages are not
//! edited, so each gateway first sends its limits in a frame of its own.

use crate::ahp::Chunking;
use crate::jsonrpc::{Envelope, Kind, unsigned};

/// The WebSocket subprotocol by which two gateways agree on a tunnel.
pub const TUNNEL: &str = "breakbulk.v1";

/// The method of the first frame.
const HELLO: &str = "breakbulk/hello";

/// The method of the last frame of a side: no more messages follow it, while others may still go the other way.
const END: &str = "breakbulk/end";

/// The method of a segment; a tunnel cannot carry a segment inside segments.
const SEGMENT: &str = "ahp/messageSegment";

/// The version of the tunnel.
const VERSION: u64 = 1;

/// The first frame of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The limits for messages to this side.
    pub chunking: Chunking,
}

/// Why a first frame is not a valid hello.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// It is another message.
    #[error("the first frame is no breakbulk/hello; is the other end a breakbulk gateway?")]
    Other,
    /// It has a later version.
    #[error(
        "the other gateway speaks version {0} of the tunnel, this one speaks 1; update this one"
    )]
    Version(u64),
    /// Its limits are invalid.
    #[error("the breakbulk/hello has no valid chunking limits")]
    Limits,
}

impl Hello {
    /// Its JSON text.
    pub fn to_json(&self) -> String {
        let chunking = self.chunking.to_json();
        format!(
            r#"{{"jsonrpc":"2.0","method":"{HELLO}","params":{{"version":{VERSION},"chunking":{chunking}}}}}"#
        )
    }

    /// Reads a first frame.
    pub fn read(text: &str) -> Result<Self, HelloError> {
        let envelope = Envelope::parse(text).ok_or(HelloError::Other)?;
        if envelope.kind() != Some(Kind::Notification)
            || envelope.method().as_deref() != Some(HELLO)
        {
            return Err(HelloError::Other);
        }
        let params = envelope.params.map_or("{}", |params| params.get());
        let members: Members<'_> = serde_json::from_str(params).map_err(|_| HelloError::Limits)?;
        match members.version.and_then(unsigned) {
            Some(VERSION) => {}
            Some(other) => return Err(HelloError::Version(other)),
            None => return Err(HelloError::Limits),
        }
        let chunking = members.chunking.and_then(Chunking::read);
        Ok(Self {
            chunking: chunking.ok_or(HelloError::Limits)?,
        })
    }
}

crate::raw_members! {
    struct Members {
        version: "version",
        chunking: "chunking",
    }
}

/// The message that announces the end of this direction.
pub fn tunnel_end() -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{END}"}}"#)
}

/// Whether a method, as written in the message, is that of [`tunnel_end`].
pub fn is_tunnel_end(method: &str) -> bool {
    method == END
}

/// Whether a program's message with this method (as written, without its quotes) would be mistaken
/// for one of the tunnel's own.
pub fn is_reserved_by_tunnel(method: &str) -> bool {
    let own = |method: &str| method.starts_with("breakbulk/") || method == SEGMENT;
    if memchr::memchr(b'\\', method.as_bytes()).is_none() {
        return own(method);
    }
    let unescaped: Result<String, _> = serde_json::from_str(&format!("\"{method}\""));
    unescaped.is_ok_and(|method| own(&method))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_as_read() {
        let hello = Hello {
            chunking: Chunking::default(),
        };
        let text = r#"{"jsonrpc":"2.0","method":"breakbulk/hello","params":{"version":1,"chunking":{"maxIncomingFrameBytes":900000,"maxIncomingMessageBytes":33554432,"maxIncomingGroups":8,"groupTimeoutMs":30000,"groupTimeoutFrom":"last"}}}"#;
        assert_eq!(hello.to_json(), text);
        assert_eq!(Hello::read(text), Ok(hello));
        assert_eq!(
            tunnel_end(),
            r#"{"jsonrpc":"2.0","method":"breakbulk/end"}"#
        );
    }

    #[test]
    fn what_is_no_hello() {
        let chunking = r#"{"maxIncomingFrameBytes":1,"maxIncomingMessageBytes":2}"#;
        let hello = |params: &str| {
            format!(r#"{{"jsonrpc":"2.0","method":"breakbulk/hello","params":{params}}}"#)
        };
        for (text, error) in [
            (String::new(), HelloError::Other),
            ("[]".to_owned(), HelloError::Other),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#.to_owned(),
                HelloError::Other,
            ),
            (
                format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"breakbulk/hello","params":{{"version":1,"chunking":{chunking}}}}}"#
                ),
                HelloError::Other,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"breakbulk/hello"}"#.to_owned(),
                HelloError::Limits,
            ),
            (hello("[]"), HelloError::Limits),
            (hello(r#"{"version":1}"#), HelloError::Limits),
            (hello(r#"{"version":1,"chunking":{}}"#), HelloError::Limits),
            (
                hello(&format!(r#"{{"version":2,"chunking":{chunking}}}"#)),
                HelloError::Version(2),
            ),
            (
                hello(&format!(r#"{{"version":"1","chunking":{chunking}}}"#)),
                HelloError::Limits,
            ),
        ] {
            assert_eq!(Hello::read(&text), Err(error), "{text}");
        }
        let good = hello(&format!(
            r#"{{"chunking":{chunking},"version":1,"later":[]}}"#
        ));
        assert_eq!(Hello::read(&good).unwrap().chunking.max_message_bytes, 2);
    }

    #[test]
    fn methods_that_belong_to_the_tunnel() {
        for (method, own) in [
            ("initialize", false),
            ("ahp/other", false),
            ("ahp/messageSegment", true),
            ("breakbulk/hello", true),
            ("breakbulk/end", true),
            ("breakbulk/later", true),
            (r"ahp\/messageSegment", true),
            (r"\u0061hp/messageSegment", true),
            (r"textDocument\/didOpen", false),
        ] {
            assert_eq!(is_reserved_by_tunnel(method), own, "{method}");
        }
    }
}
