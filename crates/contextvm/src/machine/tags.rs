//! The tags of an event: for whom, to what it answers, and what its sender can do.

use crate::machine::{EventId, PublicKey};

use super::config::{Config, Encryption, Wraps};

const ENCRYPTION: &str = "support_encryption";
const EPHEMERAL: &str = "support_encryption_ephemeral";
const OVERSIZED: &str = "support_oversized_transfer";

/// What the tags of one event say of its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) encryption: bool,
    pub(crate) ephemeral: bool,
    pub(crate) oversized: bool,
}

impl Hello {
    /// Reads discovery tags; `None` if there is none. A tag with a value is another tag.
    pub(crate) fn read(tags: &[Vec<String>]) -> Option<Self> {
        let has = |name: &str| tags.iter().any(|tag| tag.len() == 1 && tag[0] == name);
        let hello = Self {
            encryption: has(ENCRYPTION),
            ephemeral: has(EPHEMERAL),
            oversized: has(OVERSIZED),
        };
        (hello != Self::default()).then_some(hello)
    }

    /// What we can do.
    pub(crate) fn ours(config: &Config) -> Self {
        let encryption = config.encryption != Encryption::Disabled;
        Self {
            encryption,
            ephemeral: encryption && config.wraps != Wraps::Persistent,
            oversized: true,
        }
    }

    fn write(self, tags: &mut Vec<Vec<String>>) {
        for (name, said) in [
            (ENCRYPTION, self.encryption),
            (EPHEMERAL, self.ephemeral),
            (OVERSIZED, self.oversized),
        ] {
            if said {
                tags.push(vec![name.to_owned()]);
            }
        }
    }
}

/// The tags of an event to `to`, in answer to `answers`; `hello` where we introduce ourselves.
pub(crate) fn compose(
    to: &PublicKey,
    answers: Option<EventId>,
    hello: Option<&Config>,
) -> Vec<Vec<String>> {
    let mut tags = vec![vec!["p".to_owned(), to.to_hex()]];
    if let Some(event) = answers {
        tags.push(vec!["e".to_owned(), event.to_hex()]);
    }
    if let Some(config) = hello {
        tags.extend(config.introduction.iter().cloned());
        Hello::ours(config).write(&mut tags);
    }
    tags
}

/// The event that this one answers.
pub(crate) fn answered(tags: &[Vec<String>]) -> Option<EventId> {
    let tag = tags
        .iter()
        .find(|tag| tag.first().is_some_and(|name| name == "e"))?;
    EventId::from_hex(tag.get(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(names: &[&[&str]]) -> Vec<Vec<String>> {
        let tag = |tag: &&[&str]| tag.iter().map(|part| (*part).to_owned()).collect();
        names.iter().map(tag).collect()
    }

    #[test]
    fn only_tags_of_length_one_say_what_a_peer_can_do() {
        let hello = |oversized, encryption, ephemeral| Hello {
            encryption,
            ephemeral,
            oversized,
        };
        let cases: &[(&[&[&str]], Option<Hello>)] = &[
            (&[&["p", "x"]], None),
            (&[], None),
            (&[&["support_oversized_transfer", "yes"]], None),
            (
                &[&["support_oversized_transfer"]],
                Some(hello(true, false, false)),
            ),
            (
                &[&["name", "x"], &["support_encryption"], &[]],
                Some(hello(false, true, false)),
            ),
            (
                &[
                    &["support_encryption"],
                    &["support_encryption_ephemeral"],
                    &["support_oversized_transfer"],
                ],
                Some(hello(true, true, true)),
            ),
        ];
        for (given, expected) in cases {
            assert_eq!(Hello::read(&tags(given)), *expected, "{given:?}");
        }
    }

    #[test]
    fn what_is_composed_is_what_was_recorded() {
        let to = PublicKey::from_byte_array([7; 32]);
        let event = EventId::from_byte_array([9; 32]);
        let (p, e) = ("07".repeat(32), "09".repeat(32));
        let mut config = Config {
            encryption: Encryption::Disabled,
            ..Config::default()
        };
        assert_eq!(compose(&to, None, None), tags(&[&["p", &p]]));
        assert_eq!(
            compose(&to, Some(event), Some(&config)),
            tags(&[&["p", &p], &["e", &e], &["support_oversized_transfer"]])
        );
        assert_eq!(answered(&compose(&to, Some(event), None)), Some(event));
        assert_eq!(answered(&tags(&[&["e", "nonsense"]])), None);
        assert_eq!(answered(&tags(&[&["e"], &[]])), None);
        config.encryption = Encryption::Optional;
        config.introduction = tags(&[&["name", "us"]]);
        assert_eq!(
            compose(&to, None, Some(&config)),
            tags(&[
                &["p", &p],
                &["name", "us"],
                &["support_encryption"],
                &["support_encryption_ephemeral"],
                &["support_oversized_transfer"]
            ])
        );
    }
}
