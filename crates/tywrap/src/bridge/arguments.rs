//! The arguments and the result of a call.

use std::borrow::Cow;

use breakbulk_message::tywrap::{ErrorBody, Style, read_request_bytes, response_bytes};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::Outcome;

/// The arguments of a call, as the host wrote them.
#[derive(Clone, Debug)]
pub struct Arguments<'a> {
    args: Option<&'a RawValue>,
    kwargs: Option<&'a RawValue>,
}

/// The result of a call.
#[derive(Clone, Debug)]
pub struct Answer(pub(super) Box<RawValue>);

/// An exception for the host: the name of its class, and its text.
pub fn raise(kind: impl Into<String>, message: impl Into<String>) -> ErrorBody<'static> {
    ErrorBody {
        kind: Cow::Owned(kind.into()),
        message: Cow::Owned(message.into()),
        traceback: None,
    }
}

impl<'a> Arguments<'a> {
    pub(super) fn new(args: Option<&'a RawValue>, kwargs: Option<&'a RawValue>) -> Self {
        Self { args, kwargs }
    }

    /// The array of arguments, as JSON.
    pub fn raw(&self) -> Option<&'a RawValue> {
        self.args
    }

    /// The object of named arguments, as JSON.
    pub fn raw_named(&self) -> Option<&'a RawValue> {
        self.kwargs
    }

    /// Each argument as JSON, not parsed further.
    ///
    /// # Errors
    /// If they are not an array; the bridge refuses such a call before.
    pub fn list(&self) -> Result<Vec<&'a RawValue>, ErrorBody<'static>> {
        match self.args {
            None => Ok(Vec::new()),
            Some(args) => serde_json::from_str(args.get()).map_err(|error| unfit("args", &error)),
        }
    }

    /// The arguments as values.
    ///
    /// # Errors
    /// If they are nested too deep, or a number is out of range.
    pub fn values(&self) -> Result<Vec<Value>, ErrorBody<'static>> {
        match self.args {
            None => Ok(Vec::new()),
            Some(args) => serde_json::from_str(args.get()).map_err(|error| unfit("args", &error)),
        }
    }

    /// The named arguments as values; of two with the same name the last is used.
    ///
    /// # Errors
    /// If they are nested too deep, or a number is out of range.
    pub fn named(&self) -> Result<Map<String, Value>, ErrorBody<'static>> {
        match self.kwargs {
            None => Ok(Map::new()),
            Some(kwargs) => {
                serde_json::from_str(kwargs.get()).map_err(|error| unfit("kwargs", &error))
            }
        }
    }

    /// One argument as JSON.
    ///
    /// # Errors
    /// `TypeError` if there are fewer.
    pub fn at(&self, index: usize) -> Result<&'a RawValue, ErrorBody<'static>> {
        let list = self.list()?;
        let count = list.len();
        list.into_iter().nth(index).ok_or_else(|| {
            raise(
                "TypeError",
                format!("there is no argument {index}: {count} were given"),
            )
        })
    }

    /// One argument as a number.
    ///
    /// # Errors
    /// `TypeError` if it is none.
    pub fn float(&self, index: usize) -> Result<f64, ErrorBody<'static>> {
        self.read(index, |json| serde_json::from_str(json), "a number")
    }

    /// One argument as an integer.
    ///
    /// # Errors
    /// `TypeError` if it is not an integer of 64 bits.
    pub fn integer(&self, index: usize) -> Result<i64, ErrorBody<'static>> {
        self.read(
            index,
            |json| serde_json::from_str(json),
            "an integer of 64 bits",
        )
    }

    /// One argument as a string.
    ///
    /// # Errors
    /// `TypeError` if it is none.
    pub fn text(&self, index: usize) -> Result<String, ErrorBody<'static>> {
        self.read(index, |json| serde_json::from_str(json), "a string")
    }

    /// One argument as bytes; `None` if it is another value.
    ///
    /// # Errors
    /// `TypeError` if it is marked as bytes and cannot be decoded.
    pub fn bytes(&self, index: usize) -> Result<Option<Vec<u8>>, ErrorBody<'static>> {
        let read = read_request_bytes(self.at(index)?).transpose();
        read.map_err(|error| raise("TypeError", format!("argument {index}: {error}")))
    }

    fn read<T>(
        &self,
        index: usize,
        read: impl Fn(&str) -> serde_json::Result<T>,
        expected: &str,
    ) -> Result<T, ErrorBody<'static>> {
        read(self.at(index)?.get())
            .map_err(|_| raise("TypeError", format!("argument {index} must be {expected}")))
    }
}

impl Answer {
    /// A value.
    pub fn value(value: &Value) -> Outcome {
        Self::json(value.to_string())
    }

    /// JSON text.
    ///
    /// # Errors
    /// `ValueError` if the text is not JSON.
    pub fn json(text: String) -> Outcome {
        RawValue::from_string(text)
            .map(Self)
            .map_err(|error| raise("ValueError", format!("the result is no JSON: {error}")))
    }

    /// JSON that was checked already.
    pub fn raw(json: &RawValue) -> Self {
        Self(json.to_owned())
    }

    /// A number.
    ///
    /// # Errors
    /// `ValueError` if it is not finite, which JSON cannot express.
    pub fn number(number: f64) -> Outcome {
        if number.is_finite() {
            return Self::value(&Value::from(number));
        }
        let text = format!("the result is {number}, which JSON does not have; return null instead");
        Err(raise("ValueError", text))
    }

    /// Bytes.
    pub fn bytes(bytes: &[u8]) -> Outcome {
        Self::json(response_bytes(bytes, Style::Ascii))
    }

    /// Text.
    pub fn text(text: &str) -> Outcome {
        Self::value(&Value::from(text))
    }
}

fn unfit(member: &str, error: &serde_json::Error) -> ErrorBody<'static> {
    raise("ValueError", format!("`{member}` cannot be read: {error}"))
}
