//! Calls into the crate `loro`: turns its panics on a peer's bytes into errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use breakbulk_message::loro::VersionVector;
use bytes::Bytes;
use loro::{ExportMode, ImportBlobMetadata, ImportStatus, LoroDoc};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CrdtError {
    /// `loro` returned an error.
    #[error("{0}")]
    Refused(String),
    /// `loro` panicked: the document's locks may be poisoned, so it must not be used any more.
    #[error("the loro library failed with a panic")]
    Panicked,
}

/// Imports changes.
pub(super) fn import(doc: &LoroDoc, data: &[u8]) -> Result<ImportStatus, CrdtError> {
    guarded(|| doc.import(data).map_err(|error| error.to_string()))
}

/// Which changes these are. Their checksum is not looked at.
pub(super) fn meta(data: &[u8]) -> Result<ImportBlobMetadata, CrdtError> {
    guarded(|| LoroDoc::decode_import_blob_meta(data, false).map_err(|error| error.to_string()))
}

/// Exports the whole document.
pub(super) fn snapshot(doc: &LoroDoc) -> Result<Bytes, CrdtError> {
    guarded(|| {
        let exported = doc.export(ExportMode::Snapshot);
        exported.map_err(|error| error.to_string())
    })
    .map(Bytes::from)
}

/// Exports the changes after a version.
pub(super) fn since(doc: &LoroDoc, version: &loro::VersionVector) -> Result<Bytes, CrdtError> {
    guarded(|| {
        let exported = doc.export(ExportMode::updates(version));
        exported.map_err(|error| error.to_string())
    })
    .map(Bytes::from)
}

/// The document's version, after committing pending edits.
pub(super) fn version(doc: &LoroDoc) -> Result<loro::VersionVector, CrdtError> {
    guarded(|| {
        doc.commit();
        Ok(doc.oplog_vv())
    })
}

/// Drops a document that may be poisoned.
pub(super) fn discard(doc: LoroDoc) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(doc)));
}

fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, CrdtError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => outcome.map_err(CrdtError::Refused),
        Err(_) => Err(CrdtError::Panicked),
    }
}

/// Converts a version to the wire's type, sorted by peer.
pub(crate) fn to_wire(version: &loro::VersionVector) -> VersionVector {
    let mut entries: Vec<(u64, i32)> = version.iter().map(|(peer, to)| (*peer, *to)).collect();
    entries.retain(|(_, to)| *to > 0);
    entries.sort_unstable();
    entries.into_iter().collect()
}

/// Converts a version to loro's type.
pub(crate) fn from_wire(version: &VersionVector) -> loro::VersionVector {
    let known = version.entries().iter().filter(|(_, to)| *to > 0);
    let mut own = loro::VersionVector::new();
    for (peer, to) in known {
        own.insert(*peer, *to);
    }
    own
}
