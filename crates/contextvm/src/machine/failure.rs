//! Why a message failed, with a text that says what to change and a JSON-RPC error response.

use std::time::Duration;

use breakbulk_link as link;
use breakbulk_message::jsonrpc;

use crate::machine::PublicKey;

/// Why a message was not sent, or a request got no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The message could not be sent.
    #[error("{0}")]
    Unsent(link::SendError),
    /// The transfer of the response failed.
    #[error("the answer could not be put together: {0}")]
    Answer(link::FaultKind),
    /// The peer aborted the transfer of the message.
    #[error("the peer aborted the transfer: {reason}")]
    Aborted {
        /// The peer's reason.
        reason: String,
    },
    /// The server has never sent an event.
    #[error("no event of the server for {} s; is the other end at these relays, under this key, and does it accept this client's key and its encryption?", after.as_secs())]
    NoServer {
        /// How long it was waited.
        after: Duration,
    },
    /// Nothing that belongs to the request came within the soft timeout.
    #[error("no answer and no progress for {} s; if the server is only slow, raise the time that it may be silent (timeout= of a gateway)", after.as_secs())]
    Silent {
        /// How long it was waited.
        after: Duration,
    },
    /// Nothing came for a request that went out without a progress token.
    #[error("no answer for {} s to a request without a progress token: the server opens streams for such tokens, so none was added, and without one it cannot send an answer that is larger than one event; give the request a progressToken, or raise the time that the server may be silent (timeout= of a gateway)", after.as_secs())]
    NoToken {
        /// How long it was waited.
        after: Duration,
    },
    /// All in all it took too long.
    #[error("no answer within {} s, which is the most that a request may take; raise it (timeout= of a gateway, above that)", after.as_secs())]
    TooLong {
        /// How long it was waited.
        after: Duration,
    },
    /// The request was cancelled while it, or its response, was on its way.
    #[error("the request was cancelled")]
    Cancelled,
    /// The memory budget is used up.
    #[error("all memory for messages is in use; try again later")]
    Busy,
    /// The event was made too long ago or ahead of our time, or before the oldest that is remembered.
    #[error("the event's time is {made}, and it is {ours} here: events are taken within {} s of the time, and once; set the clock of its sender, or send it anew", window.as_secs())]
    WrongTime {
        /// When it was made, in Unix seconds by its author's clock.
        made: u64,
        /// When it came, in Unix seconds by our clock.
        ours: u64,
        /// How far both may be apart.
        window: Duration,
    },
    /// The message was not encrypted, and encryption is required.
    #[error(
        "only encrypted messages are taken here; send gift wraps (encryption=optional or required of a gateway)"
    )]
    NotEncrypted,
    /// The message was encrypted, and encryption is disabled.
    #[error(
        "no encrypted messages are taken here; send plain ones (encryption=disabled of a gateway)"
    )]
    Encrypted,
    /// The server accepts listed keys alone.
    #[error(
        "the key {key} is not among those that this server accepts; its operator can add it (allow= of a gateway)"
    )]
    NotAllowed {
        /// The key that sent the message.
        key: PublicKey,
    },
}

impl Failure {
    /// A fixed identifier for programs: `data.reason` of the error response.
    pub fn reason(&self) -> &'static str {
        use link::SendError as S;
        match self {
            Self::Unsent(
                S::MessageTooLarge { .. }
                | S::FrameTooLarge { .. }
                | S::TooManyPieces { .. }
                | S::Refused { .. }
                | S::CapTooSmall { .. },
            ) => "messageTooLarge",
            Self::Unsent(S::NotAccepted { .. }) => "notAccepted",
            Self::Unsent(S::Aborted { .. }) | Self::Aborted { .. } => "aborted",
            Self::Unsent(S::Lost) => "lost",
            Self::Unsent(S::TooSlow { .. }) => "tooSlow",
            Self::Unsent(_) => "unsent",
            Self::Answer(_) => "transferFailed",
            Self::NoServer { .. }
            | Self::Silent { .. }
            | Self::NoToken { .. }
            | Self::TooLong { .. } => "timeout",
            Self::Cancelled => "cancelled",
            Self::Busy => "busy",
            Self::NotEncrypted => "encryptionRequired",
            Self::Encrypted => "encryptionDisabled",
            Self::NotAllowed { .. } => "notAllowed",
            Self::WrongTime { .. } => "wrongTime",
        }
    }

    fn code(&self) -> i32 {
        match self.reason() {
            "messageTooLarge" => -32011,
            "timeout" => -32001,
            _ => -32000,
        }
    }

    /// The JSON-RPC error response for the request with this id (as JSON).
    pub(crate) fn answer(&self, id: &str) -> String {
        let data = format!(r#"{{"reason":"{}"}}"#, self.reason());
        jsonrpc::error(Some(id), self.code(), &self.to_string(), Some(&data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_why() {
        let refused = Failure::Unsent(link::SendError::Refused { size: 7 });
        assert_eq!(
            refused.answer("\"a\""),
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32011,"message":"the transport refused a frame of 7 bytes as too large; lower the frame cap","data":{"reason":"messageTooLarge"}}}"#
        );
        let late = Failure::Silent {
            after: Duration::from_secs(3),
        };
        assert!(late.answer("1").contains(r#""code":-32001"#));
    }
}
