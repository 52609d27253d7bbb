//! A question of the host's.

use breakbulk_link::{Outgoing, Rejected};
use breakbulk_message::ahp::Chunking;
use breakbulk_message::jsonrpc::Kind;
use breakbulk_net::Connection;
use serde_json::value::RawValue;

use super::ClientError;
use super::send::{closed, fits};
use super::text::Text;
use crate::Settings;

/// JSON-RPC's "method not found".
const NOT_FOUND: i32 = -32601;

/// The host asks something. It is answered once; dropped, it is answered with "method not found".
pub struct Request {
    /// What it asks.
    pub method: String,
    /// The params, as JSON.
    pub params: Option<Text>,
    id: Text,
    /// Where it came from: an answer to a connection that is gone goes nowhere else.
    from: Box<Asker>,
    answered: bool,
}

/// What is needed to answer.
#[derive(Clone)]
pub(super) struct Asker {
    pub(super) connection: Connection,
    pub(super) settings: Settings,
    pub(super) host: Option<Chunking>,
}

impl Request {
    pub(super) fn new(method: String, params: Option<Text>, id: Text, from: Box<Asker>) -> Self {
        Self {
            method,
            params,
            id,
            from,
            answered: false,
        }
    }

    /// Answers it. Where the answer is too large for the host it gets an error that says so, and so
    /// does the caller.
    pub async fn answer(mut self, result: &RawValue) -> Result<(), ClientError> {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{}}}"#,
            &*self.id,
            result.get()
        );
        let message = self.message(Kind::Result, text);
        let fits = fits(&self.from.settings, self.from.host.as_ref(), &message);
        let (message, outcome) = match fits {
            Err(ClientError::TooLarge(too_large)) => {
                let code = self.from.settings.too_large_code;
                // It was part of a message that was read as JSON.
                let id = serde_json::from_str(&self.id).unwrap_or(RawValue::NULL);
                let text = too_large.response(id, code);
                let instead = self.message(Kind::Error, text);
                (instead, Err(ClientError::TooLarge(too_large)))
            }
            Err(error) => return Err(error),
            Ok(()) => (message, Ok(())),
        };
        self.answered = true;
        self.send(message).await.and(outcome)
    }

    /// Answers it with an error.
    pub async fn refuse(mut self, code: i32, words: &str) -> Result<(), ClientError> {
        self.answered = true;
        self.send(self.refusal(code, words)).await
    }

    async fn send(&self, message: Outgoing) -> Result<(), ClientError> {
        let connection = &self.from.connection;
        let sent = connection.send_when_writable(message).await;
        sent.map(drop)
            .map_err(|Rejected { error, .. }| closed(connection, error))
    }

    fn refusal(&self, code: i32, words: &str) -> Outgoing {
        let words = serde_json::Value::from(words);
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{code},"message":{words}}}}}"#,
            &*self.id
        );
        self.message(Kind::Error, text)
    }

    fn message(&self, kind: Kind, text: String) -> Outgoing {
        let lane = self.from.settings.lane(kind, Some(&self.method));
        Outgoing::text(text).in_lane(lane)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let refusal = self.refusal(NOT_FOUND, "the client does not answer this");
        if let Err(rejected) = self.from.connection.send(refusal) {
            tracing::debug!(method = self.method, error = %rejected.error, "a request stays without an answer");
        }
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("params", &self.params)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
