//! Replaces the references in an object-with-buffers by the buffers.

use bytes::Bytes;

use super::args::ReadError;
use super::message::WithBuffers;
use super::value::Value;

/// The key that marks an object as a reference.
pub(super) const REF: &str = "$$ref$$";

/// The reference to `undefined`.
pub(super) const UNDEFINED_REF: f64 = -1.0;

impl WithBuffers {
    /// Reads the value with its buffers, which share the message's memory.
    pub fn read(&self) -> Result<Value, ReadError> {
        let mut value = Value::parse(self.json.as_str())?;
        restore(&mut value, &self.buffers)?;
        Ok(value)
    }
}

/// Replaces references recursively; `Value::parse` limits the depth.
fn restore(value: &mut Value, buffers: &[Bytes]) -> Result<(), ReadError> {
    if let Some(index) = value.get(REF).and_then(Value::as_f64) {
        *value = referenced(index, buffers)?;
        return Ok(());
    }
    match value {
        Value::Array(items) => items.iter_mut().try_for_each(|item| restore(item, buffers)),
        Value::Object(entries) => entries
            .iter_mut()
            .try_for_each(|(_, value)| restore(value, buffers)),
        _ => Ok(()),
    }
}

/// Looks up a reference. The original turns an invalid one into `undefined`, which would lose data
/// silently; here it is an error.
fn referenced(index: f64, buffers: &[Bytes]) -> Result<Value, ReadError> {
    if index == UNDEFINED_REF {
        return Ok(Value::Undefined);
    }
    let whole = index >= 0.0 && index.fract() == 0.0;
    let buffer = whole.then(|| buffers.get(index as usize)).flatten();
    match buffer {
        Some(buffer) => Ok(Value::Buffer(buffer.clone())),
        None => Err(ReadError::BadRef {
            index: index.to_string(),
            buffers: buffers.len(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str, buffers: &[&'static [u8]]) -> Result<Value, ReadError> {
        let buffers = buffers.iter().map(|buffer| Bytes::from_static(buffer));
        let json = json.into();
        let buffers = buffers.collect();
        WithBuffers { json, buffers }.read()
    }

    #[test]
    fn only_numbers_are_references() {
        let a = || Value::from(Bytes::from_static(b"a"));
        let table = [
            (r#"{"$$ref$$":0}"#, a()),
            (r#"{"$$ref$$":-0}"#, a()),
            (r#"{"$$ref$$":-1}"#, Value::Undefined),
            (
                r#"[{"$$ref$$":0},{"other":1,"$$ref$$":0}]"#,
                vec![a(), a()].into(),
            ),
            (r#"{"$$ref$$":"0"}"#, [("$$ref$$", "0".into())].into()),
            (r#"{"$$ref$$":{"$$ref$$":0}}"#, [("$$ref$$", a())].into()),
        ];
        for (json, expected) in table {
            assert_eq!(read(json, &[b"a"]), Ok(expected), "{json}");
        }
    }

    #[test]
    fn references_to_nothing_are_errors() {
        for index in ["1", "-2", "0.5", "1e300", "-1e999"] {
            let json = format!(r#"{{"x":[{{"$$ref$$":{index}}}]}}"#);
            let error = read(&json, &[b"a"]);
            assert!(
                matches!(error, Err(ReadError::BadRef { buffers: 1, .. })),
                "{json}"
            );
        }
    }
}
