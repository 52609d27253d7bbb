//! Requests of a host.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::error::{DecodeError, DecodeErrorKind, Members, beginning, given, missing, text, wrong};
use super::style::{Style, Writer};
use super::{PROTOCOL, UNKNOWN_ID};
use crate::jsonrpc::string;

/// A request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The id, which the response repeats.
    pub id: i64,
    /// The method.
    pub method: Method<'a>,
}

/// The method of a request.
#[derive(Clone, Debug)]
pub enum Method<'a> {
    /// Call a function.
    Call(Call<'a>),
    /// Describe the bridge.
    Meta,
}

/// A function and its arguments.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// The module.
    pub module: Cow<'a, str>,
    /// The function, or a dotted path to it.
    pub function: Cow<'a, str>,
    /// The arguments: an array, or `None`.
    pub args: Option<&'a RawValue>,
    /// The keyword arguments: an object, or `None`.
    pub kwargs: Option<&'a RawValue>,
}

impl<'a> Request<'a> {
    /// Reads a request.
    pub fn read(text: &'a str) -> Result<Self, DecodeError> {
        let (id, members) = Members::read(text)?;
        match read_method(&members) {
            Ok(method) => Ok(Self { id, method }),
            Err(kind) => Err(DecodeError { id, kind }),
        }
    }
}

/// A `call` request.
pub fn call(
    id: i64,
    module: &str,
    function: &str,
    args: &RawValue,
    kwargs: Option<&RawValue>,
    style: Style,
) -> String {
    let mut out = Writer::new(style);
    out.open().name("method").string("call").name("params");
    out.open()
        .name("module")
        .string(module)
        .name("functionName")
        .string(function);
    out.name("args").raw(args);
    if let Some(kwargs) = kwargs {
        out.name("kwargs").raw(kwargs);
    }
    out.close()
        .name("id")
        .plain(id)
        .name("protocol")
        .string(PROTOCOL)
        .close();
    out.finish()
}

/// The `meta` request that a host sends first.
pub fn probe(style: Style) -> String {
    let mut out = Writer::new(style);
    out.open()
        .name("id")
        .plain(UNKNOWN_ID)
        .name("protocol")
        .string(PROTOCOL);
    out.name("method")
        .string("meta")
        .name("params")
        .open()
        .close()
        .close();
    out.finish()
}

fn read_method<'a>(members: &Members<'a>) -> Result<Method<'a>, DecodeErrorKind> {
    let method = members.method.ok_or(missing("method"))?;
    let params = given(members.params);
    if params.is_some_and(|params| !params.get().starts_with('{')) {
        return Err(wrong("params", "an object"));
    }
    match string(method).as_deref() {
        Some("call") => Ok(Method::Call(read_call(params)?)),
        Some("meta") => Ok(Method::Meta),
        Some(_) => Err(DecodeErrorKind::UnknownMethod {
            found: beginning(method),
        }),
        None => Err(wrong("method", "a string")),
    }
}

fn read_call(params: Option<&RawValue>) -> Result<Call<'_>, DecodeErrorKind> {
    let members: Params<'_> = match params {
        Some(params) => {
            serde_json::from_str(params.get()).map_err(|_| wrong("params", "an object"))?
        }
        None => Params::default(),
    };
    let call = Call {
        module: name("module", members.module)?,
        function: name("functionName", members.function)?,
        args: given(members.args),
        kwargs: given(members.kwargs),
    };
    if call.args.is_some_and(|args| !args.get().starts_with('[')) {
        return Err(wrong("args", "an array"));
    }
    if call
        .kwargs
        .is_some_and(|kwargs| !kwargs.get().starts_with('{'))
    {
        return Err(wrong("kwargs", "an object"));
    }
    Ok(call)
}

fn name<'a>(
    member: &'static str,
    raw: Option<&'a RawValue>,
) -> Result<Cow<'a, str>, DecodeErrorKind> {
    let name = text(member, raw)?;
    if name.is_empty() {
        Err(wrong(member, "a string that is not empty"))
    } else {
        Ok(name)
    }
}

