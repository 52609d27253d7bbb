//! Bytes as JSON values, which have one form in requests and another in responses. Either form is accepted in
//! both directions, as in the original.

use base64::Engine;
use base64::engine::Simd;
use base64::engine::general_purpose::PAD;
use serde_json::value::RawValue;

use super::style::{Style, Writer};
use crate::jsonrpc::string;

/// Why a value that is marked as bytes is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BytesError {
    /// The data is not a string.
    #[error("`{member}` must be a string of base64")]
    NoText {
        /// The member that should hold the data.
        member: &'static str,
    },
    /// The encoding is not base64.
    #[error("`encoding` must be \"base64\"")]
    Encoding,
    /// It is not canonical base64.
    #[error("`{member}` is no base64: {error}")]
    Base64 {
        /// The member.
        member: &'static str,
        /// What is wrong with it.
        error: base64::DecodeError,
    },
}

/// Bytes as an argument.
pub fn request_bytes(data: &[u8], style: Style) -> String {
    let mut out = Writer::new(style);
    out.open()
        .name("__tywrap_bytes__")
        .plain(true)
        .name("b64")
        .string(&encode(data))
        .close();
    out.finish()
}

/// Bytes as a result.
pub fn response_bytes(data: &[u8], style: Style) -> String {
    let mut out = Writer::new(style);
    out.open()
        .name("__type__")
        .string("bytes")
        .name("encoding")
        .string("base64");
    out.name("data").string(&encode(data)).close();
    out.finish()
}

/// The bytes of an argument; `None` if it is another value.
pub fn read_request_bytes(value: &RawValue) -> Option<Result<Vec<u8>, BytesError>> {
    let members: Bytes<'_> = serde_json::from_str(value.get()).ok()?;
    // With another `encoding` it is an object like any other, as in the original.
    let is_result = members.is_result() && members.is_base64();
    members
        .argument()
        .or_else(|| is_result.then(|| decode("data", members.data)))
}

/// The bytes of a result; `None` if it is another value.
pub fn read_response_bytes(value: &RawValue) -> Option<Result<Vec<u8>, BytesError>> {
    let members: Bytes<'_> = serde_json::from_str(value.get()).ok()?;
    match (members.is_result(), members.is_base64()) {
        (false, _) => members.argument(),
        (true, false) => Some(Err(BytesError::Encoding)),
        (true, true) => Some(decode("data", members.data)),
    }
}

crate::raw_members! {
    struct Bytes {
        mark: "__tywrap_bytes__",
        b64: "b64",
        kind: "__type__",
        encoding: "encoding",
        data: "data",
    }
}

impl Bytes<'_> {
    /// The bytes, if they have the form of requests.
    fn argument(&self) -> Option<Result<Vec<u8>, BytesError>> {
        (self.mark?.get() == "true").then(|| decode("b64", self.b64))
    }

    /// Whether this is marked as bytes in the form of responses.
    fn is_result(&self) -> bool {
        self.kind.and_then(string).as_deref() == Some("bytes")
    }

    fn is_base64(&self) -> bool {
        self.encoding.and_then(string).as_deref() == Some("base64")
    }
}

fn encode(data: &[u8]) -> String {
    Simd::standard(PAD).encode(data)
}

fn decode(member: &'static str, raw: Option<&RawValue>) -> Result<Vec<u8>, BytesError> {
    let text = raw.and_then(string).ok_or(BytesError::NoText { member })?;
    Simd::standard(PAD)
        .decode(&*text)
        .map_err(|error| BytesError::Base64 { member, error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn written_and_read() {
        let data = [0, 1, 2, 255];
        let argument = request_bytes(&data, Style::Compact);
        assert_eq!(argument, r#"{"__tywrap_bytes__":true,"b64":"AAEC/w=="}"#);
        assert_eq!(read_request_bytes(raw(&argument)), Some(Ok(data.to_vec())));
        let result = response_bytes(&data, Style::Python);
        assert_eq!(
            result,
            r#"{"__type__": "bytes", "encoding": "base64", "data": "AAEC/w=="}"#
        );
        assert_eq!(read_response_bytes(raw(&result)), Some(Ok(data.to_vec())));
        // Each form is read on either side.
        assert_eq!(read_request_bytes(raw(&result)), Some(Ok(data.to_vec())));
        assert_eq!(read_response_bytes(raw(&argument)), Some(Ok(data.to_vec())));
        assert_eq!(
            request_bytes(&[], Style::Ascii),
            r#"{"__tywrap_bytes__":true,"b64":""}"#
        );
    }

    #[test]
    fn other_values_are_no_bytes() {
        for other in [
            "[]",
            "null",
            "{}",
            r#""AAEC""#,
            r#"{"b64":"AAEC"}"#,
            r#"{"__tywrap_bytes__":false,"b64":"AAEC"}"#,
            r#"{"__tywrap_bytes__":1,"b64":"AAEC"}"#,
            r#"{"__type__":"set","data":[]}"#,
            r#"{"__type__":7}"#,
        ] {
            assert_eq!(read_request_bytes(raw(other)), None, "{other}");
            assert_eq!(read_response_bytes(raw(other)), None, "{other}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, member) in [
            (r#"{"__tywrap_bytes__":true}"#, "b64"),
            (r#"{"__tywrap_bytes__":true,"b64":[0]}"#, "b64"),
            (
                r#"{"__tywrap_bytes__":true,"b64":"AAEC","b64":null}"#,
                "b64",
            ),
        ] {
            assert_eq!(
                read_request_bytes(raw(text)),
                Some(Err(BytesError::NoText { member })),
                "{text}"
            );
        }
        for bad in [
            "A",
            "AA",
            "AAE",
            "AAEC/w=",
            "AB==",
            "AA EC",
            "AAEC/w==AAEC",
            "_-__",
            "é",
        ] {
            let text = format!(r#"{{"__tywrap_bytes__":true,"b64":"{bad}"}}"#);
            let read = read_request_bytes(raw(&text)).unwrap();
            assert!(
                matches!(read, Err(BytesError::Base64 { member: "b64", .. })),
                "{bad}: {read:?}"
            );
        }
        for (text, error) in [
            (
                r#"{"__type__":"bytes","data":"AAEC"}"#,
                BytesError::Encoding,
            ),
            (
                r#"{"__type__":"bytes","encoding":"hex","data":"00"}"#,
                BytesError::Encoding,
            ),
            (
                r#"{"__type__":"bytes","encoding":"base64"}"#,
                BytesError::NoText { member: "data" },
            ),
        ] {
            assert_eq!(
                read_response_bytes(raw(text)),
                Some(Err(error.clone())),
                "{text}"
            );
            let argument = (error != BytesError::Encoding).then_some(Err(error));
            assert_eq!(read_request_bytes(raw(text)), argument, "{text}");
        }
    }
}
