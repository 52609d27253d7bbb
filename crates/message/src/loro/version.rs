//! Version vectors: how many operations of each peer are known.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// For each peer, how many of its operations are known.
///
/// The entries keep their order, since the original implementations write them in the order of a hash
/// table; two vectors with the same entries in any order are equal.
///
/// ```
/// use breakbulk_message::loro::VersionVector;
///
/// let version: VersionVector = [(2, 300), (1, 2)].into_iter().collect();
/// assert_eq!(version.encode(), [2, 2, 0xd8, 4, 1, 4]);
/// assert_eq!(VersionVector::decode(&[2, 1, 4, 2, 0xd8, 4])?, version);
/// # Ok::<(), breakbulk_message::loro::VersionVectorError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct VersionVector {
    /// Each peer occurs once.
    entries: Vec<(u64, i32)>,
}

impl VersionVector {
    /// An empty vector.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes `varint count, (varint peer, zigzag varint counter)*`.
    ///
    /// Bytes after the last entry are ignored, as in the original; if a peer occurs twice, the last
    /// counter is used.
    pub fn decode(bytes: &[u8]) -> Result<Self, VersionVectorError> {
        let mut input = Varints { bytes, at: 0 };
        let declared = input.next(u64::BITS)?;
        let mut entries = Vec::new();
        for _ in 0..declared {
            let peer = input.next(u64::BITS)?;
            let counter = unzigzag(input.next(u32::BITS)?);
            entries.push((peer, counter));
        }
        Ok(Self::of(entries))
    }

    /// Encodes the vector for [`VersionVector::decode`].
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + 4 * self.entries.len());
        write_varint(self.entries.len() as u64, &mut out);
        for &(peer, counter) in &self.entries {
            write_varint(peer, &mut out);
            write_varint(zigzag(counter), &mut out);
        }
        out
    }

    /// How many operations of `peer` are known; `None` if it has no entry.
    pub fn get(&self, peer: u64) -> Option<i32> {
        let found = self.entries.iter().find(|(known, _)| *known == peer);
        found.map(|(_, counter)| *counter)
    }

    /// Sets a peer's counter; a new peer is added at the end.
    pub fn set(&mut self, peer: u64, counter: i32) {
        match self.entries.iter_mut().find(|(known, _)| *known == peer) {
            Some(entry) => entry.1 = counter,
            None => self.entries.push((peer, counter)),
        }
    }

    /// The entries (peer and counter) in their order.
    pub fn entries(&self) -> &[(u64, i32)] {
        &self.entries
    }

    /// Whether no peer has an entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn of(entries: Vec<(u64, i32)>) -> Self {
        let mut peers: Vec<u64> = entries.iter().map(|(peer, _)| *peer).collect();
        peers.sort_unstable();
        if peers.windows(2).all(|pair| pair[0] != pair[1]) {
            return Self { entries };
        }
        let last: BTreeMap<u64, i32> = entries.iter().copied().collect();
        let mut seen = BTreeSet::new();
        let first_places = entries.into_iter().filter(|(peer, _)| seen.insert(*peer));
        Self {
            entries: first_places.map(|(peer, _)| (peer, last[&peer])).collect(),
        }
    }
}

impl FromIterator<(u64, i32)> for VersionVector {
    fn from_iter<I: IntoIterator<Item = (u64, i32)>>(entries: I) -> Self {
        Self::of(entries.into_iter().collect())
    }
}

impl PartialEq for VersionVector {
    fn eq(&self, other: &Self) -> bool {
        let sorted = |version: &Self| {
            let mut entries = version.entries.clone();
            entries.sort_unstable();
            entries
        };
        self.entries == other.entries || sorted(self) == sorted(other)
    }
}

impl Eq for VersionVector {}

/// Writes `{"peer":counter}`, in the order in which JavaScript would print that object.
impl Serialize for VersionVector {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut entries = self.entries.clone();
        // JavaScript puts keys that could be array indices first, sorted; the others keep their order.
        entries.sort_by_key(|(peer, _)| (*peer).min(u64::from(u32::MAX)));
        let mut map = out.serialize_map(Some(entries.len()))?;
        for (peer, counter) in entries {
            map.serialize_entry(&peer.to_string(), &counter)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for VersionVector {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = VersionVector;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of counters by peer")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<VersionVector, A::Error> {
                let mut entries = Vec::new();
                while let Some((peer, counter)) = map.next_entry::<String, i32>()? {
                    let peer = peer.parse().map_err(|_| {
                        A::Error::custom(format_args!("peer {peer:?} is no decimal u64"))
                    })?;
                    entries.push((peer, counter));
                }
                Ok(VersionVector::of(entries))
            }
        }

        input.deserialize_map(Entries)
    }
}

