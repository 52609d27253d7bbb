//! [`Text`]: a part of a received message, which keeps the message's memory charged.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use breakbulk_link::{Charge, Shape};
use breakbulk_message::jsonrpc::{range_in, string};
use bytes::Bytes;
use serde_json::value::RawValue;

/// A part of a received message. Clones share it.
///
/// The whole message stays in memory, and counts against the connection's budget, until the last of
/// its parts is dropped: copy a small part that is kept for long.
#[derive(Clone)]
pub struct Text {
    held: Arc<Held>,
    range: Range<usize>,
}

struct Held {
    text: String,
    _charge: Charge,
}

impl Text {
    /// A whole message; `None` if it is not UTF-8.
    pub(super) fn new(bytes: Bytes, charge: Charge) -> Option<Self> {
        let text = String::from_utf8(Vec::from(bytes)).ok()?;
        Some(Self {
            range: 0..text.len(),
            held: Arc::new(Held {
                text,
                _charge: charge,
            }),
        })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.held.text.get(self.range.clone()).unwrap_or_default()
    }

    /// Makes a `Text` of `part`, a slice of [`as_str`](Self::as_str).
    pub(super) fn part(&self, part: &str) -> Self {
        let range = range_in(&self.held.text, part);
        Self {
            held: self.held.clone(),
            range,
        }
    }

    /// The part in this range of the whole message.
    pub(super) fn at(&self, range: Option<Range<usize>>) -> Option<Self> {
        let text = self.held.text.get(range?)?;
        Some(self.part(text))
    }

    /// The method of a whole message, unescaped.
    pub(super) fn method(&self, shape: &Shape) -> Option<String> {
        let range = shape.method.clone()?;
        let quoted = self
            .held
            .text
            .get(range.start.checked_sub(1)?..range.end + 1)?;
        Some(string(serde_json::from_str(quoted).ok()?)?.into_owned())
    }

    /// Drops this many bytes at the front.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.range.start = (self.range.start + bytes).min(self.range.end);
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// Shortens long texts: a state may have megabytes.
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 120;
        let text = self.as_str();
        let end = text.floor_char_boundary(SHOWN);
        write!(f, "{:?}", &text[..end])?;
        if end < text.len() {
            write!(f, "… {} bytes", text.len())?;
        }
        Ok(())
    }
}

/// A member of an object that was checked to be JSON; of two with the same name the last.
pub(super) fn member<'a>(object: &'a str, name: &str) -> Option<&'a RawValue> {
    let mut rest = object.trim_start().strip_prefix('{')?.trim_start();
    let mut found = None;
    while rest.starts_with('"') {
        let key = first(rest)?;
        rest = rest[key.len()..]
            .trim_start()
            .strip_prefix(':')?
            .trim_start();
        let value = first(rest)?;
        if serde_json::from_str::<std::borrow::Cow<'_, str>>(key).is_ok_and(|key| key == name) {
            found = Some(value);
        }
        rest = rest[value.len()..].trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    serde_json::from_str(found?).ok()
}

/// The JSON value at the beginning of a text.
pub(super) fn first(text: &str) -> Option<&str> {
    if text.starts_with(['{', '[', '"']) {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
        return values.next()?.ok().map(RawValue::get);
    }
    // A number, `true`, `false` or `null` ends at a separator.
    let end = text.find(|c: char| c == ',' || c == '}' || c == ']' || c.is_ascii_whitespace());
    Some(&text[..end.unwrap_or(text.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_name() {
        let text = r#" {"a":1 ,"b\u0063": {"a":[2,"}"]},"d":null,"a":"x,y", "e":-1.5e3}"#;
        for (name, value) in [
            ("a", Some(r#""x,y""#)),
            ("bc", Some(r#"{"a":[2,"}"]}"#)),
            ("d", Some("null")),
            ("e", Some("-1.5e3")),
            ("b", None),
            ("", None),
        ] {
            assert_eq!(member(text, name).map(RawValue::get), value, "{name}");
        }
        for no_object in ["[]", "1", "null", "{}", "{ }", r#""{}""#] {
            assert!(member(no_object, "a").is_none(), "{no_object}");
        }
    }
}
