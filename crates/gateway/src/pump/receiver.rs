//! Messages that are over the limit of the program that they would be handed to (`client=NAME`): the
//! program would end, or drop them without a word.

use breakbulk_link::SendError;
use breakbulk_message::jsonrpc::{self, Envelope, Kind};
use bytes::Bytes;

use super::unsent::of_oversized_because;
use super::{Incoming, Oversized, Pass, Passing, Plain, Replacement, Side};

/// The largest message that a program takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiverLimit {
    /// The name of its row, as in `client=NAME`.
    pub(crate) name: &'static str,
    /// The largest message, in bytes.
    pub(crate) bytes: usize,
}

/// Passes messages on unchanged. A message that the program at a side does not take becomes an error that
/// names that program's limit; a notification is dropped, with a warning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ForReceivers {
    /// The limit of the program that connects to the gateway.
    pub(crate) listen: Option<ReceiverLimit>,
    /// The limit of the target.
    pub(crate) to: Option<ReceiverLimit>,
    /// Edits all other messages.
    pub(crate) inner: Plain,
}

impl ForReceivers {
    /// The limit of the program at a side, if it is what the message was over.
    fn exceeded(&self, side: Side, error: &SendError) -> Option<ReceiverLimit> {
        let receiver = match side {
            Side::Listen => self.listen,
            Side::To => self.to,
        };
        match (receiver, error) {
            (Some(receiver), SendError::FrameTooLarge { limit, .. })
                if *limit == receiver.bytes =>
            {
                Some(receiver)
            }
            _ => None,
        }
    }
}

impl Passing for ForReceivers {
    fn pass(&mut self, from: Side, message: Incoming<'_>) -> Pass {
        self.inner.pass(from, message)
    }

    fn asks_again(&self, method: &str) -> bool {
        self.inner.asks_again(method)
    }

    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Replacement {
        match self.exceeded(to, error) {
            Some(receiver) if !jsonrpc::is_batch(bytes) => {
                over(bytes, receiver, self.inner.too_large_code)
            }
            _ => self.inner.not_sent(to, bytes, error),
        }
    }

    fn oversized(&mut self, from: Side, oversized: &Oversized) -> Replacement {
        self.inner.oversized(from, oversized)
    }
}

/// What becomes of a message that is over a program's limit.
fn over(bytes: &Bytes, receiver: ReceiverLimit, too_large_code: i32) -> Replacement {
    let envelope = std::str::from_utf8(bytes).ok().and_then(Envelope::parse);
    let kind = envelope.as_ref().and_then(Envelope::kind);
    let text = |id: &serde_json::value::RawValue| id.get().to_owned();
    let oversized = Oversized {
        size: bytes.len() as u64,
        limit: receiver.bytes,
        id: envelope.as_ref().and_then(|it| it.id).map(text),
        method: envelope
            .as_ref()
            .and_then(Envelope::method)
            .map(|method| format!("{method:?}")),
        is_answer: matches!(kind, Some(Kind::Result | Kind::Error)),
    };
    let ReceiverLimit { name, bytes: limit } = receiver;
    let words = format!(
        "message too large: {} bytes, and the program at its receiver takes {limit} (client={name} of the gateway there); send less, or raise that program's own limit and start its gateway without client={name}",
        oversized.size
    );
    of_oversized_because(&oversized, too_large_code, &words)
}

#[cfg(test)]
mod tests {
    use super::*;

    // PATH-1
    #[test]
    fn what_a_program_does_not_take_becomes_an_error_that_names_its_limit() {
        let receiver = ReceiverLimit {
            name: "mcp-typescript",
            bytes: 20,
        };
        let words = |size| {
            format!(
                "message too large: {size} bytes, and the program at its receiver takes 20 (client=mcp-typescript of the gateway there); send less, or raise that program's own limit and start its gateway without client=mcp-typescript"
            )
        };
        let error = |id: &str, size| {
            let words = words(size);
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32011,"message":"{words}","data":{{"reason":"messageTooLarge","messageBytes":{size},"maxMessageBytes":20,"chunking":false}}}}}}"#
            )
        };
        for (message, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"m"}"#,
                format!("answer {}", error("7", 37)),
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a","result":{}}"#,
                format!("replace {}", error("\"a\"", 38)),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"n"}"#,
                format!("drop \"n\" is dropped: {}", words(30)),
            ),
            (
                "this is not a message of JSON-RPC",
                format!(
                    "drop a message without a readable method is dropped: {}",
                    words(33)
                ),
            ),
        ] {
            let mut passing = ForReceivers {
                listen: Some(receiver),
                ..ForReceivers::default()
            };
            let error = SendError::FrameTooLarge {
                size: message.len(),
                limit: 20,
                uncut: breakbulk_link::Uncut::NoPieces,
            };
            let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
            let found = match passing.not_sent(Side::Listen, &message.into(), &error) {
                Replacement::Answer(bytes) => format!("answer {}", text(&bytes)),
                Replacement::Replace(message) => format!("replace {}", text(&message.bytes)),
                Replacement::Drop(words) => format!("drop {words}"),
                Replacement::Close(code, words) => format!("close {code} {words}"),
            };
            assert_eq!(found, expected, "{message}");
            // The limit of the gateway itself, and errors for the other side, are told as without such a
            // program.
            let other = passing.not_sent(Side::To, &message.into(), &error);
            let other = format!("{other:?}");
            assert!(!other.contains("mcp-typescript"), "{other}");
        }
    }
}
