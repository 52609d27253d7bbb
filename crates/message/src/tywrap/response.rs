//! Responses of a bridge.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::PROTOCOL;
use super::error::{DecodeError, DecodeErrorKind, Members, given, lossy_text, text, wrong};
use super::style::{Style, Writer};

/// A response.
#[derive(Clone, Debug)]
pub struct Response<'a> {
    /// The request's id, or [`UNKNOWN_ID`](super::UNKNOWN_ID) if the bridge could not read it.
    pub id: i64,
    /// The result as raw JSON, or the error.
    pub outcome: Result<&'a RawValue, ErrorBody<'a>>,
}

/// An error of a bridge.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct ErrorBody<'a> {
    /// The exception's class.
    pub kind: Cow<'a, str>,
    /// The exception's text.
    pub message: Cow<'a, str>,
    /// The traceback.
    pub traceback: Option<Cow<'a, str>>,
}

impl<'a> Response<'a> {
    /// Reads a response. Its protocol may be missing, but not another.
    pub fn read(text: &'a str) -> Result<Self, DecodeError> {
        let (id, members) = Members::read_response(text)?;
        match read_outcome(&members) {
            Ok(outcome) => Ok(Self { id, outcome }),
            Err(kind) => Err(DecodeError { id, kind }),
        }
    }
}

/// A response with a result.
pub fn result(id: i64, result: &RawValue, style: Style) -> String {
    let mut out = begin(id, style);
    out.name("result").raw(result).close();
    out.finish()
}

/// A response with an error.
pub fn error(id: i64, error: &ErrorBody<'_>, style: Style) -> String {
    let mut out = begin(id, style);
    out.name("error").open();
    out.name("type")
        .string(&error.kind)
        .name("message")
        .string(&error.message);
    if let Some(traceback) = &error.traceback {
        out.name("traceback").string(traceback);
    }
    out.close().close();
    out.finish()
}

/// Begins a response, up to its result or error.
pub(super) fn begin(id: i64, style: Style) -> Writer {
    let mut out = Writer::new(style);
    out.open()
        .name("id")
        .plain(id)
        .name("protocol")
        .string(PROTOCOL);
    out
}

fn read_outcome<'a>(
    members: &Members<'a>,
) -> Result<Result<&'a RawValue, ErrorBody<'a>>, DecodeErrorKind> {
    match (members.result, given(members.error)) {
        (Some(result), None) => Ok(Ok(result)),
        (None, Some(error)) => Ok(Err(read_error(error)?)),
        // Some bridges always write both members: a null result besides an error is ignored.
        (Some(result), Some(error)) if result.get() == "null" => Ok(Err(read_error(error)?)),
        (Some(_), Some(_)) => Err(DecodeErrorKind::Both),
        (None, None) => Err(DecodeErrorKind::Neither),
    }
}

fn read_error(error: &RawValue) -> Result<ErrorBody<'_>, DecodeErrorKind> {
    let members: Body<'_> =
        serde_json::from_str(error.get()).map_err(|_| wrong("error", "an object"))?;
    Ok(ErrorBody {
        kind: text("error.type", members.kind)?,
        message: lossy_text("error.message", members.message)?,
        traceback: given(members.traceback)
            .map(|traceback| lossy_text("error.traceback", Some(traceback)))
            .transpose()?,
    })
}