crate::raw_members! {
    struct Params {
        module: "module",
        function: "functionName",
        args: "args",
        kwargs: "kwargs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn written() {
        for (written, expected) in [
            (
                call(
                    1,
                    "math",
                    "sqrt",
                    raw("[16]"),
                    Some(raw("{}")),
                    Style::Compact,
                ),
                r#"{"method":"call","params":{"module":"math","functionName":"sqrt","args":[16],"kwargs":{}},"id":1,"protocol":"tywrap/1"}"#,
            ),
            (
                call(2, "é", "a\"b", raw("[ \"é\" , 1 ]"), None, Style::Compact),
                r#"{"method":"call","params":{"module":"é","functionName":"a\"b","args":["é",1]},"id":2,"protocol":"tywrap/1"}"#,
            ),
            (
                call(2, "é", "f", raw("[\"é\",1]"), None, Style::Python),
                r#"{"method": "call", "params": {"module": "\u00e9", "functionName": "f", "args": ["\u00e9", 1]}, "id": 2, "protocol": "tywrap/1"}"#,
            ),
            (
                probe(Style::Compact),
                r#"{"id":-1,"protocol":"tywrap/1","method":"meta","params":{}}"#,
            ),
        ] {
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn calls_are_read() {
        for (text, args, kwargs) in [
            (
                r#"{"method":"call","params":{"module":"m","functionName":"f","args":[ 1],"kwargs":{"a": 2}},"id":7,"protocol":"tywrap/1"}"#,
                Some("[ 1]"),
                Some(r#"{"a": 2}"#),
            ),
            (
                r#"{"id":7, "protocol":"tywrap/1","method":"c\u0061ll","params":{"functionName":"f","module":"x","module":"m","args":null,"kwargs":null}, "extra":[]}"#,
                None,
                None,
            ),
            (
                r#"{"id":7,"protocol":"tywrap/1","method":"call","params":{"functionName":"f","module":"m"}}"#,
                None,
                None,
            ),
        ] {
            let request = Request::read(text).unwrap();
            assert_eq!(request.id, 7);
            let Method::Call(call) = request.method else {
                panic!("{text}")
            };
            assert_eq!((&*call.module, &*call.function), ("m", "f"), "{text}");
            assert_eq!(
                (call.args.map(RawValue::get), call.kwargs.map(RawValue::get)),
                (args, kwargs),
                "{text}"
            );
        }
        for text in [
            r#"{"id":-1,"protocol":"tywrap/1","method":"meta","params":{}}"#,
            r#"{"id":-1,"protocol":"tywrap/1","method":"meta"}"#,
            r#"{"id":-1,"protocol":"tywrap/1","method":"meta","params":null}"#,
        ] {
            let request = Request::read(text).unwrap();
            assert!(
                request.id == -1 && matches!(request.method, Method::Meta),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let number = "an integer of 64 bits";
        for (text, id, kind) in [
            ("", -1, DecodeErrorKind::NotJson),
            ("not json", -1, DecodeErrorKind::NotJson),
            (r#"{"id":1"#, -1, DecodeErrorKind::NotJson),
            (r#"{"id":1}{}"#, -1, DecodeErrorKind::NotJson),
            ("[1,", -1, DecodeErrorKind::NotJson),
            ("[1,2]", -1, DecodeErrorKind::NotObject),
            ("5", -1, DecodeErrorKind::NotObject),
            ("null", -1, DecodeErrorKind::NotObject),
            ("{}", -1, missing("protocol")),
            (r#"{"id":3}"#, 3, missing("protocol")),
            (
                r#"{"id":3,"protocol":"tywrap/2"}"#,
                3,
                DecodeErrorKind::Protocol {
                    found: r#""tywrap/2""#.into(),
                },
            ),
            (
                r#"{"id":3,"protocol":null}"#,
                3,
                DecodeErrorKind::Protocol {
                    found: "null".into(),
                },
            ),
            (r#"{"protocol":"tywrap/1"}"#, -1, missing("id")),
            (
                r#"{"protocol":"tywrap/1","id":1.0}"#,
                -1,
                wrong("id", number),
            ),
            (
                r#"{"protocol":"tywrap/1","id":"1"}"#,
                -1,
                wrong("id", number),
            ),
            (
                r#"{"protocol":"tywrap/1","id":true}"#,
                -1,
                wrong("id", number),
            ),
            (
                r#"{"protocol":"tywrap/1","id":9223372036854775808}"#,
                -1,
                wrong("id", number),
            ),
            (
                r#"{"protocol":"tywrap/1","id":1,"id":[]}"#,
                -1,
                wrong("id", number),
            ),
            (
                r#"{"protocol":"tywrap/1","id":-9223372036854775808}"#,
                i64::MIN,
                missing("method"),
            ),
            (
                r#"{"protocol":"tywrap/1","id":1,"method":7}"#,
                1,
                wrong("method", "a string"),
            ),
            (
                r#"{"protocol":"tywrap/1","id":1,"method":"instantiate"}"#,
                1,
                DecodeErrorKind::UnknownMethod {
                    found: r#""instantiate""#.into(),
                },
            ),
            (
                r#"{"protocol":"tywrap/1","id":1,"method":"meta","params":[]}"#,
                1,
                wrong("params", "an object"),
            ),
            (
                r#"{"protocol":"tywrap/1","id":1,"method":"call"}"#,
                1,
                missing("module"),
            ),
            (
                r#"{"protocol":"tywrap/1","id":1,"method":"call","params":{"module":{}}}"#,
                1,
                wrong("module", "a string"),
            ),
            (
                r#"{"protocol":"tywrap/1","id":1,"method":"call","params":{"module":""}}"#,
                1,
                wrong("module", "a string that is not empty"),
            ),
            (
                r#"{"protocol":"tywrap/1","id":1,"method":"call","params":{"module":"m"}}"#,
                1,
                missing("functionName"),
            ),
            (
                r#"{"protocol":"tywrap/1","id":1,"method":"call","params":{"module":"m","functionName":"f","args":{}}}"#,
                1,
                wrong("args", "an array"),
            ),
            (
                r#"{"protocol":"tywrap/1","id":1,"method":"call","params":{"module":"m","functionName":"f","kwargs":[]}}"#,
                1,
                wrong("kwargs", "an object"),
            ),
        ] {
            assert_eq!(
                Request::read(text).map(drop),
                Err(DecodeError { id, kind }),
                "{text}"
            );
        }
    }

    #[test]
    fn deep_arguments_cost_no_stack() {
        let deep = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        let text = call(1, "m", "f", raw(&deep), None, Style::Compact);
        assert_eq!(Request::read(&text).unwrap().id, 1);
    }
}
