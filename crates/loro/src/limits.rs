//! The numbers that bound what peers can cause.

use std::time::Duration;

/// Each bounds something that a peer could grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Documents in all.
    pub documents: usize,
    /// Bytes of one document as it is kept.
    pub document_bytes: u64,
    /// Bytes of a document's name.
    pub doc_id: usize,
    /// Documents that one connection is told about.
    pub subscriptions: usize,
    /// Messages in one frame, those of batches counted one by one.
    pub batch: usize,
    /// Entries of a version vector.
    pub version_entries: usize,
    /// Ephemeral stores that come by one connection.
    pub stores: usize,
    /// Bytes of those stores.
    pub store_bytes: usize,
    /// Bad messages within a minute; one more and the connection is closed.
    pub faults: u32,
    /// How long a new connection may take to say who it is.
    pub establish: Duration,
    /// How often the stores of this side are told again; others are forgotten after four times that.
    pub heartbeat: Duration,
    /// Messages of one connection that are being worked on before it is read further.
    pub in_work: usize,
    /// Bytes of documents in memory that nobody holds open.
    pub loaded_bytes: u64,
    /// Documents in memory that nobody holds open.
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
