//! The tags of an event: its recipient, the event it responds to, and the sender's discovery tags.

use crate::machine::{EventId, PublicKey};

use super::config::{Config, Encryption, Wraps};

const ENCRYPTION: &str = "support_encryption";
const EPHEMERAL: &str = "support_encryption_ephemeral";
const OVERSIZED: &str = "support_oversized_transfer";
const OPEN_STREAM: &str = "support_open_stream";

/// The discovery tags of one event: the features that its sender supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiscoveryTags {
    pub(crate) encryption: bool,
    pub(crate) ephemeral: bool,
    pub(crate) oversized: bool,
    pub(crate) streams: bool,
}

impl DiscoveryTags {
    /// Reads discovery tags; `None` if there are none. A tag that has a value is not one of them.
    pub(crate) fn read(tags: &[Vec<String>]) -> Option<Self> {
        let has = |name: &str| tags.iter().any(|tag| tag.len() == 1 && tag[0] == name);
        let discovery = Self {
            encryption: has(ENCRYPTION),
            ephemeral: has(EPHEMERAL),
            oversized: has(OVERSIZED),
            streams: has(OPEN_STREAM),
        };
        (discovery != Self::default()).then_some(discovery)
    }

    /// The discovery tags of this side.
    pub(crate) fn ours(config: &Config) -> Self {
        let encryption = config.encryption != Encryption::Disabled;
        Self {
            encryption,
            ephemeral: encryption && config.wraps != Wraps::Persistent,
            oversized: true,
            // Streams are passed on to the application, which may not know them.
            streams: false,
        }
    }

    fn write(self, tags: &mut Vec<Vec<String>>) {
        for (name, supported) in [
            (ENCRYPTION, self.encryption),
            (EPHEMERAL, self.ephemeral),
            (OVERSIZED, self.oversized),
            (OPEN_STREAM, self.streams),
        ] {
            if supported {
                tags.push(vec![name.to_owned()]);
            }
        }
    }
}

/// The tags of an event to `to` that responds to `answers`; with discovery tags if `discovery` is given.
pub(crate) fn compose(
    to: &PublicKey,
    answers: Option<EventId>,
    discovery: Option<&Config>,
) -> Vec<Vec<String>> {
    let mut tags = vec![vec!["p".to_owned(), to.to_hex()]];
    if let Some(event) = answers {
        tags.push(vec!["e".to_owned(), event.to_hex()]);
    }
    if let Some(config) = discovery {
        tags.extend(config.introduction.iter().cloned());
        DiscoveryTags::ours(config).write(&mut tags);
    }
    tags
}

/// The event that this one responds to: its first `e` tag.
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
        let discovery = |oversized, encryption, ephemeral| DiscoveryTags {
            encryption,
            ephemeral,
            oversized,
            streams: false,
        };
        let cases: &[(&[&[&str]], Option<DiscoveryTags>)] = &[
            (&[&["p", "x"]], None),
            (&[], None),
            (&[&["support_oversized_transfer", "yes"]], None),
            (
                &[&["support_oversized_transfer"]],
                Some(discovery(true, false, false)),
            ),
            (
                &[&["name", "x"], &["support_encryption"], &[]],
                Some(discovery(false, true, false)),
            ),
            (
                &[
                    &["support_encryption"],
                    &["support_encryption_ephemeral"],
                    &["support_oversized_transfer"],
                ],
                Some(discovery(true, true, true)),
            ),
            (
                &[&["support_open_stream"], &["support_oversized_transfer"]],
                Some(DiscoveryTags {
                    streams: true,
                    ..discovery(true, false, false)
                }),
            ),
        ];
        for (given, expected) in cases {
            assert_eq!(DiscoveryTags::read(&tags(given)), *expected, "{given:?}");
        }
    }

    #[test]
    fn what_is_composed_is_what_was_recorded() {
        let to = PublicKey::from_byte_array([7; 32]);
        let event = EventId::from_byte_array([9; 32]);
        let (p, e) = ("07".repeat(32), "09".repeat(32));
        let mut config = Config::default().with(|config| config.encryption = Encryption::Disabled);
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
