//! The name of one member of a fleet: the first bytes of the names of all its sessions.

use std::fmt;

use breakbulk_message::tunnel::SessionId;

/// How many bytes at the beginning of a session's name are the member's name.
pub(crate) const MEMBER_BYTES: usize = 8;

/// How many digits a member has in the names of sessions over HTTP.
const DIGITS: usize = 2 * MEMBER_BYTES;

/// One gateway process, for as long as it runs: a restart makes another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Member(pub(crate) [u8; MEMBER_BYTES]);

impl Member {
    /// The one that made a session.
    pub(crate) fn of(session: &SessionId) -> Self {
        Self(std::array::from_fn(|at| session.0[at]))
    }

    /// The one that made a session over HTTP, if its name has one: 16 hexadecimal digits, and at least as
    /// many more that nobody can guess.
    #[cfg(feature = "http")]
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let name = name.as_bytes();
        if name.len() < 2 * DIGITS || name.iter().any(|byte| digit(*byte).is_none()) {
            return None;
        }
        let mut bytes = [0; MEMBER_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(name.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_read_from_the_names_of_its_sessions_alone() {
        let member = Member([0, 1, 0x9f, 0xa0, 0xff, 5, 6, 7]);
        assert_eq!(member.to_string(), "00019fa0ff050607");
        let random = "0123456789abcdef0123456789abcdef";
        for (name, expected) in [
            (format!("{member}{random}"), Some(member)),
            (format!("{member}"), None),
            (format!("{member}{}", &random[..16]), Some(member)),
            (format!("{member}{}", random.to_uppercase()), None),
            (format!("{member}.>{random}"), None),
            (String::new(), None),
            ("ä".repeat(40), None),
        ] {
            assert_eq!(Member::of_name(&name), expected, "{name}");
        }
    }
}
