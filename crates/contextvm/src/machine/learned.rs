//! The features that a peer announced, and a store for them across connections.

use std::fmt;
use std::str::FromStr;

use crate::machine::PublicKey;

use super::tags::DiscoveryTags;

/// The features that a peer announced. `Display` and `FromStr` give a text form for storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// The peer assembles chunked messages (CEP-22).
    pub oversized: bool,
    /// The peer decrypts gift wraps.
    pub encryption: bool,
    /// The peer decrypts ephemeral gift wraps (kind 21059).
    pub ephemeral: bool,
    /// A server that may open a stream (CEP-41) for any request with a progress token.
    pub streams: bool,
}

impl Learned {
    pub(crate) fn from_tags(hello: DiscoveryTags) -> Self {
        Self {
            oversized: hello.oversized,
            encryption: hello.encryption,
            ephemeral: hello.ephemeral,
            streams: hello.streams,
        }
    }

    /// The union of both.
    pub(crate) fn and(self, more: Self) -> Self {
        Self {
            oversized: self.oversized || more.oversized,
            encryption: self.encryption || more.encryption,
            ephemeral: self.ephemeral || more.ephemeral,
            streams: self.streams || more.streams,
        }
    }
}

const WORDS: [&str; 4] = ["oversized", "encryption", "ephemeral", "streams"];

impl fmt::Display for Learned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let supported = [
            self.oversized,
            self.encryption,
            self.ephemeral,
            self.streams,
        ];
        let words = WORDS.iter().zip(supported).filter(|(_, yes)| *yes);
        let words: Vec<&str> = words.map(|(word, _)| *word).collect();
        f.write_str(if words.is_empty() { "nothing" } else { "" })?;
        f.write_str(&words.join(","))
    }
}

/// A text with an unknown feature name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of nothing, oversized, encryption, ephemeral, streams")]
pub struct UnknownWord(String);

impl FromStr for Learned {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let mut learned = Self::default();
        for word in text.split(',') {
            match word {
                "nothing" => {}
                "oversized" => learned.oversized = true,
                "encryption" => learned.encryption = true,
                "ephemeral" => learned.ephemeral = true,
                "streams" => learned.streams = true,
                other => return Err(UnknownWord(other.to_owned())),
            }
        }
        Ok(learned)
    }
}

/// A store of what was learned about peers. Both methods are called on the endpoint's task: they
/// should not block.
pub trait Memory: Send + Sync + 'static {
    /// What is stored about this peer.
    fn recall(&self, peer: &PublicKey) -> Option<Learned>;

    /// Stores what is known about this peer now.
    fn keep(&self, peer: &PublicKey, learned: Learned);
}

/// A [`Memory`] that stores nothing: each endpoint learns anew.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forgetful;

impl Memory for Forgetful {
    fn recall(&self, _: &PublicKey) -> Option<Learned> {
        None
    }

    fn keep(&self, _: &PublicKey, _: Learned) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learned_survives_as_text() {
        for (text, oversized, encryption, ephemeral, streams) in [
            ("nothing", false, false, false, false),
            ("oversized", true, false, false, false),
            ("oversized,encryption,ephemeral", true, true, true, false),
            ("oversized,streams", true, false, false, true),
        ] {
            let learned = Learned {
                oversized,
                encryption,
                ephemeral,
                streams,
            };
            assert_eq!(learned.to_string(), text);
            assert_eq!(text.parse(), Ok(learned));
        }
        assert!("oversised".parse::<Learned>().is_err());
    }
}
