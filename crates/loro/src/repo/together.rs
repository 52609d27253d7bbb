//! Imports changes that wait for one document with one call of `loro`.
//!
//! For changes that were made beside others `loro` reads the history again, back to where they parted, on each
//! import. One by one, the changes of a few busy peers take longer than they took to make. What each change
//! brought is reported on its own all the same.

use breakbulk_message::loro::Transmission;
use bytes::Bytes;
use loro::{ImportBlobMetadata, VersionVector};

use super::crdt::{self, CrdtError, to_wire};
use super::expansion;
use super::loaded::Loaded;
use super::worker::{Worker, garbage};
use super::{Job, joined};
use crate::machine::{DocId, Finished, Outcome, Work};
use crate::store::Write;

/// What became of some changes.
pub(super) enum Together {
    /// They are imported: what each wrote, and its result.
    Imported(Vec<(Vec<Write>, Finished)>),
    /// So many of them, at least one, have to be imported one by one, which finds out what is wrong with which.
    OneByOne(usize),
}

impl Worker {
    /// Imports the first of these changes together, as many as depend on nothing that is missing.
    pub(super) fn import_together(&mut self, doc: &DocId, jobs: &[Job]) -> Together {
        let all: Vec<&Bytes> = jobs.iter().map_while(updates).collect();
        let bytes = all.iter().map(|data| data.len()).sum();
        // With what is held until other changes come, more than these would be imported.
        let loaded = self.docs.get(doc);
        if loaded.is_some_and(|loaded| loaded.gaps > 0) {
            return Together::OneByOne(jobs.len());
        }
        if all.len() < 2 || self.condition.refusal(bytes).is_some() {
            return Together::OneByOne(1);
        }
        // Before anything is decoded.
        if join(&all, self.limits.expanded_bytes).is_none() {
            return Together::OneByOne(all.len());
        }
        let limit = self.limits.document_bytes;
        let Ok(loaded) = self.load(doc) else {
            return Together::OneByOne(1);
        };
        let complete = complete(loaded, &all, limit);
        let all = &all[..complete.len()];
        let Some(data) = joined::join(all).filter(|_| all.len() > 1) else {
            return Together::OneByOne(1);
        };
        match crdt::import(&loaded.doc, &data) {
            Ok(status) => {
                // Not what the import brought alone: some of it may have been there, unrecorded.
                let reached = loaded.doc.oplog_vv();
                let all = all.iter().zip(complete);
                let each = all.map(|(data, meta)| report(loaded, data, &meta, &reached));
                let mut imported: Vec<_> = each.collect();
                if status.pending.is_some() {
                    let bytes = data.len();
                    loaded.hold(bytes, &status);
                }
                // It is not reloaded here, which would lose what is not with the committer yet: so few bytes
                // cannot be too many that are held.
                if let Some((writes, finished)) = imported.last_mut() {
                    self.compact_or_reload(doc, None, writes);
                    if let Some(loaded) = self.docs.get(doc) {
                        finished.head = loaded.head();
                    }
                }
                Together::Imported(imported)
            }
            Err(CrdtError::Refused(_)) => Together::OneByOne(all.len()),
            Err(CrdtError::Panicked) => {
                let count = all.len();
                if let Err(error) = self.reload(doc, &mut []) {
                    tracing::warn!(%error, doc = &**doc, "a document could not be reloaded from the store");
                }
                Together::OneByOne(count)
            }
        }
    }
}

/// Updates as one, unless they would become too large: they are all decoded at once.
pub(super) fn join(all: &[&Bytes], limit: u64) -> Option<Bytes> {
    let data = joined::join(all)?;
    expansion::check(&data, limit).is_ok().then_some(data)
}

/// The changes of a peer that may be imported with others.
fn updates(job: &Job) -> Option<&Bytes> {
    match &job.work {
        Work::Import {
            data,
            snapshot: false,
        } if !job.is_cancelled() && joined::is_update(data) => Some(data),
        _ => None,
    }
}

/// What the first of these changes consist of, as far as nothing is missing before them and the document does
/// not become too large.
fn complete(loaded: &Loaded, all: &[&Bytes], limit: u64) -> Vec<ImportBlobMetadata> {
    let mut complete = Vec::new();
    let (mut known, mut size) = (loaded.recorded.clone(), loaded.size());
    for data in all {
        size = size.saturating_add(data.len() as u64);
        let Ok(meta) = crdt::meta(data) else {
            break;
        };
        let mut starts = meta.partial_start_vv.iter();
        let follows = starts.all(|(peer, start)| known.get(peer).copied().unwrap_or(0) >= *start);
        let has = |dependency| known.includes_id(dependency);
        // What is in a hole would seem to be there once the rest is.
        let broken = expansion::has_holes(data);
        if size > limit || broken || !follows || !meta.start_frontiers.iter().all(has) {
            break;
        }
        known.merge(&meta.partial_end_vv);
        complete.push(meta);
    }
    complete
}

/// Records one of the imported changes; `reached` is the version after all of them.
fn report(
    loaded: &mut Loaded,
    data: &Bytes,
    meta: &ImportBlobMetadata,
    reached: &VersionVector,
) -> (Vec<Write>, Finished) {
    let before = loaded.recorded.clone();
    let mut whole = true;
    for (peer, end) in meta.partial_end_vv.iter() {
        let reached = reached.get(peer).copied().unwrap_or(0);
        raise(&mut loaded.recorded, *peer, (*end).min(reached));
        whole &= *end <= reached;
    }
    let mut writes = Vec::new();
    let brought = match (loaded.recorded == before, whole) {
        (true, true) => Ok(Outcome::Imported(None)),
        (true, false) => Ok(Outcome::Gap),
        (false, true) => Ok(brought(loaded, (*data).clone(), &mut writes)),
        // Changes with a hole between them, which `loro` does not write: what came before the hole.
        (false, false) => {
            crdt::since(&loaded.doc, &before).map(|data| brought(loaded, data, &mut writes))
        }
    };
    let finished = Finished {
        head: loaded.head(),
        local: None,
        result: brought.map_err(|error| garbage(loaded.name(), &error)),
    };
    (writes, finished)
}

fn brought(loaded: &mut Loaded, data: Bytes, writes: &mut Vec<Write>) -> Outcome {
    let version = to_wire(&loaded.recorded);
    loaded.append(data.clone(), writes);
    Outcome::Imported(Some(Transmission::Update { data, version }))
}

fn raise(version: &mut VersionVector, peer: u64, end: i32) {
    if end > version.get(&peer).copied().unwrap_or(0) {
        version.insert(peer, end);
    }
}
