//! Where documents are kept: a snapshot each, and the updates that came after it.
//!
//! [`MemoryStore`] lasts as long as the process. `DiskStore` (feature `redb`) survives the process and
//! the machine: what [`Store::commit`] took is there after a power cut.

#[cfg(feature = "redb")]
mod disk;
#[cfg(all(test, feature = "redb"))]
mod disk_tests;
mod memory;

use std::sync::Arc;

use bytes::Bytes;

use super::machine::{DocId, Head};
#[cfg(feature = "redb")]
pub use disk::DiskStore;
pub use memory::MemoryStore;

/// One change of the store.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// One more update.
    Append {
        /// The document.
        doc: DocId,
        /// As loro exports it.
        data: Bytes,
        /// The document after it.
        head: Head,
    },
    /// A snapshot instead of all that was there.
    Replace {
        /// The document.
        doc: DocId,
        /// As loro exports it.
        data: Bytes,
        /// The document after it.
        head: Head,
    },
    /// The document is gone.
    Delete {
        /// The document.
        doc: DocId,
    },
}

/// What is kept of a document, oldest first: a snapshot if there is one, then updates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// The snapshot.
    pub snapshot: Option<Bytes>,
    /// What came after it.
    pub updates: Vec<Bytes>,
}

/// Where documents are kept. One thread writes.
pub trait Store: Send + 'static {
    /// All documents.
    fn documents(&self) -> Result<Vec<(DocId, Head)>, StoreError>;

    /// Makes all these changes, or none. When it returns they survive whatever the store promises to
    /// survive. After an error the store takes nothing more until it is opened again.
    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError>;

    /// A handle that reads on any thread.
    fn reader(&self) -> Arc<dyn StoreReader>;
}

/// Reads a store that someone else writes.
pub trait StoreReader: Send + Sync + 'static {
    /// What is kept of a document; nothing, if it is not there.
    fn load(&self, doc: &str) -> Result<Kept, StoreError>;
}

/// Why a store cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The disk failed.
    #[error(
        "the document store {store} failed while {doing} ({reason}): see to the disk (space, rights, \
         health), then open the store again"
    )]
    Disk {
        /// Which store.
        store: String,
        /// What it was doing.
        doing: &'static str,
        /// What the disk said.
        reason: String,
    },
    /// It failed before.
    #[error("the document store {store} failed before and takes nothing: open it again")]
    Failed {
        /// Which store.
        store: String,
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
