//! Writes a [`Value`] as JSON text, plain or with its buffers separate.

use bytes::Bytes;

use super::ecma::{write_number, write_string};
use super::encode::EncodeError;
use super::message::WithBuffers;
use super::refs::{REF, UNDEFINED_REF};
use super::text::Text;
use super::value::{MAX_DEPTH, Value};

impl Value {
    /// Plain JSON as `JSON.stringify` writes it: `undefined` is omitted from objects and `null`
    /// elsewhere, and a buffer is a list of numbers.
    pub fn to_json(&self) -> Result<Text, EncodeError> {
        let mut writer = Writer::default();
        writer.value(self)?;
        Ok(writer.out.into())
    }

    /// JSON with references to the buffers, and the buffers in the order of their occurrence.
    pub fn to_json_with_buffers(&self) -> Result<WithBuffers, EncodeError> {
        let mut writer = Writer {
            buffers: Some(Vec::new()),
            ..Writer::default()
        };
        writer.value(self)?;
        Ok(WithBuffers {
            json: writer.out.into(),
            buffers: writer.buffers.unwrap_or_default(),
        })
    }
}

/// A list of values as one plain JSON array.
pub(super) fn json_array<'a>(
    values: impl IntoIterator<Item = &'a Value>,
) -> Result<Text, EncodeError> {
    let mut writer = Writer::default();
    writer.array(values)?;
    Ok(writer.out.into())
}

#[derive(Default)]
struct Writer {
    out: String,
    /// The buffers found so far, if they are sent separately from the JSON.
    buffers: Option<Vec<Bytes>>,
    depth: usize,
}

impl Writer {
    fn value(&mut self, value: &Value) -> Result<(), EncodeError> {
        match value {
            Value::Null => self.out.push_str("null"),
            Value::Bool(true) => self.out.push_str("true"),
            Value::Bool(false) => self.out.push_str("false"),
            Value::Number(number) => write_number(*number, &mut self.out),
            Value::String(text) => write_string(text, &mut self.out),
            Value::Array(items) => self.array(items)?,
            Value::Object(entries) => self.object(entries)?,
            Value::Buffer(buffer) => self.buffer(buffer),
            Value::Undefined if self.buffers.is_some() => self.reference(UNDEFINED_REF),
            Value::Undefined => self.out.push_str("null"),
        }
        Ok(())
    }

    fn array<'a>(&mut self, items: impl IntoIterator<Item = &'a Value>) -> Result<(), EncodeError> {
        self.enter()?;
        self.out.push('[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.value(item)?;
        }
        self.out.push(']');
        self.depth -= 1;
        Ok(())
    }

    fn object(&mut self, entries: &[(String, Value)]) -> Result<(), EncodeError> {
        self.enter()?;
        self.out.push('{');
        let mut first = true;
        for (key, value) in entries {
            if self.buffers.is_some() && reads_as_reference(key, value) {
                return Err(EncodeError::RefCollision);
            }
            if self.buffers.is_none() && *value == Value::Undefined {
                continue;
            }
            if !std::mem::take(&mut first) {
                self.out.push(',');
            }
            write_string(key, &mut self.out);
            self.out.push(':');
            self.value(value)?;
        }
        self.out.push('}');
        self.depth -= 1;
        Ok(())
    }

    fn buffer(&mut self, buffer: &Bytes) {
        if let Some(buffers) = &mut self.buffers {
            let index = buffers.len();
            // A buffer that occurs twice is sent twice, as in the original.
            buffers.push(buffer.clone());
            self.reference(index as f64);
            return;
        }
        self.out.push_str(r#"{"buffer":{"type":"Buffer","data":["#);
        for (index, byte) in buffer.iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.out.push_str(&byte.to_string());
        }
        self.out.push_str(r#"]},"byteLength":"#);
        self.out.push_str(&buffer.len().to_string());
        self.out.push('}');
    }

    fn reference(&mut self, index: f64) {
        self.out.push('{');
        write_string(REF, &mut self.out);
        self.out.push(':');
        write_number(index, &mut self.out);
        self.out.push('}');
    }

    fn enter(&mut self) -> Result<(), EncodeError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(EncodeError::TooDeep { limit: MAX_DEPTH });
        }
        Ok(())
    }
}

/// Whether a member would read as a reference. NaN and infinities would not: they are written as
/// `null`.
fn reads_as_reference(key: &str, value: &Value) -> bool {
    key == REF && value.as_f64().is_some_and(f64::is_finite)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Value {
        [
            ("u", Value::Undefined),
            ("b", Bytes::from_static(&[1, 255]).into()),
            (
                "list",
                vec![Value::Undefined, Bytes::new().into(), Value::Null].into(),
            ),
        ]
        .into()
    }

    #[test]
    fn plain_json_is_what_stringify_writes() {
        let json = sample().to_json().unwrap();
        let buffer = |data, len| {
            format!(r#"{{"buffer":{{"type":"Buffer","data":[{data}]}},"byteLength":{len}}}"#)
        };
        let expected = format!(
            r#"{{"b":{},"list":[null,{},null]}}"#,
            buffer("1,255", 2),
            buffer("", 0)
        );
        assert_eq!(json, expected.as_str());
        assert_eq!(Value::Undefined.to_json().unwrap(), "null");
    }

    #[test]
    fn buffers_travel_beside_their_references() {
        let WithBuffers { json, buffers } = sample().to_json_with_buffers().unwrap();
        assert_eq!(
            json,
            r#"{"u":{"$$ref$$":-1},"b":{"$$ref$$":0},"list":[{"$$ref$$":-1},{"$$ref$$":1},null]}"#
        );
        assert_eq!(buffers, [&[1, 255][..], &[]]);
    }

    #[test]
    fn what_reads_as_a_reference_is_refused_only_where_references_are() {
        let colliding: Value = [("a", [("$$ref$$", 0.into())].into())].into();
        assert_eq!(
            colliding.to_json_with_buffers(),
            Err(EncodeError::RefCollision)
        );
        assert_eq!(colliding.to_json().unwrap(), r#"{"a":{"$$ref$$":0}}"#);
        for harmless in ["0".into(), Value::Null, f64::NAN.into(), Value::Undefined] {
            let value: Value = [("$$ref$$", harmless)].into();
            assert!(value.to_json_with_buffers().is_ok());
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth| (1..depth).fold(Value::Array(vec![]), |inner, _| vec![inner].into());
        assert!(nested(MAX_DEPTH).to_json().is_ok());
        let too_deep = EncodeError::TooDeep { limit: MAX_DEPTH };
        assert_eq!(nested(MAX_DEPTH + 1).to_json(), Err(too_deep));
    }
}
