//! What can go wrong above the link, each with what to change.

use std::time::Duration;

use breakbulk_link as link;
use breakbulk_net::nostr::{Keys, PublicKey, RelaysError};

/// Why a message did not do what it was sent for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// It did not go out.
    #[error("{0}")]
    Unsent(link::SendError),
    /// Its answer began to come and failed.
    #[error("the answer could not be put together: {0}")]
    Answer(link::FaultKind),
    /// The peer says that it could not put together what we sent.
    #[error("the peer aborted the transfer: {reason}")]
    Aborted {
        /// What it said.
        reason: String,
    },
    /// Nothing more came in time.
    #[error("no sign of life for {} s; is the other end at these relays? If it is only slow, raise the soft timeout or ask for less", after.as_secs())]
    Silent {
        /// How long it was waited.
        after: Duration,
    },
    /// All in all it took too long.
    #[error("no answer within {} s, which is the most that a request may take; raise the hard timeout", after.as_secs())]
    TooLong {
        /// How long it was waited.
        after: Duration,
    },
    /// We hold more than we may.
    #[error("all memory for messages is in use; try again later")]
    Busy,
    /// It came bare where only sealed messages are taken.
    #[error("only encrypted messages are taken here; use a gift wrap")]
    NotEncrypted,
}

impl Failure {
    /// A word for programs.
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
            Self::Silent { .. } | Self::TooLong { .. } => "timeout",
            Self::Busy => "busy",
            Self::NotEncrypted => "encryptionRequired",
        }
    }

    fn code(&self) -> i64 {
        match self.reason() {
            "messageTooLarge" => -32011,
            "timeout" => -32001,
            _ => -32000,
        }
    }

    /// The answer that tells of it, to the request with this id (as JSON).
    pub(crate) fn answer(&self, id: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{},"message":{},"data":{{"reason":"{}"}}}}}}"#,
            self.code(),
            serde_json::Value::from(self.to_string()),
            self.reason()
        )
    }
}

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// It is no message.
    #[error(transparent)]
    NotJsonRpc(#[from] super::prepared::NotJsonRpc),
    /// It could not be queued.
    #[error(transparent)]
    Refused(#[from] super::machine::Refused),
    /// The endpoint is closed.
    #[error("the endpoint is closed")]
    Closed,
}

/// Why an endpoint could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No relay.
    #[error(transparent)]
    Relays(#[from] RelaysError),
}

/// A text that is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no {what}; write it as 64 hex digits or as {prefix}1…")]
pub struct KeyError {
    what: &'static str,
    prefix: &'static str,
}

/// Reads a public key as hex or npub.
pub fn public_key(text: &str) -> Result<PublicKey, KeyError> {
    PublicKey::parse(text.trim()).map_err(|_| KeyError {
        what: "public key",
        prefix: "npub",
    })
}

/// Reads a secret key as hex or nsec. The text is in no error.
pub fn keys(text: &str) -> Result<Keys, KeyError> {
    Keys::parse(text.trim()).map_err(|_| KeyError {
        what: "secret key",
        prefix: "nsec",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_in_both_forms() {
        let hex = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa";
        let nsec = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5";
        assert_eq!(keys(hex).unwrap(), keys(nsec).unwrap());
        let public = "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e";
        let npub = "npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg";
        assert_eq!(public_key(public).unwrap(), public_key(npub).unwrap());
        assert_eq!(keys(hex).unwrap().public_key(), public_key(npub).unwrap());
        assert_eq!(
            keys("secret!").unwrap_err().to_string(),
            "this is no secret key; write it as 64 hex digits or as nsec1…"
        );
        assert!(public_key(nsec).is_err());
    }

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
