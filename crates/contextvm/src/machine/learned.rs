//! What is known of a peer from earlier days.

use std::fmt;
use std::str::FromStr;

use crate::machine::PublicKey;

use super::tags::Hello;

/// What a peer said it can do. Its text form can be kept and read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// It puts chunks together.
    pub oversized: bool,
    /// It opens gift wraps.
    pub encryption: bool,
    /// It opens those that relays forget.
    pub ephemeral: bool,
}

impl Learned {
    pub(crate) fn from_hello(hello: Hello) -> Self {
        Self {
            oversized: hello.oversized,
            encryption: hello.encryption,
            ephemeral: hello.ephemeral,
        }
    }

    /// What is known now of a peer that said more.
    pub(crate) fn and(self, more: Self) -> Self {
        Self {
            oversized: self.oversized || more.oversized,
            encryption: self.encryption || more.encryption,
            ephemeral: self.ephemeral || more.ephemeral,
        }
    }
}

const WORDS: [&str; 3] = ["oversized", "encryption", "ephemeral"];

impl fmt::Display for Learned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = [self.oversized, self.encryption, self.ephemeral];
        let words = WORDS.iter().zip(said).filter(|(_, said)| *said);
        let words: Vec<&str> = words.map(|(word, _)| *word).collect();
        f.write_str(if words.is_empty() { "nothing" } else { "" })?;
        f.write_str(&words.join(","))
    }
}

/// A text that says nothing of a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of nothing, oversized, encryption, ephemeral")]
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
                other => return Err(UnknownWord(other.to_owned())),
            }
        }
        Ok(learned)
    }
}

/// Where what was learned is kept. Both calls happen on the driver's task: they should not block.
pub trait Memory: Send + Sync + 'static {
    /// What is known of this peer.
    fn recall(&self, peer: &PublicKey) -> Option<Learned>;

    /// Something was learned of it.
    fn keep(&self, peer: &PublicKey, learned: Learned);
}

/// Keeps nothing beyond the life of the endpoint.
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
        for (text, oversized, encryption, ephemeral) in [
            ("nothing", false, false, false),
            ("oversized", true, false, false),
            ("oversized,encryption,ephemeral", true, true, true),
        ] {
            let learned = Learned {
                oversized,
                encryption,
                ephemeral,
            };
            assert_eq!(learned.to_string(), text);
            assert_eq!(text.parse(), Ok(learned));
        }
        assert!("oversised".parse::<Learned>().is_err());
    }
}
