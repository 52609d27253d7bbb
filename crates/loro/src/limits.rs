//! The numbers that bound what peers can cause.

use std::time::Duration;

/// Limits on what peers can cause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Documents in all, not counting those without content.
    pub documents: usize,
    /// Documents without content, which exist because a peer subscribed to a name.
    pub empty_documents: usize,
    /// Documents without content that each connection may name even when `empty_documents` is reached.
    pub empty_share: usize,
    /// Stored bytes of one document.
    pub document_bytes: u64,
    /// Bytes that one document may have uncompressed: a peer's few bytes may become very many.
    pub expanded_bytes: u64,
    /// Stored bytes of all documents.
    pub all_document_bytes: u64,
    /// Bytes of a document's name.
    pub doc_id: usize,
    /// Documents that one connection may subscribe to.
    pub subscriptions: usize,
    /// Subscriptions of all connections together.
    pub all_subscriptions: usize,
    /// Subscriptions that each connection may have even when `all_subscriptions` is reached.
    pub subscription_share: usize,
    /// Messages in one frame, including those inside batches.
    pub batch: usize,
    /// Entries of a version vector.
    pub version_entries: usize,
    /// Keys of ephemeral stores that one connection brings.
    pub stores: usize,
    /// Bytes of those keys and their values.
    pub store_bytes: usize,
    /// Bytes of the ephemeral stores of all connections together; each connection may have a 64th of
    /// `store_bytes` even when they are reached.
    pub all_store_bytes: usize,
    /// Invalid messages of one connection within a minute; one more closes it.
    pub faults: u32,
    /// How long a new connection may take to establish.
    pub establish: Duration,
    /// How often this node's ephemeral stores are sent again; keys that nobody
    /// refreshes are forgotten after four times that.
    pub heartbeat: Duration,
    /// Unfinished messages of one connection; at this number reading from it pauses.
    pub in_work: usize,
    /// Tasks of one connection under way at a time; its further changes wait.
    pub tasks: usize,
    /// Exports for one connection under way at a time.
    pub answers: usize,
    /// Messages in a connection's send queue; above this, responses and changes are held back until the
    /// peer reads, and changes of a document are merged.
    pub queue_messages: usize,
    /// Bytes in a connection's send queue; above this the same happens. One larger message may pass.
    pub queue_bytes: usize,
    /// Bytes of the requests of one connection that wait for its peer to read.
    pub waiting_bytes: usize,
    /// The same for all connections together.
    pub all_waiting_bytes: usize,
    /// Bytes in the send queues of all connections together; a message queued for many counts once.
    pub outbound_bytes: usize,
    /// Bytes of memory, about, of documents that may stay loaded while nobody has them open. They take
    /// several times their stored bytes.
    pub loaded_bytes: u64,
    /// Documents that may stay loaded while nobody has them open.
    pub loaded: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            documents: 100_000,
            empty_documents: 10_000,
            empty_share: 32,
            document_bytes: 256 << 20,
            expanded_bytes: 512 << 20,
            all_document_bytes: u64::MAX,
            doc_id: 512,
            subscriptions: 100_000,
            all_subscriptions: 500_000,
            subscription_share: 256,
            batch: 4096,
            version_entries: 65_536,
            stores: 1024,
            store_bytes: 256 << 10,
            all_store_bytes: 16 << 20,
            faults: 16,
            establish: Duration::from_secs(30),
            heartbeat: Duration::from_secs(10),
            in_work: 256,
            tasks: 64,
            answers: 16,
            queue_messages: 256,
            queue_bytes: 1 << 20,
            waiting_bytes: 4 << 20,
            all_waiting_bytes: 32 << 20,
            outbound_bytes: 512 << 20,
            loaded_bytes: 256 << 20,
            loaded: 1024,
        }
    }
}

breakbulk_link::with!(Limits);
