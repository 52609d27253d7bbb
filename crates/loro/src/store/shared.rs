//! The documents of a store that several nodes share, as each of them keeps them. Pure.
//!
//! All nodes read the same records of a document in the same order, and so keep the same. Writes of a node
//! are adapted to what others wrote meanwhile: updates can be stored after any others, since they commute; a
//! snapshot replaces the updates before it only if it contains all of them.

use std::collections::BTreeMap;

use breakbulk_message::loro::VersionVector;
use bytes::{Buf, BufMut, Bytes};

use super::{Kept, Others, Write};
use crate::machine::{DocId, Head, covers};

const VERSION: u8 = 1;

/// What a record does to its document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) kind: Kind,
    /// The version of the document after it, as its writer knew it.
    pub(super) version: VersionVector,
    /// As loro exports it; empty if the document is deleted.
    pub(super) data: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Append = 0,
    Replace = 1,
    Delete = 2,
}

/// `version: u8 = 1 · name length: u32 · name · count: u32`, then for each change `kind: u8 · version length:
/// u32 · version · data length: u64 · data`, all big-endian.
pub(super) fn write(doc: &str, changes: &[Change]) -> Bytes {
    let data: usize = changes.iter().map(|change| change.data.len() + 64).sum();
    let mut bytes = Vec::with_capacity(data + doc.len() + 16);
    bytes.put_u8(VERSION);
    bytes.put_u32(doc.len() as u32);
    bytes.put_slice(doc.as_bytes());
    bytes.put_u32(changes.len() as u32);
    for change in changes {
        bytes.put_u8(change.kind as u8);
        let version = change.version.encode();
        bytes.put_u32(version.len() as u32);
        bytes.put_slice(&version);
        bytes.put_u64(change.data.len() as u64);
        bytes.put_slice(&change.data);
    }
    bytes.into()
}

/// Reads a record, or says what is wrong with it.
pub(super) fn read(bytes: &Bytes) -> Result<(DocId, Vec<Change>), &'static str> {
    let short = "it ends too early";
    let mut rest = bytes.clone();
    if rest.try_get_u8().map_err(|_| short)? != VERSION {
        return Err("a newer version wrote it: update this program");
    }
    let length = rest.try_get_u32().map_err(|_| short)?;
    let name = take(&mut rest, u64::from(length)).ok_or(short)?;
    let name = std::str::from_utf8(&name).map_err(|_| "a name is not UTF-8")?;
    let doc: DocId = name.into();
    let count = rest.try_get_u32().map_err(|_| short)?;
    let mut changes = Vec::new();
    for _ in 0..count {
        let kind = match rest.try_get_u8().map_err(|_| short)? {
            0 => Kind::Append,
            1 => Kind::Replace,
            2 => Kind::Delete,
            _ => return Err("it does something unknown: update this program"),
        };
        let length = rest.try_get_u32().map_err(|_| short)?;
        let version = take(&mut rest, u64::from(length)).ok_or(short)?;
        let version = VersionVector::decode(&version).map_err(|_| "a version cannot be read")?;
        let length = rest.try_get_u64().map_err(|_| short)?;
        let data = take(&mut rest, length).ok_or(short)?;
        // Changes live longer than their record.
        let data = Bytes::copy_from_slice(&data);
        changes.push(Change {
            kind,
            version,
            data,
        });
    }
    match rest.is_empty() {
        true => Ok((doc, changes)),
        false => Err("it is longer than it says"),
    }
}

fn take(bytes: &mut Bytes, length: u64) -> Option<Bytes> {
    let length = usize::try_from(length).ok()?;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

/// The topic of a document: its name, with characters that topics cannot have as `=XX`.
pub(super) fn topic(doc: &str) -> String {
    let mut topic = String::from("d-");
    for byte in doc.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'/' => {
                topic.push(char::from(byte));
            }
            byte => topic.push_str(&format!("={byte:02X}")),
        }
    }
    topic
}

/// All documents.
#[derive(Debug, Default)]
pub(super) struct SharedDocuments {
    docs: BTreeMap<DocId, Document>,
}

