//! What a handler threw: an error, or any other value.

use super::encode::EncodeError;
use super::text::Text;
use super::value::{MAX_DEPTH, Value};

/// An error as it is sent. A field that is `None` was `undefined` and is omitted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SerializedError {
    /// Its class, such as `TypeError`; `Canceled` for a cancelled call.
    pub name: Option<String>,
    /// The message text.
    pub message: Option<String>,
    /// The stack trace.
    pub stack: Option<String>,
    /// Whether it is expected, and not to be reported in telemetry.
    pub no_telemetry: bool,
    /// The cause.
    pub cause: Option<Box<Thrown>>,
    /// A code such as `ENOENT`.
    pub code: Option<Value>,
}

/// What a call threw.
#[derive(Debug, Clone, PartialEq)]
pub enum Thrown {
    /// An error; boxed, since most results are no errors.
    Error(Box<SerializedError>),
    /// Any other value; `undefined` for an empty reply.
    Other(Value),
}

impl SerializedError {
    /// An error with a class name and a message text.
    pub fn new(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
            message: Some(message.into()),
            ..Self::default()
        }
    }

    /// The error of a cancelled or disposed call.
    pub fn canceled() -> Self {
        Self::new("Canceled", "Canceled")
    }

    fn to_value(&self, depth: usize) -> Result<Value, EncodeError> {
        let text = |text: &Option<String>| text.clone().map_or(Value::Undefined, Value::String);
        let cause = match &self.cause {
            Some(cause) if !cause.is_falsy() => cause.to_value(depth + 1)?,
            _ => Value::Undefined,
        };
        Ok([
            ("$isError", true.into()),
            ("name", text(&self.name)),
            ("message", text(&self.message)),
            ("stack", text(&self.stack)),
            ("noTelemetry", self.no_telemetry.into()),
            ("cause", cause),
            ("code", self.code.clone().unwrap_or_default()),
        ]
        .into())
    }

    /// `None` if a field has an unexpected type: the value is then kept as it is.
    fn from_entries(entries: &[(String, Value)]) -> Option<Self> {
        let mut error = Self::default();
        let mut is_error = false;
        for (key, value) in entries {
            match (key.as_str(), value) {
                ("$isError", value) => is_error = *value == Value::Bool(true),
                ("name", Value::String(name)) => error.name = Some(name.clone()),
                ("message", Value::String(message)) => error.message = Some(message.clone()),
                ("stack", Value::String(stack)) => error.stack = Some(stack.clone()),
                ("noTelemetry", Value::Bool(quiet)) => error.no_telemetry = *quiet,
                ("name" | "message" | "stack" | "noTelemetry", _) => return None,
                ("cause", cause) => {
                    error.cause = Some(Box::new(Thrown::from_value(cause.clone())));
                }
                ("code", code) => error.code = Some(code.clone()),
                _ => {}
            }
        }
        is_error.then_some(error)
    }
}

impl Thrown {
    /// Converts the JSON of a reply to an error or other value. Code and cause are kept.
    pub fn from_value(value: Value) -> Self {
        let error = match &value {
            Value::Object(entries) => SerializedError::from_entries(entries),
            _ => None,
        };
        error.map_or(Self::Other(value), Self::from)
    }

    /// The JSON of a reply; `None` for a falsy value, which is sent as an empty reply.
    pub fn to_json(&self) -> Result<Option<Text>, EncodeError> {
        if self.is_falsy() {
            return Ok(None);
        }
        self.to_value(1)?.to_json().map(Some)
    }

    fn is_falsy(&self) -> bool {
        matches!(self, Self::Other(value) if value.is_falsy())
    }

    fn to_value(&self, depth: usize) -> Result<Value, EncodeError> {
        // A chain of causes adds to the depth.
        if depth > MAX_DEPTH {
            return Err(EncodeError::TooDeep { limit: MAX_DEPTH });
        }
        match self {
            Self::Error(error) => error.to_value(depth),
            Self::Other(value) => Ok(value.clone()),
        }
    }
}

impl From<SerializedError> for Thrown {
    fn from(error: SerializedError) -> Self {
        Self::Error(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Thrown {
        Thrown::from_value(Value::parse(json).unwrap())
    }

    #[test]
    fn errors_keep_all_they_carry() {
        let table = [
            r#"{"$isError":true,"name":"Error","message":"nope","noTelemetry":false}"#,
            r#"{"$isError":true,"name":"E","message":"m","stack":"E: m\n    at x","noTelemetry":true,"code":"ENOENT"}"#,
            r#"{"$isError":true,"message":"","noTelemetry":false,"cause":{"k":1},"code":null}"#,
            r#"{"$isError":true,"noTelemetry":false,"cause":{"$isError":true,"name":"In","noTelemetry":false,"code":7}}"#,
        ];
        for json in table {
            let thrown = read(json);
            assert!(matches!(thrown, Thrown::Error(_)), "{json}");
            assert_eq!(thrown.to_json().unwrap().unwrap(), json);
        }
    }

    #[test]
    fn other_values_travel_as_they_are_and_falsy_ones_not_at_all() {
        for json in [
            "42",
            "true",
            "\"x\"",
            "[]",
            r#"{"$isError":false}"#,
            r#"{"$isError":true,"name":5}"#,
        ] {
            let thrown = read(json);
            assert!(matches!(thrown, Thrown::Other(_)), "{json}");
            assert_eq!(thrown.to_json().unwrap().unwrap(), json);
        }
        for json in ["0", "null", "\"\"", "false", "-0"] {
            assert_eq!(read(json).to_json(), Ok(None), "{json}");
        }
    }

    #[test]
    fn a_chain_of_causes_is_bounded() {
        let chain = |length| {
            (0..length).fold(SerializedError::canceled(), |cause, _| SerializedError {
                cause: Some(Box::new(cause.into())),
                ..SerializedError::default()
            })
        };
        assert!(Thrown::from(chain(100)).to_json().is_ok());
        let too_deep = EncodeError::TooDeep { limit: MAX_DEPTH };
        assert_eq!(Thrown::from(chain(MAX_DEPTH)).to_json(), Err(too_deep));
    }
}
