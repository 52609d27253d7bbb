//! Whether the store takes changes, and how much is stored: known to the committer and to all workers, so
//! that a change which cannot be stored is refused before it is imported.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use breakbulk_link::lock;

#[derive(Debug)]
pub(super) struct Condition {
    /// Why no change is accepted.
    refusing: Mutex<Option<String>>,
    /// Bytes of all documents.
    bytes: AtomicU64,
    limit: u64,
}

impl Condition {
    pub(super) fn new(bytes: u64, limit: u64) -> Self {
        Self {
            refusing: Mutex::new(None),
            bytes: AtomicU64::new(bytes),
            limit,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn refuse(&self, reason: Option<String>) {
        *lock(&self.refusing) = reason;
    }

    /// Why no change is accepted, if none is.
    pub(super) fn refusing(&self) -> Option<String> {
        lock(&self.refusing).clone()
    }

    /// Why a change of so many bytes is not accepted.
    pub(super) fn refusal(&self, more: usize) -> Option<String> {
        let total = self.bytes().saturating_add(more as u64);
        self.refusing().or_else(|| self.too_large(total))
    }

    /// Why all documents together may not have so many bytes.
    pub(super) fn too_large(&self, total: u64) -> Option<String> {
        let limit = self.limit;
        (total > limit).then(|| {
            format!(
                "all documents would take {total} bytes, {limit} are allowed: delete documents, or allow more"
            )
        })
    }
}
