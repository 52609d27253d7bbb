//! The answer to a poll, taken apart.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// No server has more to say at once.
const MESSAGES_MAX: usize = 1 << 16;

/// What an answer says.
#[derive(Debug)]
pub(crate) struct Messages {
    pub(crate) messages: VecDeque<Bytes>,
    pub(crate) is_new: bool,
}

impl Messages {
    pub(crate) fn read(body: &Bytes) -> Result<Self, String> {
        let wrong = |error: serde_json::Error| format!("its answer cannot be read: {error}");
        let text =
            simdutf8::basic::from_utf8(body).map_err(|_| "its answer is no UTF-8".to_owned())?;
        let answer: Raw<'_> = serde_json::from_str(text).map_err(wrong)?;
        let List(found) = answer.messages;
        let mut messages = VecDeque::with_capacity(found.len());
        // One alone keeps the memory that it came in; of several each gets its own.
        let alone = found.len() == 1;
        for message in found {
            let bytes = message.get().as_bytes();
            messages.push_back(if alone {
                body.slice_ref(bytes)
            } else {
                Bytes::copy_from_slice(bytes)
            });
        }
        Ok(Self {
            messages,
            is_new: answer.is_new,
        })
    }
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    messages: List<'a>,
    #[serde(rename = "isNewConnection", default)]
    is_new: bool,
}

/// Of bounded length: a short text can hold very many numbers.
struct List<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for List<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seq;
        impl<'de> Visitor<'de> for Seq {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of messages")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut found = Vec::new();
                while let Some(message) = seq.next_element()? {
                    if found.len() >= MESSAGES_MAX {
                        let error = format!("more than {MESSAGES_MAX} messages at once");
                        return Err(A::Error::custom(error));
                    }
                    found.push(message);
                }
                Ok(found)
            }
        }
        deserializer.deserialize_seq(Seq).map(List)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_bounded() {
        let many = |count: usize| {
            let list = vec!["1"; count].join(",");
            format!(r#"{{"messages":[{list}],"isNewConnection":true}}"#)
        };
        for (text, expected) in [
            (
                r#"{"messages":[],"isNewConnection":true}"#.to_owned(),
                Some((0, true)),
            ),
            (
                r#"{ "isNewConnection" : false, "messages":[{"a":[1]} , "x"], "more":1}"#
                    .to_owned(),
                Some((2, false)),
            ),
            (r#"{"messages":[{}]}"#.to_owned(), Some((1, false))),
            (many(MESSAGES_MAX), Some((MESSAGES_MAX, true))),
            (many(MESSAGES_MAX + 1), None),
            (r#"{"isNewConnection":true}"#.to_owned(), None),
            ("[]".to_owned(), None),
            (String::new(), None),
        ] {
            let read = Messages::read(&Bytes::from(text.clone())).ok();
            let read = read.map(|it| (it.messages.len(), it.is_new));
            assert_eq!(read, expected, "{}", &text[..text.len().min(80)]);
        }
        let body = Bytes::from(r#"{"messages":[ {"a": 1} ,2]}"#);
        let read = Messages::read(&body).unwrap();
        assert_eq!(read.messages, [r#"{"a": 1}"#, "2"]);
    }
}
