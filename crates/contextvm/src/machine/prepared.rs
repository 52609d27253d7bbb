//! A parsed message that is ready to send, with the progress token that a large response needs.

use breakbulk_link::{MessageKind, Shape};
use breakbulk_message::jsonrpc::{self, Envelope};
use breakbulk_message::mcp::{self, ProgressToken};
use bytes::Bytes;
use serde_json::Number;

/// The kind of a JSON-RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Expects a response.
    Request,
    /// Expects none.
    Notification,
    /// A result or an error.
    Response,
}

/// The text is not a single JSON-RPC 2.0 message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no JSON-RPC 2.0 message; a batch must be sent as its members")]
pub struct NotJsonRpc;

/// A message and its parsed head. Making one parses the whole text: for a large message do it on a
/// thread that may block.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) bytes: Bytes,
    pub(crate) kind: Kind,
    /// The id as JSON text.
    pub(crate) id: Option<String>,
    pub(crate) method: Option<String>,
    /// The progress token in the message; in an outgoing request it is the replacement.
    pub(crate) token: Option<String>,
    /// The token that the application gave its request.
    pub(crate) given: Option<ProgressToken<'static>>,
    /// For a progress notification its token, for a cancellation the id of the request.
    pub(crate) about: Option<String>,
    /// For a progress notification its value.
    pub(crate) progress: Option<Number>,
}

impl Prepared {
    /// Parses an outgoing message. A request's progress token is replaced by `token`, which must be hard
    /// to guess and never used twice: existing servers tell transfers apart by it alone.
    pub fn outgoing(text: Bytes, token: Option<&str>) -> Result<Self, NotJsonRpc> {
        Self::outgoing_where(text, token, |_| true)
    }

    /// The same, except that a request without a token gets one only if `adds` says so.
    pub(crate) fn outgoing_where(
        text: Bytes,
        token: Option<&str>,
        adds: impl FnOnce(&Self) -> bool,
    ) -> Result<Self, NotJsonRpc> {
        let mut prepared = Self::read(text)?;
        let wants = prepared.kind == Kind::Request && (prepared.given.is_some() || adds(&prepared));
        let Some(token) = token.filter(|_| wants) else {
            return Ok(prepared);
        };
        let text = utf8(&prepared.bytes)?;
        let new = ProgressToken::Text(token.into());
        let edited = match mcp::replace_progress_token(text, &new) {
            Some((edited, _)) => Some(edited),
            None => mcp::with_progress_token(text, &new),
        };
        // Params that are an array cannot carry a token: such a request must fit into one event.
        if let Some(edited) = edited {
            prepared.bytes = edited.into();
            prepared.token = Some(token.to_owned());
        }
        Ok(prepared)
    }

    /// Reads a message that came in, of which the link knows the shape. The text of a response, which
    /// may be large, is not parsed again.
    pub(crate) fn received(bytes: Bytes, shape: &Shape) -> Result<Self, NotJsonRpc> {
        if !matches!(shape.kind, MessageKind::Result | MessageKind::Error) {
            return Self::read(bytes);
        }
        let id = shape.id.clone().and_then(|id| bytes.get(id));
        let id = utf8(id.ok_or(NotJsonRpc)?)?.to_owned();
        Ok(Self {
            kind: Kind::Response,
            id: Some(id),
            method: None,
            token: None,
            given: None,
            about: None,
            progress: None,
            bytes,
        })
    }

    /// Parses a message without changing it.
    pub(crate) fn read(bytes: Bytes) -> Result<Self, NotJsonRpc> {
        let text = utf8(&bytes)?;
        let envelope = Envelope::parse(text).ok_or(NotJsonRpc)?;
        let kind = match envelope.kind().ok_or(NotJsonRpc)? {
            jsonrpc::Kind::Request => Kind::Request,
            jsonrpc::Kind::Notification => Kind::Notification,
            jsonrpc::Kind::Result | jsonrpc::Kind::Error => Kind::Response,
        };
        let given = mcp::progress_token(&envelope).map(ProgressToken::into_owned);
        let method = envelope.method().map(|method| method.into_owned());
        let (about, progress) = match (method.as_deref(), envelope.params) {
            (Some(mcp::PROGRESS), Some(params)) => mcp::Progress::read(params)
                .map(|read| (read.token.to_string(), read.progress))
                .unzip(),
            (Some(mcp::CANCELLED), Some(params)) => {
                let id = mcp::cancelled_request(params);
                (id.map(|id| id.get().to_owned()), None)
            }
            _ => (None, None),
        };
        Ok(Self {
            kind,
            id: envelope.id.map(|id| id.get().to_owned()),
            token: given.as_ref().map(ToString::to_string),
            given,
            method,
            about,
            progress,
            bytes,
        })
    }

    /// Request, notification or response.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The bytes that are sent.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether its token would let a server open a stream (CEP-41): tools are called with one.
    pub(crate) fn calls_tool(&self) -> bool {
        self.method.as_deref() == Some("tools/call")
    }

    pub(crate) fn is_cancellation(&self) -> bool {
        self.method.as_deref() == Some(mcp::CANCELLED)
    }

    pub(crate) fn is_progress(&self) -> bool {
        self.method.as_deref() == Some(mcp::PROGRESS)
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, NotJsonRpc> {
    std::str::from_utf8(bytes).map_err(|_| NotJsonRpc)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing(text: &str) -> Prepared {
        Prepared::outgoing(Bytes::copy_from_slice(text.as_bytes()), Some("T")).unwrap()
    }

    // CEP22-6
    #[test]
    fn requests_get_a_token_of_ours() {
        for (text, wire, given) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#,
                r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"_meta":{"progressToken":"T"}}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"_meta":{"progressToken":3}}}"#,
                r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"_meta":{"progressToken":"T"}}}"#,
                Some(ProgressToken::Integer(3)),
            ),
        ] {
            let prepared = outgoing(text);
            assert_eq!(prepared.bytes, wire.as_bytes());
            assert_eq!(prepared.token.as_deref(), Some("T"));
            assert_eq!(prepared.given, given);
        }
        let list = outgoing(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[1]}"#);
        assert_eq!((list.token, list.id.as_deref()), (None, Some("7")));
    }

    #[test]
    fn what_a_message_is_about() {
        let progress = outgoing(
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1}}"#,
        );
        assert!(progress.is_progress());
        assert_eq!(progress.about.as_deref(), Some("5"));
        let cancelled = outgoing(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x","reason":"y"}}"#,
        );
        assert!(cancelled.is_cancellation());
        assert_eq!(cancelled.about.as_deref(), Some("\"x\""));
        let answer = outgoing(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert_eq!((answer.kind, answer.token), (Kind::Response, None));
        for bad in [
            "",
            "[]",
            "{}",
            "1",
            r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#,
        ] {
            assert_eq!(
                Prepared::outgoing(Bytes::copy_from_slice(bad.as_bytes()), None).err(),
                Some(NotJsonRpc),
                "{bad}"
            );
        }
    }
}