crate::raw_members! {
    struct Body {
        kind: "type",
        message: "message",
        traceback: "traceback",
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::missing;
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn written() {
        let plain = ErrorBody {
            kind: "ValueError".into(),
            message: "é".into(),
            traceback: None,
        };
        let traced = ErrorBody {
            traceback: Some("a\n".into()),
            ..plain.clone()
        };
        for (written, expected) in [
            (
                result(1, raw("4.0"), Style::Python),
                r#"{"id": 1, "protocol": "tywrap/1", "result": 4.0}"#,
            ),
            (
                result(1, raw("[\"é\",{\"a\":1}]"), Style::Python),
                r#"{"id": 1, "protocol": "tywrap/1", "result": ["\u00e9", {"a": 1}]}"#,
            ),
            (
                result(-1, raw("[\"é\", 1]"), Style::Ascii),
                r#"{"id":-1,"protocol":"tywrap/1","result":["\u00e9",1]}"#,
            ),
            (
                result(1, raw("\"é\""), Style::Compact),
                r#"{"id":1,"protocol":"tywrap/1","result":"é"}"#,
            ),
            (
                error(17, &plain, Style::Ascii),
                r#"{"id":17,"protocol":"tywrap/1","error":{"type":"ValueError","message":"\u00e9"}}"#,
            ),
            (
                error(17, &traced, Style::Python),
                r#"{"id": 17, "protocol": "tywrap/1", "error": {"type": "ValueError", "message": "\u00e9", "traceback": "a\n"}}"#,
            ),
        ] {
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn read() {
        let body = |traceback: Option<&'static str>| ErrorBody {
            kind: "E".into(),
            message: "m".into(),
            traceback: traceback.map(Cow::from),
        };
        for (text, expected) in [
            (
                r#"{"id": 1, "protocol": "tywrap/1", "result": [ 4.0]}"#,
                Ok("[ 4.0]"),
            ),
            (r#"{"id":1,"result":[]}"#, Ok("[]")),
            (
                r#"{"id":1,"protocol":"tywrap/1","result":null}"#,
                Ok("null"),
            ),
            (
                r#"{"id":1,"protocol":"tywrap/1","result":2,"error":null}"#,
                Ok("2"),
            ),
            (
                r#"{"id":1,"protocol":"tywrap/1","result":2,"result":3}"#,
                Ok("3"),
            ),
            (
                r#"{"id":1,"protocol":"tywrap/1","error":{"type":"E","message":"m"}}"#,
                Err(body(None)),
            ),
            (
                r#"{"id":1,"protocol":"tywrap/1","result":null,"error":{"message":"m","type":"E","x":{}}}"#,
                Err(body(None)),
            ),
            (
                r#"{"id":1,"protocol":"tywrap/1","error":{"type":"E","message":"m","traceback":null}}"#,
                Err(body(None)),
            ),
            (
                r#"{"id":1,"protocol":"tywrap/1","error":{"type":"E","message":"m","traceback":"\ud800"}}"#,
                Err(body(Some("\u{fffd}\u{fffd}\u{fffd}"))),
            ),
        ] {
            let response = Response::read(text).unwrap();
            assert_eq!(
                (response.id, response.outcome.map(RawValue::get)),
                (1, expected),
                "{text}"
            );
        }
        assert_eq!(body(None).to_string(), "E: m");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, id, kind) in [
            ("", -1, DecodeErrorKind::NotJson),
            ("print", -1, DecodeErrorKind::NotJson),
            ("[]", -1, DecodeErrorKind::NotObject),
            (r#"{"result":1}"#, -1, missing("id")),
            (
                r#"{"id":1,"protocol":null,"result":1}"#,
                1,
                DecodeErrorKind::Protocol {
                    found: "null".into(),
                },
            ),
            (
                r#"{"id":1,"protocol":1,"result":1}"#,
                1,
                DecodeErrorKind::Protocol { found: "1".into() },
            ),
            (r#"{"protocol":"tywrap/1","result":1}"#, -1, missing("id")),
            (
                r#"{"id":null,"protocol":"tywrap/1","result":1}"#,
                -1,
                wrong("id", "an integer of 64 bits"),
            ),
            (
                r#"{"id":1e99,"protocol":"tywrap/1","result":1}"#,
                -1,
                wrong("id", "an integer of 64 bits"),
            ),
            (
                r#"{"id":1,"protocol":"tywrap/1"}"#,
                1,
                DecodeErrorKind::Neither,
            ),
            (
                r#"{"id":1,"protocol":"tywrap/1","error":null}"#,
                1,
                DecodeErrorKind::Neither,
            ),
            (
                r#"{"id":1,"protocol":"tywrap/1","result":0,"error":{}}"#,
                1,
                DecodeErrorKind::Both,
            ),
            (
                r#"{"id":1,"protocol":"tywrap/1","error":"E"}"#,
                1,
                wrong("error", "an object"),
            ),
            (
                r#"{"id":1,"protocol":"tywrap/1","error":{}}"#,
                1,
                missing("error.type"),
            ),
            (
                r#"{"id":1,"protocol":"tywrap/1","error":{"type":1}}"#,
                1,
                wrong("error.type", "a string"),
            ),
            (
                r#"{"id":1,"protocol":"tywrap/1","error":{"type":"E"}}"#,
                1,
                missing("error.message"),
            ),
            (
                r#"{"id":1,"protocol":"tywrap/1","error":{"type":"E","message":[]}}"#,
                1,
                wrong("error.message", "a string"),
            ),
            (
                r#"{"id":1,"protocol":"tywrap/1","error":{"type":"E","message":"","traceback":1}}"#,
                1,
                wrong("error.traceback", "a string"),
            ),
        ] {
            assert_eq!(
                Response::read(text).map(drop),
                Err(DecodeError { id, kind }),
                "{text}"
            );
        }
    }
}
