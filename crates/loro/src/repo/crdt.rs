//! The border to the crate `loro`: whatever bytes of a peer's do there, they do no more than fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use breakbulk_message::loro::VersionVector;
use bytes::Bytes;
use loro::{ExportMode, ImportStatus, LoroDoc};

/// Why loro did not do it.
#[derive(Debug)]
pub(super) enum CrdtError {
    /// It says so.
    Refused(String),
    /// It panicked: the document's locks may be poisoned, and it is not to be used any more.
    Panicked,
}

/// Takes changes.
pub(super) fn import(doc: &LoroDoc, data: &[u8]) -> Result<ImportStatus, CrdtError> {
    guarded(|| doc.import(data).map_err(|error| error.to_string()))
}

/// The whole document.
pub(super) fn snapshot(doc: &LoroDoc) -> Result<Bytes, CrdtError> {
    guarded(|| {
        let exported = doc.export(ExportMode::Snapshot);
        exported.map_err(|error| error.to_string())
    })
    .map(Bytes::from)
}

/// What happened after a version.
pub(super) fn since(doc: &LoroDoc, version: &loro::VersionVector) -> Result<Bytes, CrdtError> {
    guarded(|| {
        let exported = doc.export(ExportMode::updates(version));
        exported.map_err(|error| error.to_string())
    })
    .map(Bytes::from)
}

/// How far the document is, with what is edited and not committed yet.
pub(super) fn version(doc: &LoroDoc) -> Result<loro::VersionVector, CrdtError> {
    guarded(|| {
        doc.commit();
        Ok(doc.oplog_vv())
    })
}

/// Lets go of a document that may be poisoned.
pub(super) fn discard(doc: LoroDoc) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(doc)));
}

fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, CrdtError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => outcome.map_err(CrdtError::Refused),
        Err(_) => Err(CrdtError::Panicked),
    }
}

/// The same version in the words of the wire, in the order of its peers.
pub(crate) fn to_wire(version: &loro::VersionVector) -> VersionVector {
    let mut entries: Vec<(u64, i32)> = version.iter().map(|(peer, to)| (*peer, *to)).collect();
    entries.retain(|(_, to)| *to > 0);
    entries.sort_unstable();
    entries.into_iter().collect()
}

/// The same version in loro's words.
pub(crate) fn from_wire(version: &VersionVector) -> loro::VersionVector {
    let known = version.entries().iter().filter(|(_, to)| *to > 0);
    let mut own = loro::VersionVector::new();
    for (peer, to) in known {
        own.insert(*peer, *to);
    }
    own
}
