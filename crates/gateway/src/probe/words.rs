//! What a probe and the end that answers it say to each other over a WebSocket.
//!
//! Small texts are JSON objects; a message whose fate is asked for is a JSON object of exactly the size
//! asked for, or bytes behind a mark. Each says how long it was when it was sent, so that a message that
//! was cut off on the way is noticed.

use std::time::Duration;

use breakbulk_link::Frame;
use serde_json::{Value, json};

use super::course::Content;

/// The WebSocket subprotocol of a probe.
pub(crate) const PROBE: &str = "breakbulk.probe.v1";

/// How the text of a measured message begins; its size follows.
const TEXT: &str = r#"{"probe":"bytes","bytes":"#;

/// How a measured binary message begins; its size follows as a u64.
const BINARY: &[u8; 16] = b"breakbulk-probe\0";

/// The longest message, except for those that are measured.
pub(super) const SMALL: usize = 1024;

/// The longest pause that the other end may ask for, in milliseconds.
const LONGEST_PAUSE: u64 = 60_000;

/// The pause that the other end asks for.
pub(super) fn pause(wait: u64) -> Duration {
    Duration::from_millis(wait.min(LONGEST_PAUSE))
}

/// A message of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The first word of the end that answers: the largest message that it takes part in, and how long
    /// it reads nothing from now on, in milliseconds.
    Hello { most: usize, wait: u64 },
    /// A measured message: what becomes of it is the question.
    Bytes(Measured),
    /// How much of a measured message arrived.
    Got {
        arrived: usize,
        whole: bool,
        wait: u64,
    },
    /// Asks for a measured message of this size.
    Send {
        size: usize,
        content: Content,
        fragment: Option<usize>,
    },
    /// Follows the message that was asked for.
    Sent { wait: u64 },
    /// Asks for a [`Marked`](Self::Marked) with this number, which the probe chose.
    Mark(u64),
    /// The answer to a [`Mark`](Self::Mark).
    Marked(u64),
}

/// A measured message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measured {
    /// The size that it says it has.
    pub(super) declared: usize,
    /// The size that it has.
    pub(super) arrived: usize,
    /// Whether it is as it was sent.
    pub(super) whole: bool,
    /// What it consists of.
    pub(super) content: Content,
}

/// The parts of a measured text.
pub(super) struct Parts {
    pub(super) beginning: String,
    /// So many `x`.
    pub(super) pad: usize,
    pub(super) end: &'static str,
}

/// A text of exactly this size, in parts.
pub(super) fn measured_parts(size: usize) -> Parts {
    let beginning = format!("{TEXT}{size},\"pad\":\"");
    let end = "\"}";
    Parts {
        pad: size.saturating_sub(beginning.len() + end.len()),
        beginning,
        end,
    }
}

/// A message of exactly this size.
pub(super) fn measured(content: Content, size: usize) -> Frame {
    match content {
        Content::Text => {
            let parts = measured_parts(size);
            let mut text = Vec::with_capacity(size);
            text.extend_from_slice(parts.beginning.as_bytes());
            text.resize(text.len() + parts.pad, b'x');
            text.extend_from_slice(parts.end.as_bytes());
            Frame::Text(text.into())
        }
        Content::Binary => {
            let mut bytes = BINARY.to_vec();
            bytes.extend_from_slice(&(size as u64).to_be_bytes());
            bytes.resize(size.max(bytes.len()), 0xB5);
            Frame::Binary(bytes.into())
        }
    }
}

/// A small message.
pub(super) fn write(word: &Word) -> Frame {
    let value = match *word {
        Word::Hello { most, wait } => json!({"probe": "hello", "most": most, "wait": wait}),
        Word::Got {
            arrived,
            whole,
            wait,
        } => json!({"probe": "got", "bytes": arrived, "whole": whole, "wait": wait}),
        Word::Send {
            size,
            content,
            fragment,
        } => json!({
            "probe": "send",
            "bytes": size,
            "binary": content == Content::Binary,
            "fragment": fragment,
        }),
        Word::Sent { wait } => json!({"probe": "sent", "wait": wait}),
        Word::Mark(number) => json!({"probe": "mark", "number": number}),
        Word::Marked(number) => json!({"probe": "marked", "number": number}),
        Word::Bytes(Measured {
            content, declared, ..
        }) => return measured(content, declared),
    };
    Frame::Text(value.to_string().into())
}

/// Reads a message; `None` if it is not one of a probe.
pub(super) fn read(frame: &Frame) -> Option<Word> {
    match frame {
        Frame::Binary(bytes) => {
            let rest = bytes.strip_prefix(BINARY)?;
            let (size, pad) = rest.split_first_chunk()?;
            let declared = usize::try_from(u64::from_be_bytes(*size)).ok()?;
            Some(Word::Bytes(Measured {
                declared,
                arrived: bytes.len(),
                whole: bytes.len() == declared && pad.iter().all(|byte| *byte == 0xB5),
                content: Content::Binary,
            }))
        }
        Frame::Text(text) => read_text(text, text.len(), text),
    }
}

