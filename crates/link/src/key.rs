//! The key of a transfer.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Keys up to this length need no allocation: enough for a 32-digit id, a UUID and most tokens.
const INLINE: usize = 46;

/// The name of a transfer, as bytes in the form of its wire.
///
/// Wires limit its length; the link only compares it.
#[derive(Clone)]
pub struct Key(Repr);

#[derive(Clone)]
enum Repr {
    Inline {
        len: u8,
        bytes: [u8; INLINE],
    },
    /// Shared between clones, so that a long key is stored once.
    Heap(Arc<[u8]>),
}

impl Key {
    /// A key of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        if bytes.len() > INLINE {
            return Self(Repr::Heap(bytes.into()));
        }
        let mut inline = [0; INLINE];
        inline[..bytes.len()].copy_from_slice(bytes);
        Self(Repr::Inline {
            len: bytes.len() as u8,
            bytes: inline,
        })
    }

    /// The bytes it was made of.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(bytes) => bytes,
        }
    }

    /// The bytes that it has allocated, in addition to its fixed size.
    pub(crate) fn allocated(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            // With the two counters of the `Arc`.
            Repr::Heap(bytes) => bytes.len() + 2 * size_of::<usize>(),
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

/// Printable text as it is, other bytes in hex, for logs.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.as_bytes()) {
            Ok(text) if text.chars().all(|c| !c.is_control()) => f.write_str(text),
            _ => self
                .as_bytes()
                .iter()
                .try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_keys_compare_by_their_bytes() {
        for len in [0, 1, INLINE, INLINE + 1, 128] {
            let bytes = vec![b'k'; len];
            let key = Key::new(&bytes);
            assert_eq!(key.as_bytes(), bytes);
            assert_eq!(key, key.clone());
            assert_eq!(key.allocated(), if len > INLINE { len + 16 } else { 0 });
        }
        assert_eq!(Key::new(&[1, 2]).to_string(), "0102");
        assert_eq!(Key::new(b"g1").to_string(), "g1");
    }
}
