//! Why dialing a peer failed, or its connection ended.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::Closed;
use breakbulk_net::{Mismatch, http, ws};

/// Why dialing a peer failed, or its connection ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// The WebSocket could not be opened.
    #[error(transparent)]
    WebSocket(Arc<ws::ConnectError>),
    /// The HTTP connection could not be opened.
    #[error(transparent)]
    Http(Arc<http::ConnectError>),
    /// The caller's own connect function failed.
    #[error(transparent)]
    Connect(Arc<dyn Error + Send + Sync>),
    /// The URL names a transport that does not exist.
    #[error("no transport is called {name}: use sse, poll or webrtc (where it is built in)")]
    UnknownTransport {
        /// Its name.
        name: String,
    },
    /// The transport cannot carry these frames.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The server did not send `ready`.
    #[error("the server did not send ready within {} s: is this the address of a loro-extended server?", within.as_secs())]
    NotReady {
        /// How long it was waited.
        within: Duration,
    },
    /// The connection ended before the server was ready.
    #[error("closed with {0} before it was ready")]
    ClosedEarly(Closed),
    /// The connection was open, and ended.
    #[error("{0}")]
    Ended(Closed),
    /// This node closed the connection.
    #[error("this node closed the connection")]
    HungUp,
}

impl From<ws::ConnectError> for DialError {
    fn from(error: ws::ConnectError) -> Self {
        Self::WebSocket(Arc::new(error))
    }
}

impl From<http::ConnectError> for DialError {
    fn from(error: http::ConnectError) -> Self {
        Self::Http(Arc::new(error))
    }
}
