//! Why a call to a peer failed or ended.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::Closed;
use breakbulk_net::{Mismatch, http, ws};

/// Why a call to a peer failed or ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// No WebSocket.
    #[error(transparent)]
    WebSocket(Arc<ws::ConnectError>),
    /// No connection over HTTP.
    #[error(transparent)]
    Http(Arc<http::ConnectError>),
    /// What a caller's own way to connect says.
    #[error(transparent)]
    Connect(Arc<dyn Error + Send + Sync>),
    /// An address that asks for a transport that there is not.
    #[error("no transport is called {name}: use sse, poll or webrtc (where it is built in)")]
    UnknownTransport {
        /// Its name.
        name: String,
    },
    /// The transport does not carry these frames.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The server did not say that messages may come.
    #[error("the server did not say ready within {} s", within.as_secs())]
    NotReady {
        /// How long it was waited.
        within: Duration,
    },
    /// The connection ended before the server was ready.
    #[error("closed with {0} before it was ready")]
    ClosedEarly(Closed),
    /// The connection was there, and ended.
    #[error("{0}")]
    Ended(Closed),
    /// This side hung up.
    #[error("this side hung up")]
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