/// Why bytes are not a version vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VersionVectorError {
    /// There are fewer entries than the count says, or no bytes at all.
    #[error("the version vector's {bytes} bytes end inside a number")]
    Ends {
        /// The length in bytes.
        bytes: usize,
    },
    /// A peer exceeds u64, or a counter exceeds i32.
    #[error("the number at byte {at} of the version vector exceeds {bits} bits")]
    TooLarge {
        /// Where the number becomes too large.
        at: usize,
        /// How many bits it may have.
        bits: u32,
    },
}

pub(super) struct Varints<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl Varints<'_> {
    /// Reads a varint: seven bits per byte, the least significant first; leading zeros are allowed.
    pub(super) fn next(&mut self, bits: u32) -> Result<u64, VersionVectorError> {
        let mut value = 0;
        for shift in (0..bits).step_by(7) {
            let bytes = self.bytes.len();
            let &byte = self
                .bytes
                .get(self.at)
                .ok_or(VersionVectorError::Ends { bytes })?;
            let low = u64::from(byte & 0x7f);
            if u64::BITS - low.leading_zeros() > bits - shift {
                break;
            }
            self.at += 1;
            value |= low << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(VersionVectorError::TooLarge { at: self.at, bits })
    }
}

pub(super) fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(counter: i32) -> u64 {
    u64::from(((counter << 1) ^ (counter >> 31)) as u32)
}

fn unzigzag(raw: u64) -> i32 {
    let raw = raw as u32;
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Vec<(u64, i32)> {
        VersionVector::decode(bytes).unwrap().entries().to_vec()
    }

    #[test]
    fn bytes_both_ways() {
        type Case<'a> = (&'a [u8], &'a [(u64, i32)]);
        let cases: &[Case<'_>] = &[
            (b"\x00", &[]),
            (b"\x01\x01\x04", &[(1, 2)]),
            (b"\x02\x02\xd8\x04\x01\x04", &[(2, 300), (1, 2)]),
            (
                b"\x01\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\xfe\xff\xff\xff\x0f",
                &[(u64::MAX - 1, i32::MAX)],
            ),
            (
                b"\x02\x00\x01\x07\xff\xff\xff\xff\x0f",
                &[(0, -1), (7, i32::MIN)],
            ),
        ];
        for (bytes, entries) in cases {
            assert_eq!(decoded(bytes), *entries);
            let version: VersionVector = entries.iter().copied().collect();
            assert_eq!(version.encode(), *bytes);
        }
    }

    #[test]
    fn what_the_original_tolerates_too() {
        assert_eq!(decoded(b"\x00\x00\x09"), [], "bytes after the last entry");
        assert_eq!(decoded(b"\x81\x00\x01\x84\x00"), [(1, 2)], "leading zeros");
        let twice = b"\x03\x01\x02\x05\x02\x01\x04";
        assert_eq!(decoded(twice), [(1, 2), (5, 1)], "the last counter holds");
    }

    #[test]
    fn no_version_vectors() {
        let ends = |bytes| VersionVectorError::Ends { bytes };
        let cases: &[(&[u8], VersionVectorError)] = &[
            (b"", ends(0)),
            (b"\x01", ends(1)),
            (b"\x01\x01", ends(2)),
            (b"\xff\xff\xff\xff", ends(4)),
            (
                b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01\x02",
                ends(12),
            ),
            (
                b"\x01\x01\xff\xff\xff\xff\x10",
                VersionVectorError::TooLarge { at: 6, bits: 32 },
            ),
            (
                b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x02",
                VersionVectorError::TooLarge { at: 10, bits: 64 },
            ),
            (
                b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
                VersionVectorError::TooLarge { at: 10, bits: 64 },
            ),
        ];
        for (bytes, error) in cases {
            assert_eq!(VersionVector::decode(bytes), Err(*error), "{bytes:02x?}");
        }
    }

    #[test]
    fn equality_knows_no_order_but_bytes_do() {
        let one: VersionVector = [(1, 2), (2, 3)].into_iter().collect();
        let mut other = VersionVector::new();
        other.set(2, 9);
        other.set(1, 2);
        assert_ne!(one, other);
        other.set(2, 3);
        assert_eq!(one, other);
        assert_eq!(other.get(2), Some(3));
        assert_ne!(one.encode(), other.encode());
    }

    #[test]
    fn json_has_the_order_of_javascript() {
        let entries = [
            (u64::MAX, 1),
            (u64::from(u32::MAX), 2),
            (u64::from(u32::MAX) - 1, 3),
            (5, 4),
        ];
        let version: VersionVector = entries.into_iter().collect();
        let text = r#"{"5":4,"4294967294":3,"18446744073709551615":1,"4294967295":2}"#;
        assert_eq!(serde_json::to_string(&version).unwrap(), text);
        let read: VersionVector = serde_json::from_str(text).unwrap();
        assert_eq!(read, version);
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        for bad in [r#"{"x":1}"#, r#"{"1":2147483648}"#, r#"{"-1":1}"#, "[]"] {
            assert!(serde_json::from_str::<VersionVector>(bad).is_err(), "{bad}");
        }
    }
}
