//! The errors of a client's calls.

use std::time::Duration;

use breakbulk_link::{Closed, SendError};
use breakbulk_message::ahp::MessageTooLarge;
use breakbulk_message::jsonrpc::{integer, member, string};
use serde_json::value::RawValue;

use super::text::Text;

/// The most bytes of an error's message that are copied; [`RpcError::json`] has all of it.
const MESSAGE_MAX: usize = 1024;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A message is too large: the request for the host or the path (it was not sent), or the host's
    /// answer for this client. The same call will fail again.
    #[error("{0}")]
    TooLarge(MessageTooLarge),
    /// The message cannot be sent over this path.
    #[error("not sent: {0}")]
    Send(SendError),
    /// The host answered with an error.
    #[error("the host answered with error {}: {}", .0.code, .0.message)]
    Rpc(RpcError),
    /// The connection ended before there was an answer. Whether the host received the call is unknown;
    /// it is not sent again automatically.
    #[error(
        "the connection ended with {code} ({reason}) before there was an answer; reconnect, and call again where that is safe"
    )]
    Disconnected {
        /// The close code; 1006 if there was no close frame.
        code: u16,
        /// The reason in the close frame.
        reason: String,
    },
    /// There is no connection, or its handshake is not done.
    #[error("not connected; call initialize or reconnect first")]
    NotConnected,
    /// The call timed out.
    #[error(
        "no answer to {method}, and no piece of one, for {} s; raise request_timeout, and make sure that the application calls next()", .after.as_secs_f64()
    )]
    TimedOut {
        /// The method of the call.
        method: String,
        /// The timeout.
        after: Duration,
    },
    /// The host's answer breaks the protocol.
    #[error("the host's answer to {method} cannot be used: {why}")]
    BadAnswer {
        /// The method of the call.
        method: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The params are neither an object nor an array.
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
    /// Its message, at most the first 1,024 bytes.
    pub message: String,
    /// All of it, as JSON.
    pub json: Text,
}

impl ClientError {
    /// From the `error` of a response.
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
