//! Storage of documents: a snapshot each, and the updates after it.
//!
//! [`MemoryStore`] lasts as long as the process. `DiskStore` (feature `redb`) survives crashes: what
//! [`Store::commit`] accepted is there after a power cut. `NatsStore` (feature `jetstream`) is shared by
//! several nodes, and survives the loss of any of them and of NATS servers.

#[cfg(feature = "redb")]
mod disk;
#[cfg(all(test, feature = "redb"))]
mod disk_tests;
mod memory;
#[cfg(feature = "jetstream")]
mod nats;
#[cfg(any(feature = "jetstream", test))]
mod shared;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod shared_tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::machine::{DocId, Head};
#[cfg(feature = "redb")]
pub use disk::DiskStore;
pub use memory::MemoryStore;
#[cfg(feature = "jetstream")]
pub use nats::NatsStore;

/// One change of the store.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Appends an update.
    Append {
        /// The document.
        doc: DocId,
        /// As loro exports it.
        data: Bytes,
        /// The document after it.
        head: Head,
    },
    /// Replaces everything stored of the document by a snapshot.
    Replace {
        /// The document.
        doc: DocId,
        /// As loro exports it.
        data: Bytes,
        /// The document after it.
        head: Head,
    },
    /// Deletes the document.
    Delete {
        /// The document.
        doc: DocId,
    },
}

/// A stored document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// The snapshot, if there is one.
    pub snapshot: Option<Bytes>,
    /// The updates after it, oldest first.
    pub updates: Vec<Bytes>,
}

/// Called when another node has changed a document of a shared store.
pub type OnOthers = Arc<dyn Fn(&DocId) + Send + Sync>;

/// What other nodes did to a document of a shared store since the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Whether it was deleted. What was stored after the deletion is returned by the next call.
    pub deleted: bool,
    /// Changes and snapshots, oldest first.
    pub data: Vec<Bytes>,
    /// The bytes of the stored snapshot and of the updates after it.
    pub size: (u64, u64),
    /// How many deletions by others there were, for [`Store::absorb`].
    pub deletions: u64,
}

/// Storage of documents. Only one thread writes.
pub trait Store: Send + 'static {
    /// All documents.
    fn documents(&self) -> Result<Vec<(DocId, Head)>, StoreError>;

    /// Applies all these writes, or none. When it returns they are durable, as far as this store
    /// promises. After an error the store refuses writes until it is recovered.
    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError>;

    /// After an error: makes the stored documents readable again, and checks whether there is room to write.
    /// Called from time to time until it succeeds.
    fn recover(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// A handle for reading on any thread.
    fn reader(&self) -> Arc<dyn StoreReader>;

    /// Sets a function to be called, from any thread, when other nodes change a document. Only a store that
    /// several nodes share calls it.
    fn on_others(&mut self, _notify: OnOthers) {}

    /// Reports that this node's copy of a document is without what this many deletions by others removed.
    /// Changes made to the copy before that count as deleted, too.
    fn absorb(&mut self, _doc: &DocId, _deletions: u64) {}
}

/// Reads a store while another thread writes.
pub trait StoreReader: Send + Sync + 'static {
    /// The stored document; empty if there is none.
    fn load(&self, doc: &str) -> Result<Kept, StoreError>;

    /// What other nodes did to the document since this was called last.
    fn others(&self, _doc: &str) -> Others {
        Others::default()
    }
}

/// Whether a store takes changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreStatus {
    /// The store accepts changes.
    #[default]
    Writable,
    /// It accepts none at the moment: documents can be read, and changes are refused until it has recovered.
    ReadOnly {
        /// Why.
        reason: String,
    },
    /// It will never accept changes again.
    Lost {
        /// Why.
        reason: String,
    },
}

/// Why a store cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The disk failed.
    #[error(
        "the document store {store} failed while {doing} ({reason}): see to the disk (space, rights, \
         health)"
    )]
    Disk {
        /// Which store.
        store: String,
        /// What it was doing.
        doing: &'static str,
        /// What the disk said.
        reason: String,
    },
    /// The servers of a shared store failed.
    #[error("the document store {store} cannot be used: {reason}")]
    Shared {
        /// Which store.
        store: String,
        /// What is wrong.
        reason: String,
    },
    /// An earlier commit failed.
    #[error("the document store {store} failed before and takes nothing until it has recovered")]
    Failed {
        /// Which store.
        store: String,
    },
    /// After an error it could not be opened again, because another thread was still reading from it.
    #[error(
        "the document store {store} cannot be opened again: {users} reads did not end within {} s; see \
         to the disk (does it hang?)", within.as_secs_f64()
    )]
    Busy {
        /// Which store.
        store: String,
        /// Reads and writes under way.
        users: usize,
        /// How long they were waited for.
        within: Duration,
    },
    /// The file is in use.
    #[error("the document store {store} is open in another process: stop that one first")]
    InUse {
        /// Which store.
        store: String,
    },
    /// The file is something else, or of another version.
    #[error("{store} is no document store of format {expected} ({reason}): give another file")]
    NotAStore {
        /// Which file.
        store: String,
        /// The format that this program reads.
        expected: u64,
        /// What is wrong.
        reason: String,
    },
}
