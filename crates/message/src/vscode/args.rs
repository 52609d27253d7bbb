//! Converts between values and the arguments and results of calls.

use super::encode::EncodeError;
use super::error::Thrown;
use super::json::JsonError;
use super::message::{Arg, Args, Reply};
use super::text::Text;
use super::uri::{self, UriTransformer};
use super::value::Value;
use super::write::json_array;

/// A value as it is passed to or returned from a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Passed {
    /// JSON, or a single buffer or `undefined`. Buffers inside it are written as lists of numbers.
    Plain(Value),
    /// A value whose buffers, at any depth, are sent as bytes.
    WithBuffers(Value),
}

/// Why a message's JSON cannot be converted to a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The text is not valid JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A request's arguments are not an array.
    #[error("arguments are not a JSON array")]
    ArgsNotArray,
    /// A reference to a buffer that does not exist.
    #[error("reference to buffer {index}, but the message has {buffers}")]
    BadRef {
        /// The reference, as written.
        index: String,
        /// How many buffers there are.
        buffers: usize,
    },
}

impl From<Value> for Passed {
    fn from(value: Value) -> Self {
        Self::Plain(value)
    }
}

impl Passed {
    /// The value.
    pub fn value(&self) -> &Value {
        match self {
            Self::Plain(value) | Self::WithBuffers(value) => value,
        }
    }

    /// The value, owned.
    pub fn into_value(self) -> Value {
        match self {
            Self::Plain(value) | Self::WithBuffers(value) => value,
        }
    }

    fn value_mut(&mut self) -> &mut Value {
        match self {
            Self::Plain(value) | Self::WithBuffers(value) => value,
        }
    }

    /// Whether a plain JSON array of arguments cannot hold it.
    fn needs_mixed(&self) -> bool {
        matches!(
            self,
            Self::WithBuffers(_) | Self::Plain(Value::Buffer(_) | Value::Undefined)
        )
    }

    fn transform_outgoing(&mut self, uris: Option<&dyn UriTransformer>) {
        if let Some(uris) = uris {
            uri::transform_outgoing(self.value_mut(), uris);
        }
    }
}

impl Args {
    /// Writes the arguments of a request: one JSON array, or mixed arguments if JSON cannot express
    /// them.
    ///
    /// They do not include a cancellation token: that is the request's field `cancellation`.
    pub fn write(
        mut args: Vec<Passed>,
        uris: Option<&dyn UriTransformer>,
    ) -> Result<Self, EncodeError> {
        for arg in &mut args {
            arg.transform_outgoing(uris);
        }
        if !args.iter().any(Passed::needs_mixed) {
            return json_array(args.iter().map(Passed::value)).map(Self::Json);
        }
        if args.len() > usize::from(u8::MAX) {
            return Err(EncodeError::TooManyArgs { count: args.len() });
        }
        let mixed = args.into_iter().map(|arg| {
            Ok(match arg {
                Passed::Plain(Value::Undefined) => Arg::Undefined,
                Passed::Plain(Value::Buffer(buffer)) => Arg::Buffer(buffer),
                Passed::Plain(value) => Arg::Json(value.to_json()?),
                Passed::WithBuffers(value) => Arg::ObjectWithBuffers(value.to_json_with_buffers()?),
            })
        });
        mixed.collect::<Result<_, _>>().map(Self::Mixed)
    }

    /// Reads the arguments as values.
    pub fn read(&self, uris: Option<&dyn UriTransformer>) -> Result<Vec<Passed>, ReadError> {
        let mut args = match self {
            Self::Json(json) => match Value::parse(json.as_str())? {
                Value::Array(items) => items.into_iter().map(Passed::Plain).collect(),
                _ => return Err(ReadError::ArgsNotArray),
            },
            Self::Mixed(mixed) => mixed.iter().map(Arg::read).collect::<Result<Vec<_>, _>>()?,
        };
        if let Some(uris) = uris {
            for arg in &mut args {
                // The original counts depth from the array, and a wrapped value is one level deeper.
                let depth = match arg {
                    Passed::Plain(_) => 1,
                    Passed::WithBuffers(_) => 2,
                };
                uri::transform_incoming(arg.value_mut(), uris, depth);
            }
        }
        Ok(args)
    }
}

impl Arg {
    fn read(&self) -> Result<Passed, ReadError> {
        Ok(match self {
            Self::Json(json) => Passed::Plain(Value::parse(json.as_str())?),
            Self::Buffer(buffer) => Passed::Plain(Value::Buffer(buffer.clone())),
            Self::ObjectWithBuffers(value) => Passed::WithBuffers(value.read()?),
            Self::Undefined => Passed::Plain(Value::Undefined),
        })
    }
}

