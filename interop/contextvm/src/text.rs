//! Texts that this project and the scripts (`texts.mjs`) generate alike, and the digests that compare them.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// What a text is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// Characters of one byte, none of which JSON escapes.
    Ascii,
    /// Characters of three and four bytes.
    Cjk,
    /// Backslashes: JSON escapes each, and an enclosing JSON string escapes the escapes again.
    Backslashes,
}

impl Text {
    /// All kinds of texts.
    pub const ALL: [Self; 3] = [Self::Ascii, Self::Cjk, Self::Backslashes];

    /// The kind's name in the commands of a peer.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ascii => "ascii",
            Self::Cjk => "cjk",
            Self::Backslashes => "backslashes",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|text| text.name() == name)
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Ascii => "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789 ",
            Self::Cjk => "运输大消息🚢請分成小塊🧊",
            Self::Backslashes => r"\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\",
        }
    }

    /// A text of at least this many bytes: numbered units, so that no two parts of it are equal.
    pub fn make(self, size: usize) -> String {
        let unit = self.unit();
        let count = size.div_ceil(7 + unit.len());
        let mut text = String::with_capacity(count * (7 + unit.len()));
        for number in 0..count {
            text.push_str(&format!("{number:07}{unit}"));
        }
        text
    }
}

/// A text's size and digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its length in bytes.
    pub bytes: usize,
    /// The SHA-256 of the bytes, in hex.
    pub sha256: String,
}

impl About {
    /// Size and digest of this text.
    pub fn of(text: &str) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        Self {
            bytes: text.len(),
            sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// The JSON in which a peer reports a text.
    pub fn to_json(&self) -> Value {
        json!({"bytes": self.bytes, "sha256": self.sha256})
    }

    /// Reads what a peer reported.
    pub fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            bytes: usize::try_from(value["bytes"].as_u64()?).ok()?,
            sha256: value["sha256"].as_str()?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digests of the texts that `texts.mjs` generates from the same arguments.
    #[test]
    fn texts_are_those_of_the_other_side() {
        for (text, bytes, sha256) in [
            (
                Text::Ascii,
                1008,
                "7e00ce35f593897e4a037ec4151cc722289a2dddfb5ec940efad83d43f6e246b",
            ),
            (
                Text::Cjk,
                1035,
                "58f5235f28e771aa036f12ee48a989f3036e91cc6d517dbfa5f1a408311f0a76",
            ),
            (
                Text::Backslashes,
                1024,
                "147eeb1c642c84113129cb4fb61843d253b1bcceec143cb1e01f6e50949b948f",
            ),
        ] {
            let about = About::of(&text.make(1000));
            assert_eq!(
                (about.bytes, about.sha256.as_str()),
                (bytes, sha256),
                "{text:?}"
            );
        }
    }
}
