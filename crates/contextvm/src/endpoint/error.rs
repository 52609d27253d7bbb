//! Why an endpoint could not be opened or did not queue a message.

use breakbulk_net::nostr::RelaysError;

/// Why a message was not queued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The text is not a JSON-RPC message.
    #[error(transparent)]
    NotJsonRpc(#[from] crate::machine::NotJsonRpc),
    /// The machine did not queue it.
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
    /// No relay could be used.
    #[error(transparent)]
    Relays(#[from] RelaysError),
}
