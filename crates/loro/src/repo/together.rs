//! Imports changes that wait for one document with one call of `loro`.
//!
//! If changes were made in parallel, `loro` reads the history again on each import, back to where they
//! diverged. Imported one by one, the changes of a few busy peers take longer than it took to make them. The
//! result of each change is still reported separately.

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

/// The result of importing changes together.
pub(super) enum Together {
    /// They are imported: what each wrote, and its result.
    Imported(Vec<(Vec<Write>, Finished)>),
    /// This many of them, at least one, must be imported one by one, which finds out which one is invalid.
    OneByOne(usize),
}

impl Worker {
    /// Imports the first of these changes together, as many as depend on nothing that is missing.
    pub(super) fn import_together(&mut self, doc: &DocId, jobs: &[Job]) -> Together {
        let all: Vec<&Bytes> = jobs.iter().map_while(updates).collect();
        let bytes = all.iter().map(|data| data.len()).sum();
        // An import could complete changes that `loro` holds, so more than these would be imported.
        let loaded = self.docs.get(doc);
        if loaded.is_some_and(|loaded| loaded.gaps > 0) {
            return Together::OneByOne(jobs.len());
        }
        if all.len() < 2 || self.condition.refusal(bytes).is_some() {
            return Together::OneByOne(1);
        }
        // Checked before anything is decoded.
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
                // The document's version, not the import's: it may have had some of the changes, unrecorded.
                let reached = loaded.doc.oplog_vv();
                let all = all.iter().zip(complete);
                let each = all.map(|(data, meta)| report(loaded, data, &meta, &reached));
                let mut imported: Vec<_> = each.collect();
                if status.pending.is_some() {
                    let bytes = data.len();
                    loaded.hold(bytes, &status);
                }
                // The document is not reloaded here, which would lose changes that are not with the committer
                // yet: this few bytes cannot exceed the limit on held changes.
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

/// Joins updates, unless they become too large: they are all decoded at once.
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

/// What the first of these changes consist of, as many of them as lack no earlier change, repeat none of each
/// other's changes, and do not make the document too large.
fn complete(loaded: &Loaded, all: &[&Bytes], limit: u64) -> Vec<ImportBlobMetadata> {
    let mut complete = Vec::new();
    let (mut known, mut size) = (loaded.recorded.clone(), loaded.size());
    let mut own = VersionVector::new();
    for data in all {
        size = size.saturating_add(data.len() as u64);
        let Ok(meta) = crdt::meta(data) else {
            break;
        };
        let mut starts = meta.partial_start_vv.iter();
        let follows = starts.all(|(peer, start)| known.get(peer).copied().unwrap_or(0) >= *start);
        let has = |dependency| known.includes_id(dependency);
        // With holes the recorded version would include changes that are missing.
        let broken = expansion::has_holes(data);
        // `loro` refuses other content under the name of a known change, but only if that was imported before.
        let ends = |(peer, start): (&u64, &i32)| own.get(peer).is_some_and(|end| end > start);
        let again = meta.partial_start_vv.iter().any(ends);
        let alone = broken || again || !follows;
        if size > limit || alone || !meta.start_frontiers.iter().all(has) {
            break;
        }
        known.merge(&meta.partial_end_vv);
        own.merge(&meta.partial_end_vv);
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
        // Changes with a hole between them, which `loro` does not write: only those before the hole.
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
