//! The documents of a store that several nodes share, as each of them keeps them. Pure.
//!
//! All nodes read the same records of a document in the same order, and so keep the same. What a node wants
//! to write is adapted to what others wrote meanwhile: updates can be stored behind any others, since they
//! commute; a snapshot replaces the updates before it only if it contains all of them.

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
    /// The version that its writer had after it.
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

/// The topic of a document: its name, with what topics cannot have as `=XX`.
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
    /// Where the last record is.
    place: u64,
    /// The version of all that is stored.
    version: VersionVector,
    kept: Kept,
    /// What others stored, and this node's worker has not taken.
    fresh: Vec<Bytes>,
    /// The worker was told that there is something.
    notified: bool,
    /// This node is storing something.
    writing: bool,
    /// Deletions by others: all, those that the worker has taken, and those before which this node has no
    /// change on its way.
    deletions: u64,
    taken: u64,
    absorbed: u64,
}

/// What is to be stored of some writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The record after which.
    pub(super) after: u64,
    /// Nothing, if others have stored or deleted all of it already.
    pub(super) changes: Vec<Change>,
}

impl SharedDocuments {
    /// The workers begin with what is stored now.
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

    /// How writes to one document are stored, after what is known of it.
    pub(super) fn plan(&self, doc: &str, writes: &[Write]) -> Plan {
        let empty = Document::default();
        let document = self.docs.get(doc).unwrap_or(&empty);
        let mut plan = Plan {
            after: document.place,
            changes: Vec::new(),
        };
        // The worker did not know of a deletion when it made these changes: they are deleted, too.
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
                // A compaction that lacks changes of others: nothing is lost without it.
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

    /// This node begins to store something in a document.
    pub(super) fn begin(&mut self, doc: &DocId) {
        self.docs.entry(doc.clone()).or_default().writing = true;
    }

    /// It has stored it, or failed to. True: tell the worker to look at the document again, since what failed
    /// may have been stored all the same.
    pub(super) fn end(&mut self, doc: &DocId, failed: bool) -> bool {
        let document = self.docs.entry(doc.clone()).or_default();
        document.writing = false;
        failed && document.wants_notice(false)
    }

    /// A record was read at this place. One of this node that it has given up on counts as one of others.
    pub(super) fn read(&mut self, doc: &DocId, place: u64, changes: &[Change], own: bool) -> bool {
        let writing = self.docs.get(doc).is_some_and(|document| document.writing);
        self.apply(doc, place, changes, own && writing)
    }

    /// A record was stored at this place, by this node or another one. True: tell the worker that there is
    /// something of others.
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

    /// What others did. True: there is more already, tell the worker again.
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

/// The version of all changes of both.
fn union(one: &VersionVector, other: &VersionVector) -> VersionVector {
    let mut all: BTreeMap<u64, i32> = one.entries().iter().copied().collect();
    for (peer, counter) in other.entries() {
        let known = all.entry(*peer).or_default();
        *known = (*known).max(*counter);
    }
    all.into_iter().collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;

    fn version(text: &str) -> VersionVector {
        let entry = |word: &str| {
            let (peer, counter) = word.split_at(1);
            (u64::from(peer.as_bytes()[0]), counter.parse().unwrap())
        };
        text.split(',')
            .filter(|w| !w.is_empty())
            .map(entry)
            .collect()
    }

    /// `+a1,b2=data`, `!a1=data` (a snapshot) or `-`.
    fn change(text: &str) -> Change {
        let (kind, rest) = text.split_at(1);
        let (of, data) = rest.split_once('=').unwrap_or(("", ""));
        Change {
            kind: match kind {
                "+" => Kind::Append,
                "!" => Kind::Replace,
                _ => Kind::Delete,
            },
            version: version(of),
            data: Bytes::copy_from_slice(data.as_bytes()),
        }
    }

    fn changes(text: &str) -> Vec<Change> {
        text.split_whitespace().map(change).collect()
    }

    fn writes(text: &str) -> Vec<Write> {
        let write = |change: Change| {
            let doc: DocId = "d".into();
            let Change {
                kind,
                version,
                data,
            } = change;
            let head = Head { version, size: 0 };
            match kind {
                Kind::Append => Write::Append { doc, data, head },
                Kind::Replace => Write::Replace { doc, data, head },
                Kind::Delete => Write::Delete { doc },
            }
        };
        changes(text).into_iter().map(write).collect()
    }

    fn kept(documents: &SharedDocuments) -> String {
        let kept = documents.load("d");
        let all = kept.snapshot.iter().map(|data| (data, '!'));
        let all = all.chain(kept.updates.iter().map(|data| (data, '+')));
        all.map(|(data, kind)| format!("{kind}{}", String::from_utf8_lossy(data)))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn records_are_written_and_read_back() {
        let changes = vec![change("+a1=x"), change("!a2,b1=yz"), change("-")];
        let bytes = write("dé", &changes);
        assert_eq!(
            bytes,
            &b"\x01\0\0\0\x03d\xc3\xa9\0\0\0\x03\
               \0\0\0\0\x03\x01\x61\x02\0\0\0\0\0\0\0\x01x\
               \x01\0\0\0\x05\x02\x61\x04\x62\x02\0\0\0\0\0\0\0\x02yz\
               \x02\0\0\0\x01\0\0\0\0\0\0\0\0\0"[..]
        );
        assert_eq!(read(&bytes), Ok(("dé".into(), changes)));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes.slice(..end)), Err("it ends too early"), "{end}");
        }
        for (at, byte, reason) in [
            (0, 2, "a newer version wrote it: update this program"),
            (6, 0xff, "a name is not UTF-8"),
            (11, 2, "it is longer than it says"),
            (12, 3, "it does something unknown: update this program"),
        ] {
            let mut wrong = bytes.to_vec();
            wrong[at] = byte;
            assert_eq!(read(&wrong.into()), Err(reason), "{at}");
        }
    }

