//! Values of a body that are repeated in headers: how they are written, and whether they agree.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// What stands before and after a value that no header can hold as it is.
const BEFORE: &str = "=?base64?";
const AFTER: &str = "?=";

/// A value as a header has it.
pub(super) fn encode(value: &str) -> String {
    let is_plain = value
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
        && value.trim() == value
        && !(value.starts_with(BEFORE) && value.ends_with(AFTER));
    match is_plain {
        true => value.to_owned(),
        false => format!("{BEFORE}{}{AFTER}", BASE64_STANDARD.encode(value)),
    }
}

/// The value in a header; `None` if it is not written as it must be.
pub(super) fn decode(header: &str) -> Option<String> {
    let header = header.trim_matches([' ', '\t']);
    let inner = header
        .strip_prefix(BEFORE)
        .and_then(|rest| rest.strip_suffix(AFTER));
    match inner {
        Some(inner) => String::from_utf8(BASE64_STANDARD.decode(inner).ok()?).ok(),
        None => Some(header.to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    // MCPH-3
    #[test]
    fn values_travel_in_headers_as_the_specification_writes_them() {
        for (value, header) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("a b", "a b"),
            ("", ""),
        ] {
            assert_eq!(encode(value), header);
            assert_eq!(decode(header).as_deref(), Some(value));
        }
        for wrong in ["=?base64?*?=", "=?base64?/w==?="] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
        // The marks are written in small letters; anything else is a plain value.
        assert_eq!(
            decode("=?BASE64?eA==?=").as_deref(),
            Some("=?BASE64?eA==?=")
        );
    }
}
