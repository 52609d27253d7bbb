//! Bearer tokens.

use std::fmt;
use std::hint::black_box;

/// A bearer token. It is never printed, and compared in constant time.
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer(String);

impl Bearer {
    /// A token; it must be visible ASCII to travel in a header.
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    /// The value of the `Authorization` header.
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether the value of an `Authorization` header carries this token.
    pub fn admits(&self, header: &[u8]) -> bool {
        // The scheme is not secret and not case-sensitive.
        let Some((scheme, token)) = header.split_at_checked(7) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"Bearer ") && same(token.trim_ascii(), self.0.as_bytes())
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(…)")
    }
}

/// Several tokens, each of which has a holder. They may change while a listener runs.
pub trait Tokens: fmt::Debug + Send + Sync {
    /// The name of the holder whose token the value of an `Authorization` header carries; `None` if there
    /// is none.
    /// Called for every request, on the async runtime: it must be quick.
    fn holder(&self, header: &[u8]) -> Option<String>;
}

/// Compares every byte of `given`, however early it differs, so that the time depends only on its
/// length, which the peer knows.
fn same(given: &[u8], token: &[u8]) -> bool {
    let mut differs = u8::from(given.len() != token.len() || token.is_empty());
    for (index, byte) in given.iter().enumerate() {
        let expected = token.get(index % token.len().max(1)).copied().unwrap_or(0);
        differs = black_box(differs | (byte ^ expected));
    }
    differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_admitted_only_whole() {
        let bearer = Bearer::new("s3cret");
        for (header, admitted) in [
            ("Bearer s3cret", true),
            ("bearer s3cret", true),
            ("Bearer  s3cret ", true),
            ("Bearer s3cre", false),
            ("Bearer s3crets", false),
            ("Bearer s3crets3cret", false),
            ("Bearer S3cret", false),
            ("Bearer ", false),
            ("Basic s3cret", false),
            ("s3cret", false),
            ("", false),
        ] {
            assert_eq!(bearer.admits(header.as_bytes()), admitted, "{header:?}");
        }
        assert!(
            !Bearer::new("").admits(b"Bearer "),
            "no token admits nobody"
        );
        assert_eq!(format!("{bearer:?}"), "Bearer(…)");
    }
}
