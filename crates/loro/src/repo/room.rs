//! How much memory the loaded documents of all workers take, and when a worker must unload some.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::Limits;

/// Shared by all workers.
#[derive(Debug)]
pub(super) struct Room {
    /// Bytes of the documents that all workers have loaded.
    loaded: AtomicU64,
    /// Bytes that these documents may have together.
    limit: u64,
    /// Bytes and documents that each worker may have whatever the others do.
    share: u64,
    documents: usize,
}

impl Room {
    pub(super) fn new(limits: &Limits, workers: usize) -> Self {
        Self {
            loaded: AtomicU64::new(0),
            limit: limits.loaded_bytes,
            share: limits.loaded_bytes / workers as u64,
            documents: (limits.loaded / workers).max(1),
        }
    }

    /// Replaces a worker's part of the sum.
    pub(super) fn count(&self, before: u64, now: u64) {
        self.loaded.fetch_add(now, Ordering::Relaxed);
        self.loaded.fetch_sub(before, Ordering::Relaxed);
    }

    /// Whether a worker with this many must unload one. A worker with more than its share may keep it while
    /// the others leave room, so that a large document in use is not loaded again and again.
    pub(super) fn is_exceeded(&self, documents: usize, bytes: u64) -> bool {
        documents > self.documents
            || (bytes > self.share && self.loaded.load(Ordering::Relaxed) > self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // LORO-34
    #[test]
    fn what_others_leave_may_be_kept() {
        let limits = Limits::default().with(|limits| {
            limits.loaded_bytes = 100;
            limits.loaded = 4;
        });
        let room = Room::new(&limits, 2);
        room.count(0, 90);
        assert!(!room.is_exceeded(2, 90));
        assert!(room.is_exceeded(3, 90));
        room.count(0, 40);
        assert!(room.is_exceeded(1, 90), "both have too much");
        assert!(!room.is_exceeded(1, 40), "not more than its share");
        room.count(90, 0);
        assert!(!room.is_exceeded(1, 90));
    }
}