#[derive(Debug, Default)]
struct Document {
    /// The place of the last record.
    place: u64,
    /// The version of all that is stored.
    version: VersionVector,
    kept: Kept,
    /// What others stored and this node's worker has not taken over yet.
    fresh: Vec<Bytes>,
    /// Whether the worker was told that there is something to take over.
    notified: bool,
    /// The changes of the record that this node is storing. A record whose storing failed may still come, even
    /// while the next one is being stored: its changes tell it from that one.
    writing: Option<Vec<Change>>,
    /// The numbers of the stream's messages that hold the document.
    messages: Vec<u64>,
    /// Deletions by others: all, those that the worker has taken over, and those that no change of this node
    /// under way precedes.
    deletions: u64,
    taken: u64,
    absorbed: u64,
}

/// How some writes are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The record that they must follow.
    pub(super) after: u64,
    /// What is stored; nothing if others have stored or deleted all of it already.
    pub(super) changes: Vec<Change>,
}

impl SharedDocuments {
    /// Counts all that is stored now as known to the workers.
    pub(super) fn start(&mut self) {
        for document in self.docs.values_mut() {
            document.fresh.clear();
            document.notified = false;
            document.taken = document.deletions;
            document.absorbed = document.deletions;
        }
    }

    /// The documents that have content.
    pub(super) fn heads(&self) -> Vec<(DocId, Head)> {
        let stored = self.docs.iter().filter(|(_, document)| document.size() > 0);
        let head = |document: &Document| Head {
            version: document.version.clone(),
            size: document.size(),
        };
        stored
            .map(|(doc, document)| (doc.clone(), head(document)))
            .collect()
    }

    pub(super) fn load(&self, doc: &str) -> Kept {
        let document = self.docs.get(doc);
        document.map_or_else(Kept::default, |document| document.kept.clone())
    }

    /// The place of a document's last record.
    pub(super) fn place(&self, doc: &str) -> u64 {
        self.docs.get(doc).map_or(0, |document| document.place)
    }

    /// Plans how writes to one document are stored, given what is known of it.
    pub(super) fn plan(&self, doc: &str, writes: &[Write]) -> Plan {
        let empty = Document::default();
        let document = self.docs.get(doc).unwrap_or(&empty);
        let mut plan = Plan {
            after: document.place,
            changes: Vec::new(),
        };
        // The worker did not know of a deletion when it made these changes: they count as deleted with it.
        if document.deletions > document.absorbed {
            return plan;
        }
        let mut version = document.version.clone();
        for write in writes {
            let (kind, data, head) = match write {
                Write::Append { data, head, .. } => (Kind::Append, data.clone(), head),
                Write::Replace { data, head, .. } if covers(&head.version, &version) => {
                    (Kind::Replace, data.clone(), head)
                }
                // A compaction that lacks changes of others is left out: nothing is lost.
                Write::Replace { head, .. } if covers(&version, &head.version) => continue,
                Write::Replace { data, head, .. } => (Kind::Append, data.clone(), head),
                Write::Delete { .. } => {
                    version = VersionVector::default();
                    plan.changes = vec![Change {
                        kind: Kind::Delete,
                        version: version.clone(),
                        data: Bytes::new(),
                    }];
                    continue;
                }
            };
            if kind == Kind::Replace {
                plan.changes.retain(|change| change.kind == Kind::Delete);
            }
            version = union(&version, &head.version);
            plan.changes.push(Change {
                kind,
                version: head.version.clone(),
                data,
            });
        }
        plan
    }

    /// This node begins to store a record with these changes of a document.
    pub(super) fn begin(&mut self, doc: &DocId, changes: &[Change]) {
        self.docs.entry(doc.clone()).or_default().writing = Some(changes.to_vec());
    }

    /// The store has stored it, or failed to. Returns whether to tell the worker to look at the document
    /// again, since what failed may have been stored nevertheless.
    pub(super) fn end(&mut self, doc: &DocId, failed: bool) -> bool {
        let document = self.docs.entry(doc.clone()).or_default();
        document.writing = None;
        failed && document.wants_notice(false)
    }

    /// What this node stored was part of a commit that failed. Returns whether to tell the worker, which
    /// believes that nothing was stored, to look at the document again.
    pub(super) fn failed_beside(&mut self, doc: &DocId) -> bool {
        self.docs
            .entry(doc.clone())
            .or_default()
            .wants_notice(false)
    }

