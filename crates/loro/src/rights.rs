//! Rights by the beginning of a document's name.
//!
//! ```
//! use breakbulk_loro::{Permissions, Rights};
//!
//! let rights: Rights = ["read:", "alice=create:notes/"].iter().map(|rule| rule.parse().unwrap()).collect();
//! # let _: &dyn Permissions = &rights;
//! ```

use std::str::FromStr;

use crate::permissions::{Peer, Permissions};

/// What a peer may do with a document. Each right includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Learn that it exists, read it and follow its changes.
    Read,
    /// Change it.
    Write,
    /// Create it.
    Create,
    /// Delete it.
    Delete,
}

/// Gives a right on all documents whose names begin like this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whom it is given to: a name that the connection was authenticated with. `None`: every peer.
    pub subject: Option<String>,
    /// The right.
    pub right: Right,
    /// The beginning of the documents' names; empty: all documents.
    pub prefix: String,
}

/// Peers may do what a rule says, and nothing else; to a peer without the right to read it, a document
/// looks like one that does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights(Vec<Rule>);

impl Rights {
    /// These rules.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self(rules)
    }

    /// Whether a peer with this authenticated name has the right on a document.
    pub fn allows(&self, subject: Option<&str>, right: Right, doc: &str) -> bool {
        self.0.iter().any(|rule| {
            rule.right >= right
                && doc.starts_with(&rule.prefix)
                && rule
                    .subject
                    .as_deref()
                    .is_none_or(|name| Some(name) == subject)
        })
    }

    fn peer(&self, peer: &Peer, right: Right, doc: &str) -> bool {
        self.allows(peer.subject.as_deref(), right, doc)
    }
}

impl FromIterator<Rule> for Rights {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        Self(rules.into_iter().collect())
    }
}

impl Permissions for Rights {
    fn see(&self, peer: &Peer, doc: &str) -> bool {
        self.peer(peer, Right::Read, doc)
    }

    fn change(&self, peer: &Peer, doc: &str) -> bool {
        self.peer(peer, Right::Write, doc)
    }

    fn create(&self, peer: &Peer, doc: &str) -> bool {
        self.peer(peer, Right::Create, doc)
    }

    fn delete(&self, peer: &Peer, doc: &str) -> bool {
        self.peer(peer, Right::Delete, doc)
    }
}

/// Why a rule cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// There is no colon.
    #[error(
        "{text:?} has no colon: write RIGHT:PREFIX, such as read:notes/ or alice=create:notes/"
    )]
    NoPrefix {
        /// The rule.
        text: String,
    },
    /// There is no such right.
    #[error("there is no right {name:?}: use read, write, create or delete")]
    UnknownRight {
        /// Its name.
        name: String,
    },
}

impl FromStr for Rule {
    type Err = RuleError;

    /// Reads `RIGHT:PREFIX` or `NAME=RIGHT:PREFIX`.
    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (head, prefix) = text.split_once(':').ok_or_else(|| RuleError::NoPrefix {
            text: text.to_owned(),
        })?;
        let (subject, name) = match head.rsplit_once('=') {
            Some((subject, name)) => (Some(subject.to_owned()), name),
            None => (None, head),
        };
        let right = match name {
            "read" => Right::Read,
            "write" => Right::Write,
            "create" => Right::Create,
            "delete" => Right::Delete,
            _ => {
                let name = name.to_owned();
                return Err(RuleError::UnknownRight { name });
            }
        };
        Ok(Self {
            subject,
            right,
            prefix: prefix.to_owned(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;

    // LORO-17
    #[test]
    fn a_right_holds_for_a_prefix_and_includes_those_before_it() {
        let rules = [
            "read:",
            "write:shared/",
            "alice=create:notes/",
            "a=b=delete:x:y=",
        ];
        let rights: Rights = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        use Right::{Create, Delete, Read, Write};
        let cases = [
            (None, "anything", Some(Read)),
            (None, "shared/a", Some(Write)),
            (None, "notes/a", Some(Read)),
            (Some("alice"), "notes/a", Some(Create)),
            (Some("alice"), "note", Some(Read)),
            (Some("bob"), "notes/a", Some(Read)),
            (Some("a=b"), "x:y=z", Some(Delete)),
        ];
        for (subject, doc, most) in cases {
            for right in [Read, Write, Create, Delete] {
                let allowed = rights.allows(subject, right, doc);
                assert_eq!(allowed, Some(right) <= most, "{subject:?} {doc} {right:?}");
            }
        }
        assert!(!Rights::default().allows(Some("alice"), Read, "notes/a"));
        for (text, told) in [
            ("read", "has no colon"),
            ("own:x", "there is no right \"own\""),
        ] {
            let error = text.parse::<Rule>().unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
