//! The envelope of a JSON-RPC 2.0 message, borrowed and parsed once: params stay a byte range. And
//! the two kinds of answers, as text.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::value::RawValue;

use crate::list::Elements;
use crate::scan::{members, unquoted};
use crate::splice::{find, quoted};

crate::raw_members! {
    /// The members of an object that may be a JSON-RPC message. Unknown members are ignored; if a
    /// name occurs twice, the last member counts.
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

/// The kind of a message.
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

/// The byte ranges of the parts of a JSON-RPC message. If a name occurs twice, the last member counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// `jsonrpc`.
    pub version: Option<Range<usize>>,
    /// `id`.
    pub id: Option<Range<usize>>,
    /// `method`, with its quotes if it is a string.
    pub method: Option<Range<usize>>,
    /// `params`.
    pub params: Option<Range<usize>>,
    /// `result`.
    pub result: Option<Range<usize>>,
    /// `error`.
    pub error: Option<Range<usize>>,
}

impl Outline {
    /// Parses a text that must be UTF-8. `None` if it is not a JSON object. Does not recurse, so
    /// deep nesting is harmless.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut outline = Self::default();
        outline.fill(text, |_| {}).then_some(outline)
    }

    /// Like [`parse`](Self::parse), but fills a default outline in its place: for small messages, moving the
    /// outline would take a large part of the time. Calls `other` with the name of each other member.
    pub fn fill(&mut self, text: &[u8], mut other: impl FnMut(&[u8])) -> bool {
        let filled = members(text, |name, at| {
            let member = match &*name {
                b"jsonrpc" => &mut self.version,
                b"id" => &mut self.id,
                b"method" => &mut self.method,
                b"params" => &mut self.params,
                b"result" => &mut self.result,
                b"error" => &mut self.error,
                name => return other(name),
            };
            *member = Some(at);
        });
        filled.is_some()
    }

    /// The kind of the message; `None` if it is not a JSON-RPC 2.0 message.
    pub fn kind(&self, text: &[u8]) -> Option<Kind> {
        let part = |range: &Option<Range<usize>>| text.get(range.clone()?);
        Members {
            version: part(&self.version),
            id: part(&self.id),
            method: part(&self.method),
            params: part(&self.params),
            result: part(&self.result),
            error: part(&self.error),
        }
        .kind()
    }

    /// The method, unescaped.
    pub fn method<'a>(&self, text: &'a [u8]) -> Option<Cow<'a, str>> {
        unquoted(text.get(self.method.clone()?)?)
    }

    /// The params, result or error, whichever it has.
    pub fn body(&self) -> Option<Range<usize>> {
        let body = self.params.as_ref().or(self.result.as_ref());
        body.or(self.error.as_ref()).cloned()
    }
}

/// The members that determine the kind of a message.
struct Members<'a> {
    version: Option<&'a [u8]>,
    id: Option<&'a [u8]>,
    method: Option<&'a [u8]>,
    params: Option<&'a [u8]>,
    result: Option<&'a [u8]>,
    error: Option<&'a [u8]>,
}

impl Members<'_> {
    fn kind(&self) -> Option<Kind> {
        if self.version != Some(br#""2.0""#) || !self.id.is_none_or(is_id) {
            return None;
        }
        match (self.method, self.id, self.result, self.error) {
            (Some(method), id, None, None) => {
                let structured = self
                    .params
                    .is_none_or(|params| matches!(params.first(), Some(b'{' | b'[')));
                let named = method.starts_with(b"\"") && structured;
                named.then_some(if id.is_some() {
                    Kind::Request
                } else {
                    Kind::Notification
                })
            }
            (None, Some(_), Some(_), None) => Some(Kind::Result),
            (None, Some(_), None, Some(error)) if error.starts_with(b"{") => Some(Kind::Error),
            _ => None,
        }
    }
}

impl<'a> Envelope<'a> {
    /// Parses a text. `None` if it is not a JSON object. Does not recurse, so deep nesting is harmless.
    pub fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The kind of the message; `None` if it is not a JSON-RPC 2.0 message.
    pub fn kind(&self) -> Option<Kind> {
        let part = |raw: Option<&'a RawValue>| raw.map(|raw| raw.get().as_bytes());
        Members {
            version: part(self.version),
            id: part(self.id),
            method: part(self.method),
            params: part(self.params),
            result: part(self.result),
            error: part(self.error),
        }
        .kind()
    }

    /// The method, unescaped.
    pub fn method(&self) -> Option<Cow<'a, str>> {
        string(self.method?)
    }

    /// The params, result or error, whichever it has.
    pub fn body(&self) -> Option<&'a RawValue> {
        self.params.or(self.result).or(self.error)
    }
}

/// The code of an error for a text that is no JSON-RPC message.
pub const INVALID_REQUEST: i32 = -32600;

/// The code of an internal error.
pub const INTERNAL_ERROR: i32 = -32603;

