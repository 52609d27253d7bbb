//! The progress token of a request, which its progress notifications refer to.

use std::borrow::Cow;
use std::fmt;

use serde_json::value::RawValue;

use crate::jsonrpc::{Envelope, Kind, integer, member, string};
use crate::splice::{find, quoted, set};

/// A progress token, with its JSON type. Frames carry it as text ([`to_string`](ToString)); the
/// application gets [`to_json`](Self::to_json), which has the original type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProgressToken<'a> {
    /// A string.
    Text(Cow<'a, str>),
    /// An integer.
    Integer(i64),
}

impl<'a> ProgressToken<'a> {
    /// Reads a token; `None` if it is neither a string nor a 64-bit integer.
    pub fn read(raw: &'a RawValue) -> Option<Self> {
        match string(raw) {
            Some(text) => Some(Self::Text(text)),
            None => integer(raw)?.try_into().ok().map(Self::Integer),
        }
    }

    /// The token as JSON, with its type.
    pub fn to_json(&self) -> String {
        match self {
            Self::Text(text) => quoted(text),
            Self::Integer(number) => number.to_string(),
        }
    }

    /// The token, independent of the message that it was read from.
    pub fn into_owned(self) -> ProgressToken<'static> {
        match self {
            Self::Text(text) => ProgressToken::Text(Cow::Owned(text.into_owned())),
            Self::Integer(number) => ProgressToken::Integer(number),
        }
    }
}

impl fmt::Display for ProgressToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Integer(number) => number.fmt(f),
        }
    }
}

/// The token of a request: `params._meta.progressToken`.
pub fn progress_token<'a>(envelope: &Envelope<'a>) -> Option<ProgressToken<'a>> {
    if envelope.kind()? != Kind::Request {
        return None;
    }
    let meta = member(envelope.params?.get(), "_meta")?;
    ProgressToken::read(member(meta.get(), "progressToken")?)
}

/// Adds a token to a request that has none; all other bytes stay. `None` if it is not a request, has a
/// token, or cannot hold one (its params are a list, or its `_meta` is not an object).
pub fn with_progress_token(text: &str, token: &ProgressToken<'_>) -> Option<String> {
    let envelope = Envelope::parse(text)?;
    if envelope.kind()? != Kind::Request {
        return None;
    }
    let json = token.to_json();
    let Some(params) = envelope.params else {
        return set(text, text, &["params", "_meta", "progressToken"], &json);
    };
    let meta = find(params.get(), "_meta")?;
    let old = meta.and_then(|meta| member(meta.get(), "progressToken"));
    if old.is_some_and(|old| old.get() != "null") {
        return None;
    }
    set(text, params.get(), &["_meta", "progressToken"], &json)
}

/// Replaces the token of a request, and returns the previous one; all other bytes stay. `None` if
/// it is not a request or has no token.
pub fn replace_progress_token<'a>(
    text: &'a str,
    token: &ProgressToken<'_>,
) -> Option<(String, ProgressToken<'a>)> {
    let envelope = Envelope::parse(text)?;
    let old = progress_token(&envelope)?;
    let params = envelope.params?.get();
    Some((
        set(text, params, &["_meta", "progressToken"], &token.to_json())?,
        old,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    fn text(token: &str) -> ProgressToken<'_> {
        ProgressToken::Text(token.into())
    }

    #[test]
    fn tokens_keep_their_type() {
        for (json, token, shown) in [
            ("1", ProgressToken::Integer(1), "1"),
            (r#""1""#, text("1"), "1"),
            (
                "-9223372036854775808",
                ProgressToken::Integer(i64::MIN),
                "-9223372036854775808",
            ),
            (r#""a\"\n""#, text("a\"\n"), "a\"\n"),
            (r#""""#, text(""), ""),
        ] {
            let read = ProgressToken::read(raw(json)).unwrap();
            assert_eq!(read, token, "{json}");
            assert_eq!(
                (read.to_string(), read.to_json()),
                (shown.to_owned(), json.to_owned())
            );
            assert_eq!(read.into_owned().to_json(), json);
        }
        for no_token in [
            "1.0",
            "1e2",
            "9223372036854775808",
            "null",
            "true",
            "[]",
            "{}",
            r#""\ud800""#,
        ] {
            assert_eq!(ProgressToken::read(raw(no_token)), None, "{no_token}");
        }
    }

    #[test]
    fn the_token_of_a_request() {
        for (message, token) in [
            (
                r#"{"method":"tools/call","params":{"name":"blob","arguments":{"n":3000},"_meta":{"progressToken":1}},"jsonrpc":"2.0","id":1}"#,
                Some(ProgressToken::Integer(1)),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":1,"progressToken":"x"}}}"#,
                Some(text("x")),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":1.5}}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":null}}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":[]}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"progressToken":1}}"#,
                None,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, None),
            (
                r#"{"jsonrpc":"2.0","method":"m","params":{"_meta":{"progressToken":1}}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{"progressToken":1}}}"#,
                None,
            ),
        ] {
            assert_eq!(
                progress_token(&Envelope::parse(message).unwrap()),
                token,
                "{message}"
            );
        }
    }

    #[test]
    fn a_token_for_a_request_without() {
        for (message, expected) in [
            (
                r#"{"method":"tools/call","params":{"name":"blob","arguments":{ "n":1}},"jsonrpc":"2.0","id":1}"#,
                Some(
                    r#"{"method":"tools/call","params":{"name":"blob","arguments":{ "n":1},"_meta":{"progressToken":"t"}},"jsonrpc":"2.0","id":1}"#,
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":"t"}}}"#,
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{ }}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":"t"} }}"#,
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"x":1}}}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"x":1,"progressToken":"t"}}}"#,
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":null}}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":"t"}}}"#,
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":null}}}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":"t"}}}"#,
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":0}}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":{}}}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":"x"}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}"#,
                None,
            ),
            (r#"{"jsonrpc":"2.0","method":"m","params":{}}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None),
            ("", None),
        ] {
            assert_eq!(
                with_progress_token(message, &text("t")).as_deref(),
                expected,
                "{message}"
            );
        }
    }

    #[test]
    fn another_token_and_the_old_one_back() {
        let message = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken": 1 },"a":1}}"#;
        let (edited, old) = replace_progress_token(message, &text("t")).unwrap();
        assert_eq!(
            edited,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken": "t" },"a":1}}"#
        );
        assert_eq!(
            replace_progress_token(&edited, &old),
            Some((message.to_owned(), text("t")))
        );
        assert_eq!(
            replace_progress_token(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, &old),
            None
        );
    }
}
