//! The names of sessions, the same in log lines, records and on the admin port.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use breakbulk_net::fresh_seed;

/// Letters and digits that are not mistaken for each other when they are read aloud.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// How many characters of a name are those of the process: 30 bits.
const PROCESS: usize = 6;

/// The name of a session, as `7kq3vd-12`: characters that this process drew at random when it started, and a
/// number. So a name is unique in a process, and another process will hardly use it too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionId {
    text: Box<str>,
    number: u64,
}

impl SessionId {
    /// A name that was not used before.
    pub(crate) fn next() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self {
            text: format!("{}-{number}", process()).into(),
            number,
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its number in this process: later sessions have larger ones.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The part of this process.
fn process() -> &'static str {
    static PART: OnceLock<String> = OnceLock::new();
    PART.get_or_init(|| {
        let seed = fresh_seed();
        let digits = seed[..PROCESS].iter();
        digits
            .map(|byte| char::from(DIGITS[usize::from(byte % 32)]))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_differ() {
        let (one, other) = (SessionId::next(), SessionId::next());
        assert_ne!(one, other);
        assert!(one.number() < other.number());
        let (part, number) = one.as_str().split_once('-').unwrap_or_default();
        assert_eq!((part.len(), number), (6, &*one.number().to_string()));
        assert!(other.as_str().starts_with(part));
    }
}
