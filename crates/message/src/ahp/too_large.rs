//! The error response for a message that is too large to send.

use std::fmt;

use serde_json::value::RawValue;

use crate::jsonrpc::{self, string, unsigned};

/// The error code of the proposal. The protocol has another error with this code, so only `data.reason`
/// tells them apart.
pub const MESSAGE_TOO_LARGE: i32 = -32011;

const REASON: &str = "messageTooLarge";

/// The size of the message and the limits it exceeds. A number is 0 if it is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageTooLarge {
    /// The size of the message.
    pub message_bytes: u64,
    /// The largest frame, in bytes.
    pub max_frame_bytes: u64,
    /// The largest message, in bytes; without segments, the largest frame.
    pub max_message_bytes: u64,
    /// Whether the receiver accepts segments.
    pub chunking: bool,
}

impl MessageTooLarge {
    /// The response that replaces the one that was too large. The id is copied as written.
    pub fn response(&self, id: &RawValue, code: i32) -> String {
        self.response_with_text(id, code, &self.to_string())
    }

    /// Like [`response`](Self::response), but with this text: for messages of other protocols, in which the
    /// remedies that AHP's text names do not exist.
    pub fn response_with_text(&self, id: &RawValue, code: i32, words: &str) -> String {
        jsonrpc::error(Some(id.get()), code, words, Some(&self.data()))
    }

    /// The error's `data`, without unknown numbers.
    pub fn data(&self) -> String {
        let known = |name: &str, number: u64| match number {
            0 => String::new(),
            _ => format!(r#""{name}":{number},"#),
        };
        format!(
            r#"{{"reason":"{REASON}",{}{}{}"chunking":{}}}"#,
            known("messageBytes", self.message_bytes),
            known("maxFrameBytes", self.max_frame_bytes),
            known("maxMessageBytes", self.max_message_bytes),
            self.chunking
        )
    }

    /// Reads the `error` of a response with any code; `None` unless `data.reason` is `messageTooLarge`.
    pub fn read(error: &RawValue) -> Option<Self> {
        let error: ErrorMembers<'_> = serde_json::from_str(error.get()).ok()?;
        let data: Members<'_> = serde_json::from_str(error.data?.get()).ok()?;
        if string(data.reason?)? != REASON {
            return None;
        }
        let number = |raw: Option<&RawValue>| raw.and_then(unsigned).unwrap_or(0);
        Some(Self {
            message_bytes: number(data.message),
            max_frame_bytes: number(data.max_frame),
            max_message_bytes: number(data.max_message),
            chunking: data.chunking.is_some_and(|raw| raw.get() == "true"),
        })
    }
}

impl fmt::Display for MessageTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            message_bytes,
            max_frame_bytes,
            max_message_bytes,
            chunking,
        } = self;
        if *chunking {
            write!(
                f,
                "message too large: {message_bytes} bytes, and the receiver takes {max_message_bytes}; send less or raise its maxIncomingMessageBytes"
            )
        } else {
            write!(
                f,
                "message too large: {message_bytes} bytes, one frame holds {max_frame_bytes} and the receiver takes no segments; send less or let it advertise capabilities.chunking"
            )
        }
    }
}

impl std::error::Error for MessageTooLarge {}

crate::raw_members! {
    struct ErrorMembers {
        data: "data",
    }
}

crate::raw_members! {
    struct Members {
        reason: "reason",
        message: "messageBytes",
        max_frame: "maxFrameBytes",
        max_message: "maxMessageBytes",
        chunking: "chunking",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::{Envelope, Kind};

    const ERROR: MessageTooLarge = MessageTooLarge {
        message_bytes: 2_400_000,
        max_frame_bytes: 900_000,
        max_message_bytes: 900_000,
        chunking: false,
    };

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn written_and_read() {
        for (error, id, code, text) in [
            (
                ERROR,
                "7",
                MESSAGE_TOO_LARGE,
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32011,"message":"message too large: 2400000 bytes, one frame holds 900000 and the receiver takes no segments; send less or let it advertise capabilities.chunking","data":{"reason":"messageTooLarge","messageBytes":2400000,"maxFrameBytes":900000,"maxMessageBytes":900000,"chunking":false}}}"#,
            ),
            (
                MessageTooLarge {
                    chunking: true,
                    max_message_bytes: 1_000_000,
                    ..ERROR
                },
                r#""\u0061""#,
                -32099,
                r#"{"jsonrpc":"2.0","id":"\u0061","error":{"code":-32099,"message":"message too large: 2400000 bytes, and the receiver takes 1000000; send less or raise its maxIncomingMessageBytes","data":{"reason":"messageTooLarge","messageBytes":2400000,"maxFrameBytes":900000,"maxMessageBytes":1000000,"chunking":true}}}"#,
            ),
        ] {
            assert_eq!(error.response(raw(id), code), text);
            let envelope = Envelope::parse(text).unwrap();
            assert_eq!(envelope.kind(), Some(Kind::Error));
            assert_eq!(MessageTooLarge::read(envelope.error.unwrap()), Some(error));
        }
    }

    #[test]
    fn other_words_and_unknown_numbers() {
        let error = MessageTooLarge {
            max_message_bytes: 0,
            chunking: true,
            ..ERROR
        };
        let text = error.response_with_text(raw("7"), MESSAGE_TOO_LARGE, "say \"less\"");
        assert_eq!(
            text,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32011,"message":"say \"less\"","data":{"reason":"messageTooLarge","messageBytes":2400000,"maxFrameBytes":900000,"chunking":true}}}"#
        );
        let envelope = Envelope::parse(&text).unwrap();
        assert_eq!(MessageTooLarge::read(envelope.error.unwrap()), Some(error));
    }

    #[test]
    fn only_the_reason_counts() {
        let unknown = MessageTooLarge {
            message_bytes: 0,
            max_frame_bytes: 0,
            max_message_bytes: 0,
            chunking: false,
        };
        for (text, expected) in [
            (r#"{"code":-32011,"message":"Conflict"}"#, None),
            (
                r#"{"code":-32011,"message":"Conflict","data":{"etag":"x"}}"#,
                None,
            ),
            (r#"{"code":-32011,"message":"","data":null}"#, None),
            (
                r#"{"code":-32011,"message":"","data":"messageTooLarge"}"#,
                None,
            ),
            (
                r#"{"code":-32011,"message":"","data":{"reason":["messageTooLarge"]}}"#,
                None,
            ),
            (
                r#"{"code":-32011,"data":{"reason":"messageTooLarge","reason":"other"}}"#,
                None,
            ),
            (r#"[]"#, None),
            (
                r#"{"code":1,"data":{"reason":"messageTooLarge"}}"#,
                Some(unknown),
            ),
            (
                r#"{"data":{"reason":"message\u0054ooLarge","messageBytes":-1,"maxFrameBytes":1e400,"chunking":"true"}}"#,
                Some(unknown),
            ),
        ] {
            assert_eq!(MessageTooLarge::read(raw(text)), expected, "{text}");
        }
    }
}
