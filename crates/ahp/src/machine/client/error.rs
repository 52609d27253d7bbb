//! What can go wrong for a client.

use std::time::Duration;

use breakbulk_link::{Closed, SendError};
use breakbulk_message::ahp::MessageTooLarge;
use breakbulk_message::jsonrpc::{integer, string};
use serde_json::value::RawValue;

use super::text::{Text, member};

/// The words of an error that are copied; all of it is in [`RpcError::json`].
const MESSAGE_MAX: usize = 1024;

/// Why a call of a client's failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A message is too large: ours for the host or the path (it was not sent), or the host's answer
    /// for us. The same call will fail again.
    #[error("{0}")]
    TooLarge(MessageTooLarge),
    /// The message cannot be sent over this path.
    #[error("not sent: {0}")]
    Send(SendError),
    /// The host answered with an error.
    #[error("the host answered with error {}: {}", .0.code, .0.message)]
    Rpc(RpcError),
    /// The connection ended before there was an answer. Whether the host got the call is not known;
    /// nothing is sent again by itself.
    #[error(
        "the connection ended with {code} ({reason}) before there was an answer; reconnect, and call again where that is safe"
    )]
    Disconnected {
        /// The code of the close; 1006 where nobody said one.
        code: u16,
        /// What was said.
        reason: String,
    },
    /// There never was a connection, or its handshake is not done.
    #[error("not connected; call initialize or reconnect first")]
    NotConnected,
    /// Nothing of the answer came for this long.
    #[error(
        "no answer to {method}, and no piece of one, for {} s; raise request_timeout, and make sure that the application calls next()", .after.as_secs_f64()
    )]
    TimedOut {
        /// What was asked.
        method: String,
        /// The time limit.
        after: Duration,
    },
    /// The host's answer is not what the protocol says.
    #[error("the host's answer to {method} cannot be used: {why}")]
    BadAnswer {
        /// What was asked.
        method: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Params that JSON-RPC does not have.
    #[error("params must be an object or an array")]
    BadParams,
    /// The transport carries no text.
    #[error("this transport carries no text frames; AHP needs them")]
    WrongTransport,
}

/// An error that the host answered with.
#[derive(Clone, Debug)]
pub struct RpcError {
    /// Its code; 0 where it has none.
    pub code: i64,
    /// Its words, at most 1,024 bytes of them.
    pub message: String,
    /// All of it, as JSON.
    pub json: Text,
}

impl ClientError {
    /// Of a response's `error`.
    pub(super) fn answered(error: Text) -> Self {
        let raw = serde_json::from_str::<&RawValue>(&error).ok();
        if let Some(too_large) = raw.and_then(MessageTooLarge::read) {
            return Self::TooLarge(too_large);
        }
        let code = member(&error, "code").and_then(integer);
        let message = member(&error, "message").and_then(string);
        let message = message.unwrap_or_default();
        Self::Rpc(RpcError {
            code: code.and_then(|code| code.try_into().ok()).unwrap_or(0),
            message: message[..message.floor_char_boundary(MESSAGE_MAX)].to_owned(),
            json: error.clone(),
        })
    }
}

impl From<Closed> for ClientError {
    fn from(closed: Closed) -> Self {
        Self::Disconnected {
            code: closed.code,
            reason: closed.reason,
        }
    }
}
