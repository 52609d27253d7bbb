//! Joins several updates in `loro`'s export format to one, so that they are imported at once.
//!
//! An update is its magic bytes, a checksum of what follows, its mode, and blocks of changes, each behind its
//! length. `loro` sorts the changes of all blocks before it applies them.

use bytes::Bytes;
use xxhash_rust::xxh32::xxh32;

use super::expansion::{HEAD, UPDATES};

const MAGIC: &[u8] = b"loro";
/// Where the checksum begins; the bytes before it are zero.
const CHECKSUM: usize = 16;
const SEED: u32 = u32::from_le_bytes(*b"LORO");

/// Joins updates; `None` if one of them is not an update, or is damaged.
pub(super) fn join(all: &[&Bytes]) -> Option<Bytes> {
    let bytes: usize = all.iter().map(|data| data.len()).sum();
    let mut joined = Vec::with_capacity(HEAD + UPDATES.len() + bytes);
    joined.extend_from_slice(MAGIC);
    joined.resize(HEAD, 0);
    joined.extend_from_slice(&UPDATES);
    for data in all {
        joined.extend_from_slice(blocks(data)?);
    }
    let checksum = xxh32(&joined[HEAD..], SEED).to_le_bytes();
    joined[CHECKSUM..HEAD].copy_from_slice(&checksum);
    Some(joined.into())
}

/// Whether this is an undamaged update.
pub(super) fn is_update(data: &[u8]) -> bool {
    blocks(data).is_some()
}

fn blocks(update: &[u8]) -> Option<&[u8]> {
    let (head, content) = update.split_at_checked(HEAD)?;
    let checksum = xxh32(content, SEED).to_le_bytes();
    let whole = head.starts_with(MAGIC) && head[CHECKSUM..] == checksum;
    content.strip_prefix(&UPDATES).filter(|_| whole)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;
    use loro::{ExportMode, LoroDoc};

    fn change(doc: &LoroDoc, text: &str) -> Bytes {
        let before = doc.oplog_vv();
        doc.get_text("text").insert(0, text).unwrap();
        doc.commit();
        doc.export(ExportMode::updates(&before)).unwrap().into()
    }

    // LORO-37
    #[test]
    fn joined_updates_are_imported_as_one_by_one() {
        let (one, other) = (LoroDoc::new(), LoroDoc::new());
        let mut all = vec![change(&one, "a"), change(&one, "b"), change(&other, "c")];
        other.import(&all[0]).unwrap();
        all.push(change(&other, "d"));
        // Even if one comes before an update that it depends on, or twice.
        all.swap(0, 3);
        all.push(all[1].clone());
        let (separate, joined) = (LoroDoc::new(), LoroDoc::new());
        for data in &all {
            separate.import(data).unwrap();
        }
        let status = joined.import(&join(&all.iter().collect::<Vec<_>>()).unwrap());
        assert_eq!(status.unwrap().pending, None);
        assert_eq!(joined.get_deep_value(), separate.get_deep_value());
        assert_eq!(joined.oplog_vv(), separate.oplog_vv());
        // A single update stays as `loro` wrote it.
        assert_eq!(join(&[&all[1]]).unwrap(), all[1]);
    }

    #[test]
    fn only_updates_are_joined() {
        let doc = LoroDoc::new();
        let update = change(&doc, "a");
        let snapshot: Bytes = doc.export(ExportMode::Snapshot).unwrap().into();
        let mut damaged = update.to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        let short = update.slice(..update.len() - 1);
        let shifted = update.slice(1..);
        for wrong in [snapshot, Bytes::new(), shifted, short, damaged.into()] {
            assert_eq!(join(&[&update, &wrong]), None);
        }
    }
}
