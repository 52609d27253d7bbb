//! The error -32011 that is sent in the place of a JSON-RPC message that is too large.
//!
//! Its text names the limits of the gateways, since the programs behind them do not know AHP's
//! capabilities.

use breakbulk_link::{Outgoing, SendError, Uncut};
use breakbulk_message::ahp::MessageTooLarge;
use breakbulk_message::jsonrpc::{self, Envelope, INTERNAL_ERROR, Kind};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::{Oversized, Replacement, TOO_LARGE, batch};

/// The most characters of a method's name in a text.
const NAME: usize = 64;

/// What to do about a message that could not be sent: a request is answered with an error, a response is
/// replaced by one (also those of a batch), and any other message closes both sides.
pub(super) fn instead(bytes: &Bytes, error: &SendError, too_large_code: i32) -> Replacement {
    if jsonrpc::is_batch(bytes)
        && let Some(instead) = batch::instead(bytes, error, too_large_code)
    {
        return instead;
    }
    let envelope = std::str::from_utf8(bytes).ok().and_then(Envelope::parse);
    let (kind, id) = match &envelope {
        Some(envelope) => (envelope.kind(), envelope.id),
        None => (None, None),
    };
    match (kind, id) {
        (Some(Kind::Request), Some(id)) => {
            Replacement::Answer(answer(id, bytes.len(), error, too_large_code).into())
        }
        (Some(Kind::Result | Kind::Error), Some(id)) => {
            let answer = answer(id, bytes.len(), error, too_large_code);
            Replacement::Replace(Box::new(Outgoing::new(answer)))
        }
        _ => {
            let method = envelope.as_ref().and_then(Envelope::method);
            let name: String = match &method {
                Some(method) => method.chars().take(NAME).collect(),
                None => "a text that is no JSON-RPC message".to_owned(),
            };
            let words = explained(bytes.len(), error);
            Replacement::Close(TOO_LARGE, format!("{name}: {words}"))
        }
    }
}

/// What to do about a request or a response that is too large for a client that takes no pieces: the error
/// tells how to put a second gateway before the client, which connects to the address where this one listens.
/// `None` for other errors and messages.
pub(super) fn second_gateway(
    bytes: &Bytes,
    error: &SendError,
    too_large_code: i32,
    address: &str,
) -> Option<Replacement> {
    let &SendError::FrameTooLarge {
        limit,
        uncut: Uncut::NotNegotiated,
        ..
    } = error
    else {
        return None;
    };
    let envelope = std::str::from_utf8(bytes).ok().and_then(Envelope::parse)?;
    let size = bytes.len();
    let words = format!(
        "message too large: {size} bytes, one frame holds {limit}, and the client takes no pieces; put a second gateway before the client: breakbulk gateway --listen stdio: --to {address}"
    );
    let too_large = MessageTooLarge {
        message_bytes: size as u64,
        max_frame_bytes: limit as u64,
        max_message_bytes: limit as u64,
        chunking: false,
    };
    let answer = |id| too_large.response_with_text(id, too_large_code, &words);
    match (envelope.kind(), envelope.id) {
        (Some(Kind::Request), Some(id)) => Some(Replacement::Answer(answer(id).into())),
        (Some(Kind::Result | Kind::Error), Some(id)) => {
            Some(Replacement::Replace(Box::new(Outgoing::new(answer(id)))))
        }
        _ => None,
    }
}

/// What to do about a message that was too large to be received: as for [`instead`], but a notification is
/// dropped.
pub(super) fn of_oversized(oversized: &Oversized, too_large_code: i32) -> Replacement {
    let Oversized { size, limit, .. } = oversized;
    let words = format!(
        "message too large: {size} bytes, and the gateway at its sender takes {limit}; send less, or start both gateways with a larger --max-message"
    );
    of_oversized_because(oversized, too_large_code, &words)
}

