//! Why an endpoint could not be opened, or did not take a message.

use breakbulk_net::nostr::RelaysError;

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// It is no message.
    #[error(transparent)]
    NotJsonRpc(#[from] crate::machine::NotJsonRpc),
    /// It could not be queued.
    #[error(transparent)]
    Refused(#[from] crate::machine::Refused),
    /// The endpoint is closed.
    #[error("the endpoint is closed")]
    Closed,
}

/// Why an endpoint could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No relay.
    #[error(transparent)]
    Relays(#[from] RelaysError),
}
