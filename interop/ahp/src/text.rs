//! Texts that a seed reproduces, and the digests by which they are compared.

use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::random::Random;

/// Characters that JSON escapes, or that UTF-8 writes in two to four bytes.
const SPECIAL: [&str; 8] = ["\"", "\\", "\n", "\u{1}", "é", "漢", "🚢", "</"];
const PLAIN: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ.0123456789";

/// A text of exactly `size` bytes that does not repeat itself, with special characters in between.
pub fn text(seed: u64, size: usize) -> String {
    let mut random = Random::new(seed);
    let mut text = String::with_capacity(size);
    while text.len() < size {
        let mut bits = random.bits();
        if bits >> 61 == 0 {
            let special = SPECIAL[(bits & 7) as usize];
            if text.len() + special.len() <= size {
                text.push_str(special);
            }
        }
        for _ in 0..10.min(size - text.len()) {
            text.push(char::from(PLAIN[(bits & 63) as usize]));
            bits >>= 6;
        }
    }
    text
}

/// The SHA-256 of texts one after the other, in hex.
pub fn digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut digest = Digest::default();
    for text in texts {
        digest.add(text);
    }
    digest.hex()
}

/// A SHA-256 of texts that are added one at a time.
#[derive(Clone, Default)]
pub struct Digest(Sha256);

impl Digest {
    /// Adds one more text.
    pub fn add(&mut self, text: &str) {
        self.0.update(text.as_bytes());
    }

    /// The digest of all added texts, in hex.
    pub fn hex(self) -> String {
        let bytes = self.0.finalize();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// An action that the real client knows, with the text in it.
pub fn action(title: &str) -> serde_json::Result<Box<RawValue>> {
    let title = serde_json::to_string(title)?;
    RawValue::from_string(format!(
        r#"{{"type":"session/titleChanged","title":{title}}}"#
    ))
}

/// The text in an action that [`action`] made.
pub fn title(action: &str) -> Option<String> {
    let action: serde_json::Map<String, serde_json::Value> = serde_json::from_str(action).ok()?;
    match action.into_iter().find(|(name, _)| name == "title")?.1 {
        serde_json::Value::String(title) => Some(title),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_their_size_and_come_back_from_their_seed() {
        for size in [0, 1, 9, 10, 11, 1000, 65_537] {
            assert_eq!(text(3, size).len(), size);
            assert_eq!(text(3, size), text(3, size));
        }
        assert_ne!(text(3, 100), text(4, 100));
        assert!(
            SPECIAL
                .iter()
                .all(|special| text(1, 100_000).contains(special))
        );
    }

    #[test]
    fn a_text_survives_its_action() {
        let long = text(7, 10_000);
        let action = action(&long).unwrap();
        assert_eq!(title(action.get()).as_deref(), Some(&*long));
        assert_eq!(
            digest(["a", "bc"]),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
