//! How a batch of actions is written in a log that several hosts share. Pure.
//!
//! `version: u8 = 1 · after: i64 · first: i64 · count: u32`, then for each action `channel length: u32 ·
//! channel · params length: u64 · params`, all big-endian. `after` is the last action that its writer had,
//! so that a reader knows whether it missed some.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};

use super::Entry;

const VERSION: u8 = 1;

/// The bytes before the actions.
const HEAD: usize = 1 + 8 + 8 + 4;

/// The most channel names that are kept to be shared among actions.
const NAMES: usize = 1024;

/// A batch that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedBatch {
    /// The last action before it.
    pub(super) after: i64,
    /// Its actions, whose params have memory of their own.
    pub(super) entries: Vec<Entry>,
}

/// Names of channels that actions share.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeSet<Arc<str>>);

impl Names {
    fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        if self.0.len() >= NAMES {
            self.0.clear();
        }
        let name = Arc::<str>::from(name);
        self.0.insert(name.clone());
        name
    }
}

/// The record of a batch that follows the action `after`.
pub(super) fn write(after: i64, batch: &[Entry]) -> Bytes {
    let size = |entry: &Entry| 4 + entry.channel.len() + 8 + entry.params.len();
    let mut bytes = Vec::with_capacity(HEAD + batch.iter().map(size).sum::<usize>());
    bytes.put_u8(VERSION);
    bytes.put_i64(after);
    bytes.put_i64(batch.first().map_or(after, |first| first.seq));
    bytes.put_u32(batch.len() as u32);
    for entry in batch {
        bytes.put_u32(entry.channel.len() as u32);
        bytes.put_slice(entry.channel.as_bytes());
        bytes.put_u64(entry.params.len() as u64);
        bytes.put_slice(&entry.params);
    }
    bytes.into()
}

/// Reads a record, or says what is wrong with it.
pub(super) fn read(mut bytes: &[u8], names: &mut Names) -> Result<SharedBatch, &'static str> {
    let short = "it ends too early";
    let version = bytes.try_get_u8().map_err(|_| short)?;
    if version != VERSION {
        return Err("a newer version wrote it: update this program");
    }
    let after = bytes.try_get_i64().map_err(|_| short)?;
    let first = bytes.try_get_i64().map_err(|_| short)?;
    let count = bytes.try_get_u32().map_err(|_| short)?;
    if after < 0 || first <= after {
        return Err("its numbers do not rise");
    }
    let mut entries = Vec::new();
    for number in 0..i64::from(count) {
        let length = bytes.try_get_u32().map_err(|_| short)?;
        let channel = take(&mut bytes, u64::from(length)).ok_or(short)?;
        let channel = std::str::from_utf8(channel).map_err(|_| "a channel is not UTF-8")?;
        let length = bytes.try_get_u64().map_err(|_| short)?;
        let params = take(&mut bytes, length).ok_or(short)?;
        let seq = first
            .checked_add(number)
            .ok_or("its numbers are too large")?;
        let params = Bytes::copy_from_slice(params);
        entries.push(Entry::new(seq, names.share(channel), params));
    }
    match bytes.is_empty() {
        true => Ok(SharedBatch { after, entries }),
        false => Err("it is longer than it says"),
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_written_and_read_back() {
        let batch = [Entry::new(7, "a", "{}"), Entry::new(8, "", "")];
        let bytes = write(4, &batch);
        assert_eq!(
            bytes,
            &b"\x01\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x07\0\0\0\x02\
               \0\0\0\x01a\0\0\0\0\0\0\0\x02{}\
               \0\0\0\0\0\0\0\0\0\0\0\0"[..]
        );
        let found = read(&bytes, &mut Names::default());
        let expected = SharedBatch {
            after: 4,
            entries: batch.to_vec(),
        };
        assert_eq!(found, Ok(expected));
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        let whole = write(4, &[Entry::new(5, "a", "{}")]);
        for end in 0..whole.len() {
            assert_eq!(
                read(&whole[..end], &mut Names::default()),
                Err("it ends too early"),
                "{end}"
            );
        }
        for (at, byte, reason) in [
            (0, 2, "a newer version wrote it: update this program"),
            (1, 0xff, "its numbers do not rise"),
            (16, 4, "its numbers do not rise"),
            (20, 0, "it is longer than it says"),
            (20, 2, "it ends too early"),
            (21, 0xff, "it ends too early"),
            (25, 0xff, "a channel is not UTF-8"),
            (26, 0xff, "it ends too early"),
        ] {
            let mut bytes = whole.to_vec();
            bytes[at] = byte;
            assert_eq!(read(&bytes, &mut Names::default()), Err(reason), "{at}");
        }
    }
}