/// A response with a result. Id and result are JSON texts and stay as they are written.
pub fn result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// A response with an error. Id and data are JSON texts and stay as they are written; an unknown id
/// is `null`.
pub fn error(id: Option<&str>, code: i32, message: &str, data: Option<&str>) -> String {
    let id = id.unwrap_or("null");
    let message = quoted(message);
    let data = data.map_or(String::new(), |data| format!(r#","data":{data}"#));
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#)
}

/// Whether a text is a JSON array, as a batch is.
pub fn is_batch(text: &[u8]) -> bool {
    text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}

/// The objects in a batch; `None` if the text is not a JSON array.
pub fn batch(text: &str) -> Option<impl Iterator<Item = Envelope<'_>>> {
    let array: &RawValue = serde_json::from_str(text).ok()?;
    let elements = Elements::of(array)?;
    Some(elements.filter_map(|element| Envelope::parse(element.get())))
}

/// The elements of an array, one by one: a long list takes no memory. `None` if it is no array.
pub fn elements(array: &RawValue) -> Option<impl Iterator<Item = &RawValue>> {
    Elements::of(array)
}

/// A member of a JSON object (the last one if the name occurs twice); `None` if it has none, or if the text
/// is not an object.
pub fn member<'a>(object: &'a str, name: &str) -> Option<&'a RawValue> {
    find(object, name)?
}

/// A JSON string, unescaped; `None` if it is not a string or has a lone surrogate.
pub fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let text = raw.get();
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(text).ok().map(Cow::Owned)
}

/// A plain integer: digits with an optional sign, no fraction and no exponent.
pub fn integer(raw: &RawValue) -> Option<i128> {
    let text = raw.get();
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// A plain integer that is not negative.
pub fn unsigned(raw: &RawValue) -> Option<u64> {
    integer(raw)?.try_into().ok()
}

/// An id as most programs write it: strings without needless escapes, whole numbers without a fraction. So
/// ids that are written in different ways can be compared.
pub fn shortest_id(id: &str) -> Cow<'_, str> {
    let written = match id.as_bytes().first() {
        Some(b'"') if id.contains('\\') => {
            let raw: Option<&RawValue> = serde_json::from_str(id).ok();
            let text = raw.and_then(string);
            text.map(|text| serde_json::Value::from(text).to_string())
        }
        Some(b'-' | b'0'..=b'9') if id.contains(['.', 'e', 'E']) => id
            .parse::<f64>()
            .ok()
            .filter(|number| number.fract() == 0.0 && number.abs() < 9e15)
            .map(|number| (number as i64).to_string()),
        _ => None,
    };
    written.map_or(Cow::Borrowed(id), Cow::Owned)
}

/// The range of `part` within `whole`, of which it must be a slice.
pub fn range_in(whole: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    start..start + part.len()
}

fn is_id(raw: &[u8]) -> bool {
    matches!(raw.first(), Some(b'"' | b'-' | b'0'..=b'9')) || raw == b"null"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_found_by_name() {
        let text = r#" {"a":1 ,"b\u0063": {"a":[2,"}"]},"d":null,"a":"x,y", "e":-1.5e3}"#;
        for (object, name, value) in [
            (text, "a", Some(r#""x,y""#)),
            (text, "bc", Some(r#"{"a":[2,"}"]}"#)),
            (text, "d", Some("null")),
            (text, "e", Some("-1.5e3")),
            (text, "b", None),
            (text, "", None),
            (r#"{"\u0061":true}"#, "a", Some("true")),
            (r#"{"a":1"#, "a", None),
            (r#"{"a" 1}"#, "a", None),
            ("[1]", "a", None),
            ("{ }", "a", None),
            (r#""{}""#, "a", None),
            ("", "a", None),
        ] {
            let found = member(object, name).map(RawValue::get);
            assert_eq!(found, value, "{object} {name}");
        }
    }

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
            let outline = Outline::parse(text.as_bytes()).unwrap();
            assert_eq!(outline.kind(text.as_bytes()), kind, "{text}");
        }
        for no_object in ["", "[]", "1", "null", r#"{"a":1"#, r#"{"a":1} x"#] {
            assert!(Envelope::parse(no_object).is_none(), "{no_object}");
            assert!(
                Outline::parse(no_object.as_bytes()).is_none(),
                "{no_object}"
            );
        }
    }

    #[test]
    fn a_batch_is_read_one_by_one() {
        for (text, ids) in [
            (
                r#" [{"id":1} , 7,{"id":"a]"}, [{"id":3}]] "#,
                Some(vec!["1", "\"a]\""]),
            ),
            ("[]", Some(vec![])),
            ("{}", None),
            ("[{", None),
            ("", None),
        ] {
            let ids_of = |envelope: Envelope<'static>| envelope.id.map(RawValue::get);
            let found = batch(text).map(|batch| batch.filter_map(ids_of).collect::<Vec<_>>());
            assert_eq!(found, ids, "{text}");
        }
    }

    #[test]
    fn answers_are_written_and_read() {
        for (text, expected, kind) in [
            (
                result(r#""\u0061""#, "[1, 2]"),
                r#"{"jsonrpc":"2.0","id":"\u0061","result":[1, 2]}"#,
                Kind::Result,
            ),
            (
                error(None, INVALID_REQUEST, "say \"less\"", None),
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"say \"less\""}}"#,
                Kind::Error,
            ),
            (
                error(Some("7"), INTERNAL_ERROR, "no", Some(r#"{"a":1}"#)),
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"no","data":{"a":1}}}"#,
                Kind::Error,
            ),
        ] {
            assert_eq!(text, expected);
            assert_eq!(Envelope::parse(&text).unwrap().kind(), Some(kind), "{text}");
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
        let outline = Outline::parse(text.as_bytes()).unwrap();
        assert_eq!(outline.method(text.as_bytes()).unwrap(), "bc");
        assert_eq!(&text[outline.body().unwrap()], r#"{"x":[1, 2]}"#);
    }

    // WIRE-2
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
        let outline = Outline::parse(deep.as_bytes()).unwrap();
        assert_eq!(outline.kind(deep.as_bytes()), Some(Kind::Notification));
    }
}