/// [`of_oversized`], with words that say whose limit it is.
pub(super) fn of_oversized_because(
    oversized: &Oversized,
    too_large_code: i32,
    words: &str,
) -> Replacement {
    let Oversized {
        size,
        limit,
        id,
        method,
        is_answer,
    } = oversized;
    let too_large = MessageTooLarge {
        message_bytes: *size,
        max_frame_bytes: 0,
        max_message_bytes: *limit as u64,
        chunking: false,
    };
    let id = id.as_deref().and_then(identifier);
    match (id, method, is_answer) {
        (Some(id), Some(_), false) => Replacement::Answer(
            too_large
                .response_with_text(id, too_large_code, words)
                .into(),
        ),
        (Some(id), None, true) => {
            let answer = too_large.response_with_text(id, too_large_code, words);
            Replacement::Replace(Box::new(Outgoing::new(answer)))
        }
        (_, method, _) => {
            let method = method
                .as_deref()
                .unwrap_or("a message without a readable method");
            let name: String = method.chars().take(NAME).collect();
            Replacement::Drop(format!("{name} is dropped: {words}"))
        }
    }
}

/// An id that can be answered: a string or a number.
fn identifier(text: &str) -> Option<&RawValue> {
    let raw: &RawValue = serde_json::from_str(text).ok()?;
    let begin = raw.get().bytes().next()?;
    matches!(begin, b'"' | b'-' | b'0'..=b'9').then_some(raw)
}

fn answer(id: &RawValue, size: usize, error: &SendError, too_large_code: i32) -> String {
    match too_large(size, error) {
        Some((data, words)) => data.response_with_text(id, too_large_code, &words),
        None => jsonrpc::error(Some(id.get()), INTERNAL_ERROR, &error.to_string(), None),
    }
}

/// Why a message of `size` bytes could not be sent, with the options of the gateways that help.
pub(super) fn explained(size: usize, error: &SendError) -> String {
    match too_large(size, error) {
        Some((_, words)) => words,
        None => error.to_string(),
    }
}

