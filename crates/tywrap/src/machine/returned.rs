//! The result of a call.

use std::collections::BTreeMap;
use std::ops::Range;

use breakbulk_message::tywrap::{BytesError, read_response_bytes};
use bytes::Bytes;
use serde_json::value::RawValue;

/// A result, as the JSON that the bridge wrote. Values that JSON cannot express are objects with a
/// `__type__` (bytes) or a `__tywrap__` (arrays, tables); of these only bytes are decoded here.
#[derive(Clone, PartialEq, Eq)]
pub struct Returned(Bytes);

impl Returned {
    /// Makes a result from its part of a message.
    pub fn new(message: &Bytes, result: Range<usize>) -> Self {
        Self(message.slice(result))
    }

    /// The JSON.
    pub fn json(&self) -> &str {
        // It was checked to be UTF-8 when it was parsed.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The JSON, sharing the memory of the answer.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// The result decoded as bytes; `None` if it is another value.
    pub fn bytes(&self) -> Option<Result<Vec<u8>, BytesError>> {
        read_response_bytes(serde_json::from_str(self.json()).ok()?)
    }

    /// What a value that JSON cannot express is: `bytes`, `dataframe`, `ndarray`, ….
    pub fn type_name(&self) -> Option<String> {
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(self.json()).ok()?;
        let mark = members.get("__tywrap__").or(members.get("__type__"))?;
        serde_json::from_str(mark.get()).ok()
    }
}

impl std::fmt::Debug for Returned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let json = self.json();
        let shown = &json[..json.floor_char_boundary(200)];
        f.debug_tuple("Returned").field(&shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_handed_on_as_they_are() {
        let text = r#"{"__tywrap__":"dataframe","encoding":"arrow","b64":"QVJST1c=","metadata":{"a":1.50}}"#;
        let message = Bytes::from(format!("  {text} "));
        let returned = Returned::new(&message, 2..2 + text.len());
        assert_eq!(returned.json(), text);
        assert_eq!(returned.type_name().as_deref(), Some("dataframe"));
        assert_eq!(returned.bytes(), None);
        let bytes = br#"{"__type__":"bytes","encoding":"base64","data":"AAH/"}"#;
        let bytes = Returned(Bytes::from_static(bytes));
        assert_eq!(bytes.bytes(), Some(Ok(vec![0, 1, 255])));
        assert_eq!(bytes.type_name().as_deref(), Some("bytes"));
        for plain in ["1", "[]", "null", r#"{"type":"x"}"#] {
            let plain = Returned(Bytes::from_static(plain.as_bytes()));
            assert_eq!((plain.type_name(), plain.bytes()), (None, None));
        }
    }
}