    #[test]
    fn each_document_has_a_topic_of_its_own() {
        for (doc, expected) in [
            ("notes/a-b_C9", "d-notes/a-b_C9"),
            ("a.b", "d-a=2Eb"),
            ("a=2Eb", "d-a=3D2Eb"),
            (" *>é", "d-=20=2A=3E=C3=A9"),
        ] {
            assert_eq!(topic(doc), expected);
        }
    }

    #[test]
    fn writes_are_adapted_to_what_others_stored() {
        // FLEET-6
        for (what, stored, wanted, expected) in [
            ("the first", "", "+a1=x", "+a1=x"),
            ("behind those of others", "+b9=b", "+a1=x", "+a1=x"),
            (
                "a snapshot of everything",
                "+a1=x +b1=y",
                "!a1,b1=s",
                "!a1,b1=s",
            ),
            (
                "a compaction that lacks changes of others",
                "+a1=x +b1=y",
                "!a1=s",
                "",
            ),
            (
                "a snapshot with content that lacks others",
                "+b1=y",
                "!a1=s",
                "+a1=s",
            ),
            (
                "a snapshot of the updates with it",
                "",
                "+a1=x !a1=s",
                "!a1=s",
            ),
            ("updates after a snapshot", "", "!a1=s +a2=x", "!a1=s +a2=x"),
            ("deleted with what was before", "+a1=x", "+a2=y -", "-"),
            ("and begun anew", "+a1=x", "- +c1=z", "- +c1=z"),
            (
                "and begun anew with a snapshot",
                "+a1=x",
                "- !c1=z",
                "- !c1=z",
            ),
        ] {
            let mut documents = SharedDocuments::default();
            documents.apply(&"d".into(), 4, &changes(stored), true);
            let plan = documents.plan("d", &writes(wanted));
            assert_eq!(plan.after, 4, "{what}");
            assert_eq!(plan.changes, changes(expected), "{what}");
        }
    }

    #[test]
    fn the_worker_is_told_once_and_takes_all_that_others_did() {
        let doc: DocId = "d".into();
        let mut documents = SharedDocuments::default();
        assert!(!documents.apply(&doc, 1, &changes("+a1=own"), true));
        assert!(documents.apply(&doc, 2, &changes("+b1=1"), false));
        assert!(!documents.apply(&doc, 3, &changes("+b2=2"), false));
        // Read again after it was appended.
        assert!(!documents.apply(&doc, 3, &changes("+b2=2"), false));
        let (others, more) = documents.take("d");
        assert_eq!((others.deleted, more), (false, false));
        assert_eq!(others.data, ["1", "2"]);
        assert_eq!(others.size, (0, 5));
        assert_eq!(kept(&documents), "+own +1 +2");
        assert!(documents.apply(&doc, 4, &changes("!a1,b3=s"), false));
        assert_eq!(documents.take("d").0.data, ["s"]);
        assert_eq!(kept(&documents), "!s");
        let head = Head {
            version: version("a1,b3"),
            size: 1,
        };
        assert_eq!(documents.heads(), [(doc.clone(), head)]);
        assert_eq!(documents.place("d"), 4);
    }

    #[test]
    fn what_was_there_at_the_start_is_not_news() {
        let doc: DocId = "d".into();
        let mut documents = SharedDocuments::default();
        assert!(documents.read(&doc, 1, &changes("+a1=x - +b1=y"), false));
        documents.start();
        assert_eq!(
            documents.plan("d", &writes("+c1=z")).changes,
            changes("+c1=z")
        );
        assert!(
            documents.read(&doc, 2, &changes("+b2=z"), false),
            "what comes later is"
        );
        let (others, more) = documents.take("d");
        assert_eq!(
            (others.deleted, others.data, more),
            (false, vec!["z".into()], false)
        );
    }