impl Reply {
    /// Writes the reply of a call that returned.
    pub fn write_ok(
        mut result: Passed,
        uris: Option<&dyn UriTransformer>,
    ) -> Result<Self, EncodeError> {
        result.transform_outgoing(uris);
        Ok(match result {
            Passed::Plain(Value::Undefined) => Self::OkEmpty,
            Passed::Plain(Value::Buffer(buffer)) => Self::OkBuffer(buffer),
            Passed::Plain(value) => Self::OkJson(value.to_json()?),
            Passed::WithBuffers(value) => Self::OkJsonWithBuffers(value.to_json_with_buffers()?),
        })
    }

    /// Writes the reply of a call that threw. URIs in it are not transformed, as in the original.
    pub fn write_err(thrown: &Thrown) -> Result<Self, EncodeError> {
        Ok(match thrown.to_json()? {
            Some(json) => Self::ErrError(json),
            None => Self::ErrEmpty,
        })
    }

    /// Reads what the call returned or threw.
    pub fn read(
        &self,
        uris: Option<&dyn UriTransformer>,
    ) -> Result<Result<Passed, Thrown>, ReadError> {
        let parse = |json: &Text| {
            let value = Value::parse(json.as_str());
            value.map(|value| transformed(value, uris))
        };
        Ok(match self {
            Self::OkEmpty => Ok(Passed::Plain(Value::Undefined)),
            Self::OkBuffer(buffer) => Ok(Passed::Plain(Value::Buffer(buffer.clone()))),
            Self::OkJson(json) => Ok(Passed::Plain(parse(json)?)),
            Self::OkJsonWithBuffers(value) => {
                Ok(Passed::WithBuffers(transformed(value.read()?, uris)))
            }
            Self::ErrError(json) => Err(Thrown::from_value(parse(json)?)),
            Self::ErrEmpty => Err(Thrown::Other(Value::Undefined)),
        })
    }
}

fn transformed(mut value: Value, uris: Option<&dyn UriTransformer>) -> Value {
    if let Some(uris) = uris {
        uri::transform_incoming(&mut value, uris, 0);
    }
    value
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::WithBuffers;
    use super::*;

    fn buffer(bytes: &'static [u8]) -> Value {
        Bytes::from_static(bytes).into()
    }

    fn with_buffers(json: &str, buffers: &[&'static [u8]]) -> WithBuffers {
        WithBuffers {
            json: json.into(),
            buffers: buffers.iter().map(|b| Bytes::from_static(b)).collect(),
        }
    }

    #[test]
    fn json_where_json_can_say_it_and_mixed_otherwise() {
        let plain = |value| Passed::Plain(value);
        let json = |text: &str| Arg::Json(text.into());
        let nested: Value = vec![Value::Undefined].into();
        let object = Arg::ObjectWithBuffers(with_buffers("{}", &[]));
        let table = [
            (vec![], Args::Json("[]".into())),
            (
                vec![plain(1.into()), plain(nested.clone())],
                Args::Json("[1,[null]]".into()),
            ),
            (
                vec![plain(buffer(b"x"))],
                Args::Mixed(vec![Arg::Buffer("x".into())]),
            ),
            (
                vec![plain(nested), plain(Value::Undefined)],
                Args::Mixed(vec![json("[null]"), Arg::Undefined]),
            ),
            (
                vec![
                    Passed::WithBuffers(Value::Object(vec![])),
                    plain(Value::Null),
                ],
                Args::Mixed(vec![object, json("null")]),
            ),
        ];
        for (values, expected) in table {
            assert_eq!(Args::write(values, None), Ok(expected));
        }
    }

    #[test]
    fn results_read_back() {
        let wrapped: Value = [("b", buffer(b"12")), ("u", Value::Undefined)].into();
        let reference = with_buffers(r#"{"b":{"$$ref$$":0},"u":{"$$ref$$":-1}}"#, &[b"12"]);
        let table = [
            (Passed::Plain(Value::Undefined), Reply::OkEmpty),
            (Passed::Plain(Value::Null), Reply::OkJson("null".into())),
            (Passed::Plain(buffer(b"")), Reply::OkBuffer(Bytes::new())),
            (
                Passed::WithBuffers(wrapped),
                Reply::OkJsonWithBuffers(reference),
            ),
        ];
        for (passed, expected) in table {
            let reply = Reply::write_ok(passed.clone(), None).unwrap();
            assert_eq!(reply, expected);
            assert_eq!(reply.read(None), Ok(Ok(passed)));
        }
    }

    #[test]
    fn only_mixed_arguments_are_counted_in_a_byte() {
        let many = |value: Value, count| vec![Passed::Plain(value); count];
        assert!(Args::write(many(Value::Null, 300), None).is_ok());
        assert!(Args::write(many(Value::Undefined, 255), None).is_ok());
        let error = EncodeError::TooManyArgs { count: 256 };
        assert_eq!(Args::write(many(Value::Undefined, 256), None), Err(error));
    }
}
