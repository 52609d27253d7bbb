//! What a call returned.

use std::sync::Arc;

use breakbulk_message::vscode::{
    Args, Passed, ReadError, Reply, Text, UriTransformer, Value, WithBuffers,
};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::shape;

/// What a call returned, not read yet.
#[derive(Clone)]
pub struct Answer {
    pub(super) reply: Reply,
    pub(super) uris: Option<Arc<dyn UriTransformer>>,
}

/// Why an answer is not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadAnswer {
    /// The JSON gives no value.
    #[error(transparent)]
    Json(#[from] ReadError),
    /// The JSON is of another type.
    #[error("the result is of another type: {0}")]
    Type(String),
    /// It is bytes, or holds bytes.
    #[error("the result holds buffers, which serde cannot read; take its value or its buffer")]
    Buffers,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Answer").field(&self.reply).finish()
    }
}

impl Answer {
    /// As a type of your own; `undefined` reads as `null`.
    pub fn typed<T: DeserializeOwned>(&self) -> Result<T, ReadAnswer> {
        let args = match &self.reply {
            Reply::OkEmpty => return read("null"),
            Reply::OkJson(json) if self.uris.is_none() => return read(json.as_str()),
            // In an array of one it is what arguments are, which may hold URIs.
            Reply::OkJson(json) => Args::Json(format!("[{json}]").into()),
            _ => return Err(ReadAnswer::Buffers),
        };
        let json = shape::incoming_json(&args, self.uris.as_deref())?;
        let json = json.ok_or(ReadAnswer::Buffers)?;
        let one: [T; 1] = read(json.as_str())?;
        let [value] = one;
        Ok(value)
    }

    /// As a value, with its URIs changed where there is a transformer.
    pub fn value(&self) -> Result<Passed, ReadAnswer> {
        match self.reply.read(self.uris.as_deref())? {
            Ok(passed) => Ok(passed),
            Err(_) => Ok(Passed::Plain(Value::Undefined)),
        }
    }

    /// The bytes, if it is bytes.
    pub fn buffer(&self) -> Option<&Bytes> {
        match &self.reply {
            Reply::OkBuffer(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// The JSON as it was sent, if it is JSON.
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

fn read<T: DeserializeOwned>(json: &str) -> Result<T, ReadAnswer> {
    serde_json::from_str(json).map_err(|error| ReadAnswer::Type(error.to_string()))
}
