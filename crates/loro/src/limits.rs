//! The numbers that bound what peers can cause.

use std::time::Duration;

/// Limits on what peers can cause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Documents in all.
    pub documents: usize,
    /// Stored bytes of one document.
    pub document_bytes: u64,
    /// Bytes of a document's name.
    pub doc_id: usize,
    /// Documents that one connection may subscribe to.
    pub subscriptions: usize,
    /// Messages in one frame, including those inside batches.
    pub batch: usize,
    /// Entries of a version vector.
    pub version_entries: usize,
    /// Ephemeral stores of one connection.
    pub stores: usize,
    /// Bytes of those stores.
    pub store_bytes: usize,
    /// Invalid messages of one connection within a minute; one more closes it.
    pub faults: u32,
    /// How long a new connection may take to establish.
    pub establish: Duration,
    /// How often this node's ephemeral stores are sent again; a peer's are removed after four times that.
    pub heartbeat: Duration,
    /// Unfinished messages of one connection; at this number reading from it pauses.
    pub in_work: usize,
    /// Bytes of documents that may stay loaded while nobody has them open.
    pub loaded_bytes: u64,
    /// Documents that may stay loaded while nobody has them open.
    pub loaded: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            documents: 100_000,
            document_bytes: 256 << 20,
            doc_id: 512,
            subscriptions: 10_000,
            batch: 4096,
            version_entries: 65_536,
            stores: 64,
            store_bytes: 256 << 10,
            faults: 16,
            establish: Duration::from_secs(30),
            heartbeat: Duration::from_secs(10),
            in_work: 256,
            loaded_bytes: 256 << 20,
            loaded: 1024,
        }
    }
}

breakbulk_link::with!(Limits);
