//! The content of an [`EphemeralStore`](super::EphemeralStore), as the crate `loro` encodes it: a list of
//! keys, each with the time at which it was set and a value, or none if it was deleted.

use bytes::Bytes;

use super::version::{Varints, write_varint};

/// Lists and maps of a value may be nested this deep.
const DEPTH: usize = 64;

/// One key of a store. The value stays encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EphemeralEntry<'a> {
    /// The key; mostly the id of a peer.
    pub key: &'a str,
    /// The encoded value; `None`: the key was deleted.
    pub value: Option<&'a [u8]>,
    /// When it was set, in milliseconds; of two entries of one key the later one counts.
    pub timestamp: i64,
}

/// The data of an ephemeral store cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the data of an ephemeral store cannot be read: it differs from loro's encoding at byte {at}"
)]
pub struct EphemeralError {
    /// The position of the first byte that cannot be read.
    pub at: usize,
}

impl EphemeralEntry<'_> {
    /// Reads the data of a store.
    ///
    /// ```
    /// use breakbulk_message::loro::EphemeralEntry;
    ///
    /// // The key "k" with the number 5, set at time 1, and the deleted key "gone".
    /// let data = b"\x02\x01k\x01\x03\x0a\x02\x04gone\x00\x04";
    /// let entries = EphemeralEntry::read_all(data)?;
    /// assert_eq!(entries[0].value, Some(&b"\x03\x0a"[..]));
    /// assert_eq!((entries[1].key, entries[1].value, entries[1].timestamp), ("gone", None, 2));
    /// assert_eq!(EphemeralEntry::write_all(&entries), data[..]);
    /// # Ok::<(), breakbulk_message::loro::EphemeralError>(())
    /// ```
    pub fn read_all(data: &[u8]) -> Result<Vec<EphemeralEntry<'_>>, EphemeralError> {
        let mut input = Input { data, at: 0 };
        let entries = input.entries();
        match entries {
            Some(entries) if input.at == data.len() => Ok(entries),
            _ => Err(EphemeralError { at: input.at }),
        }
    }

    /// Writes the data of a store.
    pub fn write_all(entries: &[EphemeralEntry<'_>]) -> Bytes {
        let mut out = Vec::new();
        write_varint(entries.len() as u64, &mut out);
        for entry in entries {
            write_varint(entry.key.len() as u64, &mut out);
            out.extend_from_slice(entry.key.as_bytes());
            match entry.value {
                Some(value) => {
                    out.push(1);
                    out.extend_from_slice(value);
                }
                None => out.push(0),
            }
            let time = entry.timestamp;
            write_varint(((time << 1) ^ (time >> 63)) as u64, &mut out);
        }
        out.into()
    }
}

/// Reads from the front; `None` at the first byte that does not fit.
struct Input<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn entries(&mut self) -> Option<Vec<EphemeralEntry<'a>>> {
        // Not allocated in advance: the peer only declares the number.
        let mut entries = Vec::new();
        for _ in 0..self.number()? {
            let key = self.text()?;
            let value = match self.byte()? {
                0 => None,
                1 => {
                    let from = self.at;
                    self.skip_value(DEPTH)?;
                    Some(&self.data[from..self.at])
                }
                _ => return None,
            };
            let time = self.number()?;
            let timestamp = (time >> 1) as i64 ^ -((time & 1) as i64);
            entries.push(EphemeralEntry {
                key,
                value,
                timestamp,
            });
        }
        Some(entries)
    }

    fn skip_value(&mut self, depth: usize) -> Option<()> {
        match self.byte()? {
            0 => {}
            1 => drop(self.bytes(1)?),
            2 => drop(self.bytes(8)?),
            3 => drop(self.number()?),
            4 => drop(self.text()?),
            5 => {
                for _ in 0..self.number()? {
                    self.skip_value(depth.checked_sub(1)?)?;
                }
            }
            6 => {
                for _ in 0..self.number()? {
                    self.text()?;
                    self.skip_value(depth.checked_sub(1)?)?;
                }
            }
            8 => {
                let len = self.number()?;
                self.bytes(usize::try_from(len).ok()?)?;
            }
            // 7 is a container of a document, which no store holds.
            _ => return None,
        }
        Some(())
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.bytes(len)?).ok()
    }

    fn number(&mut self) -> Option<u64> {
        let mut input = Varints {
            bytes: self.data,
            at: self.at,
        };
        let number = input.next(u64::BITS).ok()?;
        self.at = input.at;
        Some(number)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let bytes = self.data.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded: `{"2000": {x: 1, y: "é", z: [null, true, 1.5, 2 bytes]}}`, and "k", which was deleted.
    const RECORDED: &[u8] =
        b"\x02\x01k\x00\x90\xa1\xdf\xbf\xbc\x68\x042000\x01\x06\x03\x01y\x04\x02\
        \xc3\xa9\x01z\x05\x04\x00\x01\x01\x02\x00\x00\x00\x00\x00\x00\xf8\x3f\x08\x02\x01\x02\x01x\
        \x03\x02\x8e\xa1\xdf\xbf\xbc\x68";

    #[test]
    fn what_the_original_writes_is_read_and_written_again() {
        let entries = EphemeralEntry::read_all(RECORDED).unwrap();
        let keys: Vec<_> = entries
            .iter()
            .map(|it| (it.key, it.value.is_some()))
            .collect();
        assert_eq!(keys, [("k", false), ("2000", true)]);
        assert_eq!(entries[0].timestamp, entries[1].timestamp + 1);
        assert_eq!(EphemeralEntry::write_all(&entries), RECORDED);
    }

    #[test]
    fn what_is_cut_changed_or_too_deep_is_refused_and_allocates_nothing() {
        for len in 0..RECORDED.len() {
            assert!(EphemeralEntry::read_all(&RECORDED[..len]).is_err(), "{len}");
        }
        let deep = |depth: usize| {
            let lists = b"\x05\x01".repeat(depth);
            [b"\x01\x01k\x01", &lists[..], b"\x00\x00"].concat()
        };
        for (data, fine) in [
            (vec![0], true),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f".to_vec(), false),
            (b"\x01\x01k\x01\x07\x00\x00".to_vec(), false),
            (b"\x01\x01k\x02\x00".to_vec(), false),
            (b"\x01\x01\xff\x00\x00".to_vec(), false),
            (b"\x00\x00".to_vec(), false),
            (deep(DEPTH), true),
            (deep(DEPTH + 1), false),
            (deep(1 << 20), false),
        ] {
            let read = EphemeralEntry::read_all(&data);
            assert_eq!(read.is_ok(), fine, "{:?}", &data[..data.len().min(20)]);
        }
    }
}
