//! Which peers may see, change, create and delete which documents.

use breakbulk_message::loro::PeerIdentity;

/// The peer of a channel. All of it is the peer's own claim, except for `subject`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The identity that the peer sent.
    pub identity: PeerIdentity,
    /// The name under which it connected: the subject of its authentication, or the `peerId` of its URL.
    pub claim: String,
    /// The name that the connection was authenticated with.
    pub subject: Option<String>,
    /// Whether this node dialed the peer.
    pub dialed: bool,
}

/// How much one connection may create and send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Documents that it creates.
    pub documents: usize,
    /// Bytes of changes that it sends.
    pub bytes: u64,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            documents: 1000,
            bytes: u64::MAX,
        }
    }
}

/// Decides which peers may see, change, create and delete which documents. Called for every message:
/// the methods must not block.
pub trait Permissions: Send + Sync + 'static {
    /// Whether the peer may read the document and learn that it exists.
    fn see(&self, _peer: &Peer, _doc: &str) -> bool {
        true
    }

    /// Whether the peer may change the document.
    fn change(&self, _peer: &Peer, _doc: &str) -> bool {
        true
    }

    /// Whether the peer may create the document by naming it.
    fn create(&self, _peer: &Peer, _doc: &str) -> bool {
        true
    }

    /// Whether the peer may delete the document.
    fn delete(&self, _peer: &Peer, _doc: &str) -> bool {
        false
    }

    /// How much one connection of the peer may create and send.
    fn quota(&self, _peer: &Peer) -> Quota {
        Quota::default()
    }
}

/// Every peer may do everything but delete, as in loro-extended.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenToAll;

impl Permissions for OpenToAll {}

/// For a client: only documents that the application opened are synced; peers cannot create or delete
/// one.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnDocuments;

impl Permissions for OwnDocuments {
    fn create(&self, _peer: &Peer, _doc: &str) -> bool {
        false
    }
}