/// The limits and the remedy, if the message was over a limit.
fn too_large(size: usize, error: &SendError) -> Option<(MessageTooLarge, String)> {
    let too_large = |frame: usize, message: usize, chunking| MessageTooLarge {
        message_bytes: size as u64,
        max_frame_bytes: frame as u64,
        max_message_bytes: message as u64,
        chunking,
    };
    Some(match *error {
        SendError::MessageTooLarge { limit, .. } => (
            too_large(0, limit, true),
            format!(
                "message too large: {size} bytes, and the gateway at its receiver takes {limit}; send less, or start both gateways with a larger --max-message"
            ),
        ),
        SendError::FrameTooLarge {
            limit,
            uncut: uncut @ (Uncut::NotNegotiated | Uncut::NoPieces),
            ..
        } => (
            too_large(limit, limit, false),
            match uncut {
                Uncut::NoPieces => format!(
                    "message too large: {size} bytes, and the gateway at its receiver passes on {limit}; send less, or start both gateways with a larger --max-message"
                ),
                _ => format!(
                    "message too large: {size} bytes, one frame holds {limit} and the receiver takes no pieces; send less, put a gateway before the receiver, or start this gateway with a larger --max-frame if the path lets more through"
                ),
            },
        ),
        SendError::FrameTooLarge { limit, uncut, .. } => (
            too_large(limit, limit, true),
            format!("message too large: {size} bytes, one frame holds {limit}, and {uncut}"),
        ),
        // The largest message follows from both limits and from its content, so it is not named.
        SendError::TooManyPieces { limit, cap, .. } => (
            too_large(cap, 0, true),
            format!(
                "message too large: {size} bytes make more than {limit} pieces in frames of {cap} bytes; send less, or start both gateways with a larger --max-frame"
            ),
        ),
        SendError::CapTooSmall { cap, needed } => (
            too_large(cap, 0, true),
            format!(
                "frames of {cap} bytes leave no room for pieces; start both gateways with --max-frame {needed} or more"
            ),
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 65;

    fn told(error: &SendError) -> String {
        let request = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{{"t":"{}"}}}}"#,
            "x".repeat(10)
        );
        match instead(&Bytes::from(request), error, -32011) {
            Replacement::Answer(answer) => String::from_utf8(answer.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_reason_the_limit_and_the_remedy_are_the_real_ones() {
        let large = |limit, uncut| SendError::FrameTooLarge {
            size: SIZE,
            limit,
            uncut,
        };
        for (error, words, data) in [
            (
                SendError::MessageTooLarge {
                    size: SIZE,
                    limit: 50,
                },
                "message too large: 65 bytes, and the gateway at its receiver takes 50; send less, or start both gateways with a larger --max-message",
                r#""maxMessageBytes":50,"chunking":true"#,
            ),
            (
                SendError::TooManyPieces {
                    size: SIZE,
                    limit: 65_536,
                    cap: 300,
                },
                "message too large: 65 bytes make more than 65536 pieces in frames of 300 bytes; send less, or start both gateways with a larger --max-frame",
                r#""maxFrameBytes":300,"chunking":true"#,
            ),
            (
                SendError::CapTooSmall {
                    cap: 100,
                    needed: 200,
                },
                "frames of 100 bytes leave no room for pieces; start both gateways with --max-frame 200 or more",
                r#""maxFrameBytes":100,"chunking":true"#,
            ),
            (
                large(50, Uncut::NoPieces),
                "message too large: 65 bytes, and the gateway at its receiver passes on 50; send less, or start both gateways with a larger --max-message",
                r#""maxFrameBytes":50,"maxMessageBytes":50,"chunking":false"#,
            ),
            (
                large(50, Uncut::NotNegotiated),
                "message too large: 65 bytes, one frame holds 50 and the receiver takes no pieces; send less, put a gateway before the receiver, or start this gateway with a larger --max-frame if the path lets more through",
                r#""maxFrameBytes":50,"maxMessageBytes":50,"chunking":false"#,
            ),
        ] {
            let expected = format!(
                r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":-32011,"message":"{words}","data":{{"reason":"messageTooLarge","messageBytes":65,{data}}}}}}}"#
            );
            assert_eq!(told(&error), expected);
        }
        let other = told(&SendError::Lost);
        assert!(other.contains(r#""code":-32603"#), "{other}");
    }

    #[test]
    fn what_was_skipped_is_answered_replaced_or_dropped() {
        let words = "message too large: 2000 bytes, and the gateway at its sender takes 1000; send less, or start both gateways with a larger --max-message";
        let error = |id: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32011,"message":"{words}","data":{{"reason":"messageTooLarge","messageBytes":2000,"maxMessageBytes":1000,"chunking":false}}}}}}"#
            )
        };
        for (id, method, is_answer, expected) in [
            (
                Some("7"),
                Some("\"m\""),
                false,
                format!("answer {}", error("7")),
            ),
            (
                Some("\"a\""),
                None,
                true,
                format!("replace {}", error("\"a\"")),
            ),
            (
                None,
                Some("\"m\""),
                false,
                format!("drop \"m\" is dropped: {words}"),
            ),
            (
                Some("null"),
                None,
                true,
                format!("drop a message without a readable method is dropped: {words}"),
            ),
            (
                Some("1x"),
                Some("\"m\""),
                false,
                format!("drop \"m\" is dropped: {words}"),
            ),
            (
                None,
                None,
                false,
                format!("drop a message without a readable method is dropped: {words}"),
            ),
        ] {
            let oversized = Oversized {
                size: 2000,
                limit: 1000,
                id: id.map(ToOwned::to_owned),
                method: method.map(ToOwned::to_owned),
                is_answer,
            };
            let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
            let found = match of_oversized(&oversized, -32011) {
                Replacement::Answer(bytes) => format!("answer {}", text(&bytes)),
                Replacement::Replace(message) => format!("replace {}", text(&message.bytes)),
                Replacement::Drop(words) => format!("drop {words}"),
                Replacement::Close(..) => "close".to_owned(),
            };
            assert_eq!(found, expected, "{id:?} {method:?}");
        }
    }
}
