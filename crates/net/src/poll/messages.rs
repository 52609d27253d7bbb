//! Parses the answer to a poll.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::http::Dialect;

/// The limit on messages in one answer.
const MESSAGES_MAX: usize = 1 << 16;

/// The messages in an answer, and whether the connection is new.
#[derive(Debug)]
pub(crate) struct Messages {
    pub(crate) messages: VecDeque<Bytes>,
    pub(crate) is_new: bool,
}

impl Messages {
    pub(crate) fn read(body: &Bytes, dialect: &Dialect) -> Result<Self, String> {
        let wrong = |error: serde_json::Error| format!("its answer cannot be read: {error}");
        let text =
            simdutf8::basic::from_utf8(body).map_err(|_| "its answer is no UTF-8".to_owned())?;
        let mut json = serde_json::Deserializer::from_str(text);
        let (found, is_new) = Members(dialect).deserialize(&mut json).map_err(wrong)?;
        json.end().map_err(wrong)?;
        let mut messages = VecDeque::with_capacity(found.len());
        // A single message shares the body's memory; several get memory of their own, so that one
        // that is kept does not keep the whole body alive.
        let alone = found.len() == 1;
        for message in found {
            let bytes = message.get().as_bytes();
            messages.push_back(if alone {
                body.slice_ref(bytes)
            } else {
                Bytes::copy_from_slice(bytes)
            });
        }
        Ok(Self { messages, is_new })
    }
}

/// Reads the two members that matter, under the dialect's names; others are ignored.
struct Members<'d>(&'d Dialect);

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = (Vec<&'de RawValue>, bool);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = (Vec<&'de RawValue>, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with messages")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut messages, mut is_new) = (None, false);
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            if name == self.0.messages_member {
                let List(found) = map.next_value()?;
                messages = Some(found);
            } else if name == self.0.new_member {
                is_new = map.next_value()?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        let missing = || A::Error::missing_field(self.0.messages_member);
        Ok((messages.ok_or_else(missing)?, is_new))
    }
}

/// A list of limited length: even a short body can hold very many values.
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
            format!(r#"{{"messages":[{list}],"isNew":true}}"#)
        };
        for (text, expected) in [
            (
                r#"{"messages":[],"isNew":true}"#.to_owned(),
                Some((0, true)),
            ),
            (
                r#"{ "isNew" : false, "messages":[{"a":[1]} , "x"], "more":1}"#.to_owned(),
                Some((2, false)),
            ),
            (r#"{"messages":[{}]}"#.to_owned(), Some((1, false))),
            (many(MESSAGES_MAX), Some((MESSAGES_MAX, true))),
            (many(MESSAGES_MAX + 1), None),
            (r#"{"isNew":true}"#.to_owned(), None),
            ("[]".to_owned(), None),
            (String::new(), None),
        ] {
            let read = Messages::read(&Bytes::from(text.clone()), &Dialect::default()).ok();
            let read = read.map(|it| (it.messages.len(), it.is_new));
            assert_eq!(read, expected, "{}", &text[..text.len().min(80)]);
        }
        let body = Bytes::from(r#"{"messages":[ {"a": 1} ,2]}"#);
        let read = Messages::read(&body, &Dialect::default()).unwrap();
        assert_eq!(read.messages, [r#"{"a": 1}"#, "2"]);
    }
}
