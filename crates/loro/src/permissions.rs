//! Who may do what.

use breakbulk_message::loro::PeerIdentity;

/// The other end of a channel, as far as it is known. Everything in it is the peer's own claim, but
/// what whoever authenticated the connection put into `claim`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What it says it is.
    pub identity: PeerIdentity,
    /// The name under which it came: the `peerId` of its address, or what stood for it.
    pub claim: String,
    /// Whether this side called it, rather than it this side.
    pub dialed: bool,
}

/// How much one connection may bring.
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

/// Who may see, change, create and delete which document. It is asked again for every message, and
/// must answer without waiting.
pub trait Permissions: Send + Sync + 'static {
    /// Whether the peer may read it, and learn that it exists.
    fn see(&self, _peer: &Peer, _doc: &str) -> bool {
        true
    }

    /// Whether the peer's changes are taken.
    fn change(&self, _peer: &Peer, _doc: &str) -> bool {
        true
    }

    /// Whether a document comes to be because the peer speaks of it.
    fn create(&self, _peer: &Peer, _doc: &str) -> bool {
        true
    }

    /// Whether the peer may have it deleted.
    fn delete(&self, _peer: &Peer, _doc: &str) -> bool {
        false
    }

    /// How much one connection of the peer may bring.
    fn quota(&self, _peer: &Peer) -> Quota {
        Quota::default()
    }
}

/// Everybody may do all but delete, as in the original.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenToAll;

impl Permissions for OpenToAll {}

/// As a client has it: only documents that were opened here are synced, and nobody else makes or
/// deletes one.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnDocuments;

impl Permissions for OwnDocuments {
    fn create(&self, _peer: &Peer, _doc: &str) -> bool {
        false
    }
}
