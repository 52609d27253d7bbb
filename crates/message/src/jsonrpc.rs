//! The envelope of a JSON-RPC 2.0 message, borrowed and parsed once: params stay a byte range.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::value::RawValue;

crate::raw_members! {
    /// The members of an object that may be a JSON-RPC message. Unknown members are ignored, and of two
    /// members with one name the last wins.
    pub struct Envelope {
        /// `jsonrpc`.
        version: "jsonrpc",
        /// `id`.
        id: "id",
        /// `method`.
        method: "method",
        /// `params`.
        params: "params",
        /// `result`.
        result: "result",
        /// `error`.
        error: "error",
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It has a method and an id.
    Request,
    /// It has a method and no id.
    Notification,
    /// It has an id and a result.
    Result,
    /// It has an id and an error.
    Error,
}

impl<'a> Envelope<'a> {
    /// Reads one object. `None` if the text is no JSON object; nesting costs no stack.
    pub fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// What it is; `None` if it is no JSON-RPC 2.0 message.
    pub fn kind(&self) -> Option<Kind> {
        if self
            .version
            .is_none_or(|version| version.get() != r#""2.0""#)
            || !self.id.is_none_or(is_id)
        {
            return None;
        }
        match (self.method, self.id, self.result, self.error) {
            (Some(method), id, None, None) => {
                let structured = self
                    .params
                    .is_none_or(|params| params.get().starts_with(['{', '[']));
                let named = method.get().starts_with('"') && structured;
                named.then_some(if id.is_some() {
                    Kind::Request
                } else {
                    Kind::Notification
                })
            }
            (None, Some(_), Some(_), None) => Some(Kind::Result),
            (None, Some(_), None, Some(error)) if error.get().starts_with('{') => Some(Kind::Error),
            _ => None,
        }
    }

    /// The method, unescaped.
    pub fn method(&self) -> Option<Cow<'a, str>> {
        string(self.method?)
    }

    /// Params, result or error: whichever it has.
    pub fn body(&self) -> Option<&'a RawValue> {
        self.params.or(self.result).or(self.error)
    }
}

/// Whether a text is a JSON array, as a batch is.
pub fn is_batch(text: &[u8]) -> bool {
    text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}

/// A JSON string, unescaped; `None` if it is no string or has a lone surrogate.
pub fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let text = raw.get();
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(text).ok().map(Cow::Owned)
}

/// A plain integer token: digits with at most a sign, no fraction and no exponent.
pub fn integer(raw: &RawValue) -> Option<i128> {
    let text = raw.get();
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// A plain integer token that is not negative.
pub fn unsigned(raw: &RawValue) -> Option<u64> {
    integer(raw)?.try_into().ok()
}

/// Where `part`, a slice of `whole`, lies in it.
pub fn range_in(whole: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    start..start + part.len()
}

fn is_id(raw: &RawValue) -> bool {
    raw.get().starts_with(['"', '-'])
        || raw.get().starts_with(|c: char| c.is_ascii_digit())
        || raw.get() == "null"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        for (text, kind) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#,
                Some(Kind::Request),
            ),
            (
                r#"{"jsonrpc":"2.0","id":"x","method":"m","params":{}}"#,
                Some(Kind::Request),
            ),
            (
                r#" {"method":"m","params":[],"jsonrpc":"2.0"} "#,
                Some(Kind::Notification),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
                Some(Kind::Result),
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}"#,
                Some(Kind::Error),
            ),
            (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#, None),
            (r#"{"jsonrpc":"2.0","id":1}"#, None),
            (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, None),
            (r#"{"jsonrpc":"2.0","method":5}"#, None),
            (r#"{"jsonrpc":"2.0","method":"m","params":1}"#, None),
            (r#"{"jsonrpc":"1.0","method":"m"}"#, None),
            (r#"{"hello":1}"#, None),
        ] {
            assert_eq!(Envelope::parse(text).unwrap().kind(), kind, "{text}");
        }
        for no_object in ["", "[]", "1", "null", r#"{"a":1"#, r#"{"a":1} x"#] {
            assert!(Envelope::parse(no_object).is_none(), "{no_object}");
        }
    }

    #[test]
    fn the_last_of_two_members_wins_and_ranges_are_kept() {
        let text = r#"{"jsonrpc":"2.0","method":"a","params":{"x":[1, 2]},"method":"b\u0063"}"#;
        let envelope = Envelope::parse(text).unwrap();
        assert_eq!(envelope.method().unwrap(), "bc");
        assert_eq!(
            &text[range_in(text, envelope.params.unwrap().get())],
            r#"{"x":[1, 2]}"#
        );
    }

    #[test]
    fn integers_are_plain_tokens() {
        for (text, value) in [
            ("0", Some(0)),
            ("-5", Some(-5)),
            ("9007199254740993", Some(9007199254740993)),
            ("1.0", None),
            ("1e3", None),
            ("\"7\"", None),
            ("true", None),
            ("1e30", None),
        ] {
            let raw: &RawValue = serde_json::from_str(text).unwrap();
            assert_eq!(integer(raw), value, "{text}");
        }
    }

    #[test]
    fn deep_nesting_costs_no_stack() {
        let deep = format!(
            r#"{{"jsonrpc":"2.0","method":"m","params":{}{}}}"#,
            "[".repeat(1 << 20),
            "]".repeat(1 << 20)
        );
        assert_eq!(
            Envelope::parse(&deep).unwrap().kind(),
            Some(Kind::Notification)
        );
    }
}
