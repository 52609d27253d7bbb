//! UTF-8 text in shared bytes.

use std::fmt;

use bytes::Bytes;

/// UTF-8 text that shares its bytes with the message that it came in.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Text(Bytes);

/// The bytes are not UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("text is not valid UTF-8")]
pub struct NotUtf8;

impl Text {
    /// Text from a static string.
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// Text from bytes, which must be UTF-8.
    pub fn from_utf8(bytes: Bytes) -> Result<Self, NotUtf8> {
        match simdutf8::basic::from_utf8(&bytes) {
            Ok(_) => Ok(Self(bytes)),
            Err(_) => Err(NotUtf8),
        }
    }

    /// Text from bytes that were checked to be UTF-8 already.
    pub(super) fn from_checked(bytes: Bytes) -> Self {
        debug_assert!(simdutf8::basic::from_utf8(&bytes).is_ok());
        Self(bytes)
    }

    /// The text. Costs a UTF-8 check, which safe Rust cannot avoid; [`as_bytes`](Self::as_bytes) is
    /// free.
    pub fn as_str(&self) -> &str {
        simdutf8::basic::from_utf8(&self.0).unwrap_or_default()
    }

    /// The text's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The shared bytes.
    pub fn shared(&self) -> &Bytes {
        &self.0
    }

    /// The shared bytes, owned.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
