//! The result of a call.

use std::sync::Arc;

use breakbulk_message::vscode::{
    Args, Passed, ReadError, Reply, Text, UriTransformer, Value, WithBuffers,
};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::uri_json;

/// The result of a call, not parsed yet.
#[derive(Clone)]
pub struct Answer {
    pub(super) reply: Reply,
    pub(super) uris: Option<Arc<dyn UriTransformer>>,
}

/// Why a result cannot be read as the wanted type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The JSON is invalid.
    #[error(transparent)]
    Json(#[from] ReadError),
    /// The JSON has another type.
    #[error("the result is of another type: {0}")]
    Type(String),
    /// The result is a buffer, or contains one.
    #[error("the result holds buffers, which serde cannot read; take its value or its buffer")]
    Buffers,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Answer").field(&self.reply).finish()
    }
}

impl Answer {
    /// The result deserialized by serde; `undefined` is read as `null`.
    pub fn typed<T: DeserializeOwned>(&self) -> Result<T, AnswerError> {
        let args = match &self.reply {
            Reply::OkEmpty => return read("null"),
            Reply::OkJson(json) if self.uris.is_none() => return read(json.as_str()),
            // Wrapped in an array it can be handled like arguments, which may hold URIs.
            Reply::OkJson(json) => Args::Json(format!("[{json}]").into()),
            _ => return Err(AnswerError::Buffers),
        };
        let json = uri_json::incoming_json(&args, self.uris.as_deref())?;
        let json = json.ok_or(AnswerError::Buffers)?;
        let one: [T; 1] = read(json.as_str())?;
        let [value] = one;
        Ok(value)
    }

    /// The result as a value, with its URIs rewritten if there is a transformer.
    pub fn value(&self) -> Result<Passed, AnswerError> {
        match self.reply.read(self.uris.as_deref())? {
            Ok(passed) => Ok(passed),
            Err(_) => Ok(Passed::Plain(Value::Undefined)),
        }
    }

    /// The bytes, if the result is a buffer.
    pub fn buffer(&self) -> Option<&Bytes> {
        match &self.reply {
            Reply::OkBuffer(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// The JSON as it was sent, if the result is JSON.
    pub fn json(&self) -> Option<&Text> {
        match &self.reply {
            Reply::OkJson(json) | Reply::OkJsonWithBuffers(WithBuffers { json, .. }) => Some(json),
            _ => None,
        }
    }

    /// The reply as it was sent.
    pub fn raw(&self) -> &Reply {
        &self.reply
    }

    /// The reply as it was sent.
    pub fn into_raw(self) -> Reply {
        self.reply
    }
}

fn read<T: DeserializeOwned>(json: &str) -> Result<T, AnswerError> {
    serde_json::from_str(json).map_err(|error| AnswerError::Type(error.to_string()))
}