    /// A record was read at this place. A record of this node that it gave up on counts as one of others.
    pub(super) fn read(&mut self, doc: &DocId, place: u64, changes: &[Change], own: bool) -> bool {
        let document = self.docs.get(doc);
        let writing = document.and_then(|document| document.writing.as_deref());
        self.apply(doc, place, changes, own && writing == Some(changes))
    }

    /// Remembers in which messages of the stream a record is. Returns the messages that it makes useless: all
    /// before a snapshot or a deletion.
    pub(super) fn hold(&mut self, doc: &DocId, messages: &[u64], changes: &[Change]) -> Vec<u64> {
        let held = &mut self.docs.entry(doc.clone()).or_default().messages;
        let replaces = changes.iter().any(|change| change.kind != Kind::Append);
        let useless = match replaces {
            true => std::mem::take(held),
            false => Vec::new(),
        };
        held.extend_from_slice(messages);
        useless
    }

    /// Takes back messages that could not be deleted: the next snapshot makes them useless again.
    pub(super) fn hold_again(&mut self, doc: &DocId, messages: Vec<u64>) {
        let document = self.docs.entry(doc.clone()).or_default();
        document.messages.extend(messages);
    }

    /// A record was stored at this place, by this node or another one. Returns whether to tell the worker
    /// that there is something of others.
    pub(super) fn apply(&mut self, doc: &DocId, place: u64, changes: &[Change], own: bool) -> bool {
        let document = self.docs.entry(doc.clone()).or_default();
        if place <= document.place {
            return false;
        }
        document.place = place;
        for change in changes {
            match change.kind {
                Kind::Append => {
                    document.kept.updates.push(change.data.clone());
                    document.version = union(&document.version, &change.version);
                }
                Kind::Replace => {
                    document.kept.snapshot = Some(change.data.clone());
                    document.kept.updates.clear();
                    document.fresh.clear();
                    document.version = union(&document.version, &change.version);
                }
                Kind::Delete => {
                    document.kept = Kept::default();
                    document.version = VersionVector::default();
                    document.fresh.clear();
                    document.deletions += u64::from(!own);
                }
            }
            if !own && change.kind != Kind::Delete {
                document.fresh.push(change.data.clone());
            }
        }
        document.wants_notice(own)
    }

    /// What others did. True if there is more already: tell the worker again.
    pub(super) fn take(&mut self, doc: &str) -> (Others, bool) {
        let Some(document) = self.docs.get_mut(doc) else {
            return (Others::default(), false);
        };
        document.notified = false;
        let deleted = document.taken < document.deletions;
        document.taken = document.deletions;
        let others = Others {
            deleted,
            data: match deleted {
                true => Vec::new(),
                false => std::mem::take(&mut document.fresh),
            },
            size: document.sizes(),
            deletions: document.deletions,
        };
        let more = !document.fresh.is_empty() && document.wants_notice(false);
        (others, more)
    }

    /// See [`Store::absorb`](super::Store::absorb).
    pub(super) fn absorb(&mut self, doc: &str, deletions: u64) {
        if let Some(document) = self.docs.get_mut(doc) {
            document.absorbed = document.absorbed.max(deletions);
        }
    }
}

impl Document {
    fn sizes(&self) -> (u64, u64) {
        let snapshot = self.kept.snapshot.as_ref().map_or(0, Bytes::len);
        let updates: usize = self.kept.updates.iter().map(Bytes::len).sum();
        (snapshot as u64, updates as u64)
    }

    fn size(&self) -> u64 {
        let (snapshot, updates) = self.sizes();
        snapshot + updates
    }

    fn wants_notice(&mut self, own: bool) -> bool {
        !own && !std::mem::replace(&mut self.notified, true)
    }
}

/// The version that has all changes of both.
pub(super) fn union(one: &VersionVector, other: &VersionVector) -> VersionVector {
    let mut all: BTreeMap<u64, i32> = one.entries().iter().copied().collect();
    for (peer, counter) in other.entries() {
        let known = all.entry(*peer).or_default();
        *known = (*known).max(*counter);
    }
    all.into_iter().collect()
}
