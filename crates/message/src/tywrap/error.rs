//! Errors of decoding messages, and the checks that find them.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{IgnoredAny, Visitor};
use serde_json::value::RawValue;

use super::{PROTOCOL, Style, UNKNOWN_ID};
use crate::jsonrpc::{integer, string};

/// A message that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct DecodeError {
    /// The message's id, or [`UNKNOWN_ID`] if it cannot be read either.
    pub id: i64,
    /// What is wrong.
    pub kind: DecodeErrorKind,
}

/// What is wrong with a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeErrorKind {
    /// It is not JSON.
    #[error("the message is no JSON")]
    NotJson,
    /// It is not a JSON object.
    #[error("the message is no JSON object")]
    NotObject,
    /// It has another protocol.
    #[error("protocol {found} is not {PROTOCOL}")]
    Protocol {
        /// The beginning of the value, as JSON.
        found: String,
    },
    /// A method that the protocol does not have.
    #[error("method {found} is neither \"call\" nor \"meta\"")]
    UnknownMethod {
        /// The beginning of the value, as JSON.
        found: String,
    },
    /// A member is missing.
    #[error("`{member}` is missing")]
    Missing {
        /// Its name.
        member: &'static str,
    },
    /// A member is of another type or value.
    #[error("`{member}` must be {expected}")]
    Wrong {
        /// Its name.
        member: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// A response with both a result and an error.
    #[error("the response has both `result` and `error`")]
    Both,
    /// A response with neither a result nor an error.
    #[error("the response has neither `result` nor `error`")]
    Neither,
}

impl DecodeError {
    /// A bridge's error response to such a request, with the class names of the real bridge.
    pub fn reply(&self, style: Style) -> String {
        let kind = match self.kind {
            DecodeErrorKind::NotJson => "JSONDecodeError",
            _ => "ProtocolError",
        };
        let body = super::ErrorBody {
            kind: kind.into(),
            message: self.to_string().into(),
            traceback: None,
        };
        super::error(self.id, &body, style)
    }
}

crate::raw_members! {
    /// The members of a message.
    pub(super) struct Members {
        id: "id",
        protocol: "protocol",
        method: "method",
        params: "params",
        result: "result",
        error: "error",
    }
}

impl<'a> Members<'a> {
    /// Reads a request and its id; the protocol is checked first, as in the real bridge.
    pub(super) fn read(text: &'a str) -> Result<(i64, Self), DecodeError> {
        Self::read_with(text, |protocol| {
            protocol.ok_or(missing("protocol")).map(Some)
        })
    }

    /// Reads a response and its id. The real host accepts one without a protocol.
    pub(super) fn read_response(text: &'a str) -> Result<(i64, Self), DecodeError> {
        Self::read_with(text, Ok)
    }

    fn read_with(
        text: &'a str,
        protocol: impl FnOnce(Option<&'a RawValue>) -> Result<Option<&'a RawValue>, DecodeErrorKind>,
    ) -> Result<(i64, Self), DecodeError> {
        let Ok(members) = serde_json::from_str::<Self>(text) else {
            // Parsed again, since the first parse also fails for JSON that is not an object.
            let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
            let kind = if is_json {
                DecodeErrorKind::NotObject
            } else {
                DecodeErrorKind::NotJson
            };
            return Err(DecodeError {
                id: UNKNOWN_ID,
                kind,
            });
        };
        let id = members
            .id
            .and_then(integer)
            .and_then(|id| id.try_into().ok());
        let fail = |kind| DecodeError {
            id: id.unwrap_or(UNKNOWN_ID),
            kind,
        };
        let protocol = protocol(members.protocol).map_err(fail)?;
        if let Some(other) = protocol.filter(|it| string(it).as_deref() != Some(PROTOCOL)) {
            return Err(fail(DecodeErrorKind::Protocol {
                found: beginning(other),
            }));
        }
        match (id, members.id) {
            (Some(id), _) => Ok((id, members)),
            (None, Some(_)) => Err(fail(wrong("id", "an integer of 64 bits"))),
            (None, None) => Err(fail(missing("id"))),
        }
    }
}

pub(super) fn missing(member: &'static str) -> DecodeErrorKind {
    DecodeErrorKind::Missing { member }
}

pub(super) fn wrong(member: &'static str, expected: &'static str) -> DecodeErrorKind {
    DecodeErrorKind::Wrong { member, expected }
}

/// A member that is present and not null.
pub(super) fn given(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|raw| raw.get() != "null")
}

pub(super) fn text<'a>(
    member: &'static str,
    raw: Option<&'a RawValue>,
) -> Result<Cow<'a, str>, DecodeErrorKind> {
    string(raw.ok_or(missing(member))?).ok_or(wrong(member, "a string"))
}

/// A text for people. Lone surrogates, which Python puts in file names, are replaced instead of
/// refused.
pub(super) fn lossy_text<'a>(
    member: &'static str,
    raw: Option<&'a RawValue>,
) -> Result<Cow<'a, str>, DecodeErrorKind> {
    let raw = raw.ok_or(missing(member))?;
    if let Some(text) = string(raw) {
        return Ok(text);
    }
    let bytes: Unescaped =
        serde_json::from_str(raw.get()).map_err(|_| wrong(member, "a string"))?;
    Ok(String::from_utf8_lossy(&bytes.0).into_owned().into())
}

/// The beginning of a value, short enough for an error.
pub(super) fn beginning(raw: &RawValue) -> String {
    const SHOWN: usize = 64;
    match raw.get().char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &raw.get()[..end]),
        None => raw.get().to_owned(),
    }
}

/// The bytes of a JSON string, including lone surrogates.
struct Unescaped(Vec<u8>);

impl<'de> Deserialize<'de> for Unescaped {
    fn deserialize<D: serde::Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Unescaped;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Unescaped, E> {
                Ok(Unescaped(bytes.to_vec()))
            }
        }
        json.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_bridge_answers() {
        for (text, expected) in [
            (
                "",
                r#"{"id":-1,"protocol":"tywrap/1","error":{"type":"JSONDecodeError","message":"the message is no JSON"}}"#,
            ),
            (
                "[1,2]",
                r#"{"id":-1,"protocol":"tywrap/1","error":{"type":"ProtocolError","message":"the message is no JSON object"}}"#,
            ),
            (
                r#"{"id":3,"protocol":"tywrap/é"}"#,
                r#"{"id":3,"protocol":"tywrap/1","error":{"type":"ProtocolError","message":"protocol \"tywrap/\u00e9\" is not tywrap/1"}}"#,
            ),
        ] {
            let Err(error) = Members::read(text) else {
                panic!("{text}")
            };
            assert_eq!(error.reply(Style::Ascii), expected);
        }
    }

    #[test]
    fn an_error_shows_the_beginning() {
        let long = format!("\"{}\"", "é".repeat(1 << 16));
        let shown = beginning(serde_json::from_str(&long).unwrap());
        assert_eq!(shown, format!("\"{}…", "é".repeat(63)));
    }

    #[test]
    fn lone_surrogates_are_shown_as_such() {
        let read = |json| lossy_text("m", serde_json::from_str(json).unwrap());
        assert_eq!(read(r#""a\ud800b""#).unwrap(), "a\u{fffd}\u{fffd}\u{fffd}b");
        assert_eq!(read(r#""a\n""#).unwrap(), "a\n");
        for no_string in ["1", "[97]", "null", "{}"] {
            assert_eq!(
                lossy_text("m", Some(serde_json::from_str(no_string).unwrap())),
                Err(wrong("m", "a string"))
            );
        }
    }
}