    #[test]
    fn what_was_changed_before_a_deletion_was_seen_is_deleted_with_it() {
        // FLEET-7
        let doc: DocId = "d".into();
        let mut documents = SharedDocuments::default();
        documents.apply(&doc, 1, &changes("+a1=x"), true);
        assert!(documents.apply(&doc, 2, &changes("-"), false));
        assert!(!documents.apply(&doc, 3, &changes("+b1=new"), false));
        assert_eq!(documents.plan("d", &writes("+a2=late")).changes, []);
        let (others, more) = documents.take("d");
        assert!(others.deleted && more, "what came after it is taken next");
        assert_eq!(others.data, [""; 0]);
        // A change of before is still on its way to the store.
        assert_eq!(documents.plan("d", &writes("+a2=late")).changes, []);
        documents.absorb("d", others.deletions);
        let (others, more) = documents.take("d");
        assert_eq!((others.deleted, more), (false, false));
        assert_eq!(others.data, ["new"]);
        assert_eq!(
            documents.plan("d", &writes("+c1=y")).changes,
            changes("+c1=y")
        );
        assert_eq!(kept(&documents), "+new");
    }

    #[test]
    fn what_was_stored_although_it_seemed_to_fail_counts_as_of_others() {
        // FLEET-8
        let doc: DocId = "d".into();
        let mut documents = SharedDocuments::default();
        documents.begin(&doc);
        assert!(
            !documents.read(&doc, 1, &changes("+a1=x -"), true),
            "read before it was acknowledged"
        );
        assert!(!documents.apply(&doc, 1, &changes("+a1=x -"), true));
        assert!(!documents.end(&doc, false));
        assert_eq!(documents.take("d").0, Others::default());
        documents.begin(&doc);
        assert!(documents.end(&doc, true), "the worker looks again");
        documents.take("d");
        assert!(
            documents.read(&doc, 2, &changes("+a2=y"), true),
            "read after it was given up"
        );
        assert_eq!(documents.take("d").0.data, ["y"]);
    }

    #[test]
    fn nodes_that_read_the_same_records_keep_the_same() {
        let seed = std::env::var("BREAKBULK_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seeds = seed.map_or(0..200u64, |seed: u64| seed..seed + 1);
        for seed in seeds {
            let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut below = |limit: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % limit
            };
            let doc: DocId = "d".into();
            let mut nodes = [(); 3].map(|()| SharedDocuments::default());
            // What each node has read of the journal, and the content of all that was stored.
            let mut journal: Vec<(usize, Vec<Change>)> = Vec::new();
            let mut read = [0; 3];
            let mut counters = [0; 3];
            for _ in 0..60 {
                let node = below(3) as usize;
                while read[node] < journal.len() && below(3) > 0 {
                    let (_, changes) = &journal[read[node]];
                    read[node] += 1;
                    nodes[node].apply(&doc, read[node] as u64, changes, false);
                }
                counters[node] += 1;
                let peer = char::from(b'a' + node as u8);
                let heads = nodes[node].heads();
                let known = heads.first().map(|(_, head)| head.version.clone());
                let of = format!("{peer}{}", counters[node]);
                let of = union(&known.unwrap_or_default(), &version(&of));
                let data = Bytes::from(format!("{peer}{}", counters[node]));
                let head = Head {
                    version: of,
                    size: 0,
                };
                let doc_id = doc.clone();
                let wanted = match below(4) {
                    0 => Write::Replace {
                        doc: doc_id,
                        data,
                        head,
                    },
                    _ => Write::Append {
                        doc: doc_id,
                        data,
                        head,
                    },
                };
                // As the fence of the journal: only who has read everything may append.
                let plan = nodes[node].plan("d", &[wanted]);
                if plan.after == journal.len() as u64 && !plan.changes.is_empty() {
                    journal.push((node, plan.changes.clone()));
                    read[node] += 1;
                    nodes[node].apply(&doc, read[node] as u64, &plan.changes, true);
                }
            }
            for (node, read) in nodes.iter_mut().zip(read) {
                for (at, (_, changes)) in journal.iter().enumerate().skip(read) {
                    node.apply(&doc, at as u64 + 1, changes, false);
                }
            }
            let first = kept(&nodes[0]);
            assert!(
                nodes.iter().all(|node| kept(node) == first),
                "BREAKBULK_SEED={seed}"
            );
            // Whatever was ever appended after the last snapshot is there, in order.
            let last = journal
                .iter()
                .rposition(|(_, c)| c[0].kind == Kind::Replace);
            let tail = journal.iter().skip(last.unwrap_or(0));
            let tail: Vec<String> = tail
                .map(|(_, changes)| {
                    let kind = if changes[0].kind == Kind::Replace {
                        '!'
                    } else {
                        '+'
                    };
                    format!("{kind}{}", String::from_utf8_lossy(&changes[0].data))
                })
                .collect();
            assert_eq!(first, tail.join(" "), "BREAKBULK_SEED={seed}");
        }
    }
}
