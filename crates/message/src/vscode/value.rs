//! A JavaScript value that can be sent.

use bytes::Bytes;

/// How deep a [`Value`] may nest to be read or written, which limits the stack of recursive functions.
pub const MAX_DEPTH: usize = 512;

/// An argument or result of a call: JSON, and the two values that JSON cannot express.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// Any number: JavaScript has one kind.
    Number(f64),
    /// Text.
    String(String),
    /// A list.
    Array(Vec<Value>),
    /// Keys and values, in the order they were set.
    Object(Vec<(String, Value)>),
    /// Bytes.
    Buffer(Bytes),
    /// `undefined`
    #[default]
    Undefined,
}

impl Value {
    /// The value of a key, if this is an object.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Self::Object(entries) => entries
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// The text, if this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if this is a number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Whether JavaScript treats this as false in a condition.
    pub fn is_falsy(&self) -> bool {
        match self {
            Self::Null | Self::Undefined => true,
            Self::Bool(bool) => !bool,
            Self::Number(number) => *number == 0.0 || number.is_nan(),
            Self::String(text) => text.is_empty(),
            Self::Array(_) | Self::Object(_) | Self::Buffer(_) => false,
        }
    }
}

impl From<bool> for Value {
    fn from(bool: bool) -> Self {
        Self::Bool(bool)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Self::Buffer(bytes)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Self::Array(items)
    }
}

impl<const N: usize> From<[(&str, Value); N]> for Value {
    fn from(entries: [(&str, Value); N]) -> Self {
        Self::Object(entries.map(|(key, value)| (key.into(), value)).into())
    }
}