/// Reads a text of which only the beginning and the end were kept.
pub(super) fn read_text(beginning: &[u8], length: usize, end: &[u8]) -> Option<Word> {
    let Some(rest) = beginning.strip_prefix(TEXT.as_bytes()) else {
        return small(beginning, length);
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let declared = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    Some(Word::Bytes(Measured {
        declared,
        arrived: length,
        whole: length == declared && end.ends_with(b"\"}"),
        content: Content::Text,
    }))
}

fn small(text: &[u8], length: usize) -> Option<Word> {
    if length > SMALL {
        return None;
    }
    let value: Value = serde_json::from_slice(text).ok()?;
    let number = |name: &str| value.get(name).and_then(Value::as_u64);
    let size = |name: &str| number(name).and_then(|size| usize::try_from(size).ok());
    let wait = || number("wait").unwrap_or(0);
    Some(match value.get("probe")?.as_str()? {
        "hello" => Word::Hello {
            most: size("most")?,
            wait: wait(),
        },
        "got" => Word::Got {
            arrived: size("bytes")?,
            whole: value.get("whole")?.as_bool()?,
            wait: wait(),
        },
        "send" => Word::Send {
            size: size("bytes")?,
            content: match value.get("binary")?.as_bool()? {
                true => Content::Binary,
                false => Content::Text,
            },
            fragment: size("fragment"),
        },
        "sent" => Word::Sent { wait: wait() },
        "mark" => Word::Mark(number("number")?),
        "marked" => Word::Marked(number("number")?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_message_has_its_size_and_tells_when_it_was_cut_off() {
        for content in [Content::Text, Content::Binary] {
            for size in [256, 257, 1000, 99_999, 1_000_000] {
                let frame = measured(content, size);
                let (Frame::Text(bytes) | Frame::Binary(bytes)) = &frame;
                assert_eq!(bytes.len(), size);
                let expected = |arrived, whole| {
                    Some(Word::Bytes(Measured {
                        declared: size,
                        arrived,
                        whole,
                        content,
                    }))
                };
                assert_eq!(read(&frame), expected(size, true), "{content:?}");
                for cut in [size - 1, size / 2, 60] {
                    let bytes = bytes.slice(..cut);
                    let short = match content {
                        Content::Text => Frame::Text(bytes),
                        Content::Binary => Frame::Binary(bytes),
                    };
                    assert_eq!(read(&short), expected(cut, false), "{content:?} {cut}");
                }
            }
        }
        let frame = measured(Content::Text, 256);
        let Frame::Text(text) = &frame else { panic!() };
        serde_json::from_slice::<Value>(text).unwrap();
    }

    #[test]
    fn words_are_read_as_they_were_written_and_nothing_else_is() {
        for (word, text) in [
            (
                Word::Hello {
                    most: 5000,
                    wait: 0,
                },
                r#"{"most":5000,"probe":"hello","wait":0}"#,
            ),
            (
                Word::Got {
                    arrived: 7,
                    whole: false,
                    wait: 30,
                },
                r#"{"bytes":7,"probe":"got","wait":30,"whole":false}"#,
            ),
            (
                Word::Send {
                    size: 1000,
                    content: Content::Binary,
                    fragment: Some(10),
                },
                r#"{"binary":true,"bytes":1000,"fragment":10,"probe":"send"}"#,
            ),
            (Word::Sent { wait: 1 }, r#"{"probe":"sent","wait":1}"#),
            (Word::Mark(3), r#"{"number":3,"probe":"mark"}"#),
            (Word::Marked(3), r#"{"number":3,"probe":"marked"}"#),
        ] {
            assert_eq!(write(&word), Frame::Text(text.into()));
            assert_eq!(read(&write(&word)), Some(word));
        }
        for text in [
            "",
            "{}",
            "[]",
            r#"{"probe":7}"#,
            r#"{"probe":"send"}"#,
            r#"{"probe":"send","bytes":-1,"binary":true}"#,
            r#"{"probe":"bytes","bytes":"#,
            r#"{"probe":"bytes","bytes":99999999999999999999999"#,
            r#"{"probe":"other"}"#,
        ] {
            assert_eq!(read(&Frame::Text(text.into())), None, "{text}");
        }
        assert_eq!(read(&Frame::Text("x".repeat(2000).into())), None);
        assert_eq!(read(&Frame::Binary(BINARY[..].into())), None);
        assert_eq!(read(&Frame::Binary("other".into())), None);
    }
}
