//! What the sender of a message is told when its POST fails: the status, the size, the limit and the
//! remedy, and nothing that the server should not tell.

use breakbulk_message::ahp::{MESSAGE_TOO_LARGE, MessageTooLarge};
use breakbulk_message::jsonrpc::{self, Envelope, member, string};

use super::head::{SERVER_ERROR, SESSION_NOT_FOUND};

/// The most characters of a server's own words that are passed on.
const WORDS: usize = 300;

/// Why a message that was posted has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server answered with this status, and maybe with words of its own.
    Status(u16, Option<String>),
    /// The session of this connection is gone (404).
    SessionGone,
    /// The server could not be asked. What failed is for the log: it may name addresses.
    Unreachable(String),
    /// The stream of the answer ended before the answer.
    CutOff,
    /// The server accepted the request (202) and does not answer it, or answers with something else.
    NoAnswer(&'static str),
    /// The answer is over the limit.
    TooLarge {
        /// Its bytes, as far as they are known.
        size: u64,
        /// The limit.
        limit: usize,
    },
    /// There was no memory for the answer.
    NoMemory,
}

impl Failure {
    /// In words for whoever sent the message of `size` bytes.
    pub(super) fn words(&self, size: usize) -> String {
        self.about(&format!("a message of {size} bytes"))
    }

    /// In words for the log, where the event stream for messages of the server's own was asked for.
    pub(super) fn stream_words(&self) -> String {
        self.about("the request for its event stream")
    }

    fn about(&self, asked: &str) -> String {
        match self {
            Self::Status(status, told) => {
                let told = told.as_ref().map(|told| format!(" ({told})"));
                let told = told.unwrap_or_default();
                let remedy = match status {
                    401 => "the gateway needs another token for it: ?token-file=FILE or ?headers-file=FILE",
                    403 => "it does not let this gateway do that: check the gateway's token",
                    404 => "check the path of the target's URL",
                    405 => "is the target's URL that of an MCP server?",
                    413 => "send less, or raise the limit of the server or of a proxy before it",
                    429 | 503 => "try again later",
                    300..=399 => "the target has moved: give the gateway its new URL",
                    500..=599 => "see the server's log",
                    _ => "see the log of the gateway and of the server",
                };
                format!(
                    "the target answers {asked} with HTTP {status}{told}; {remedy}"
                )
            }
            Self::SessionGone => {
                "the target has ended the session (HTTP 404); begin another by initialize".to_owned()
            }
            Self::Unreachable(_) => {
                "the target cannot be reached; the gateway's log says why".to_owned()
            }
            Self::CutOff => {
                "the connection to the target broke before it answered; it may have done the work"
                    .to_owned()
            }
            Self::NoAnswer(how) => format!("the target does not answer the request: {how}"),
            Self::TooLarge { size, limit } => format!(
                "message too large: {size} bytes, and the gateway takes {limit}; send less, or start the gateway with a larger --max-message"
            ),
            Self::NoMemory => {
                "the gateway has no memory for the answer; try again, or start it with a larger --memory"
                    .to_owned()
            }
        }
    }

    /// The JSON-RPC error for the request with this id, given as JSON.
    pub(super) fn answer(&self, id: &str, size: usize) -> String {
        let words = self.words(size);
        match self {
            Self::TooLarge { size, limit } => too_large(Some(id), *size, *limit, &words),
            Self::Status(413, _) => {
                let data = format!(r#"{{"reason":"messageTooLarge","messageBytes":{size}}}"#);
                jsonrpc::error(Some(id), MESSAGE_TOO_LARGE, &words, Some(&data))
            }
            Self::Status(status, _) => {
                let data = format!(r#"{{"reason":"httpStatus","status":{status}}}"#);
                jsonrpc::error(Some(id), SERVER_ERROR, &words, Some(&data))
            }
            Self::SessionGone => jsonrpc::error(Some(id), SESSION_NOT_FOUND, &words, None),
            _ => jsonrpc::error(Some(id), SERVER_ERROR, &words, None),
        }
    }
}

/// The error -32011, with or without the id of the request that it answers.
pub(super) fn too_large(id: Option<&str>, size: u64, limit: usize, words: &str) -> String {
    let too_large = MessageTooLarge {
        message_bytes: size,
        max_frame_bytes: 0,
        max_message_bytes: limit as u64,
        chunking: false,
    };
    jsonrpc::error(id, MESSAGE_TOO_LARGE, words, Some(&too_large.data()))
}

/// The words of a JSON-RPC error that a server sent without the id of the request.
pub(super) fn told(body: &[u8]) -> Option<String> {
    let envelope = Envelope::parse(std::str::from_utf8(body).ok()?)?;
    let message = string(member(envelope.error?.get(), "message")?)?;
    let plain = breakbulk_net::plain_text(&message);
    Some(plain.chars().take(WORDS).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    // MCPH-9
    #[test]
    fn a_failed_post_is_told_with_its_status_its_size_and_the_remedy() {
        for (failure, expected) in [
            (
                Failure::Status(401, None),
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"the target answers a message of 120 bytes with HTTP 401; the gateway needs another token for it: ?token-file=FILE or ?headers-file=FILE","data":{"reason":"httpStatus","status":401}}}"#,
            ),
            (
                Failure::Status(413, None),
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32011,"message":"the target answers a message of 120 bytes with HTTP 413; send less, or raise the limit of the server or of a proxy before it","data":{"reason":"messageTooLarge","messageBytes":120}}}"#,
            ),
            (
                Failure::Status(400, Some("no".to_owned())),
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"the target answers a message of 120 bytes with HTTP 400 (no); see the log of the gateway and of the server","data":{"reason":"httpStatus","status":400}}}"#,
            ),
            (
                Failure::SessionGone,
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"the target has ended the session (HTTP 404); begin another by initialize"}}"#,
            ),
            (
                // Where it is, and what it said, is for the log.
                Failure::Unreachable("10.0.0.1:80 refused".to_owned()),
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"the target cannot be reached; the gateway's log says why"}}"#,
            ),
            (
                Failure::NoMemory,
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"the gateway has no memory for the answer; try again, or start it with a larger --memory"}}"#,
            ),
            (
                Failure::TooLarge {
                    size: 2000,
                    limit: 1000,
                },
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32011,"message":"message too large: 2000 bytes, and the gateway takes 1000; send less, or start the gateway with a larger --max-message","data":{"reason":"messageTooLarge","messageBytes":2000,"maxMessageBytes":1000,"chunking":false}}}"#,
            ),
        ] {
            assert_eq!(failure.answer("7", 120), expected);
        }
        let told_words =
            told(br#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"a\u001b[31mb"}}"#);
        assert!(!told_words.unwrap().contains('\u{1b}'));
    }
}
