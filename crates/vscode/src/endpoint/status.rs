//! The status of a session, and why it ended.

use bytes::Bytes;

/// The status of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The peer acknowledges requests in time.
    pub responsive: bool,
    /// There is a stream; false while a persistent session waits for another.
    pub connected: bool,
    /// The number of its stream, or of the last one, counted from 1.
    pub stream: u64,
    /// The handshake is over, or there was none.
    pub initialized: bool,
    /// The renderer's initialization data, if this is the host.
    pub init_data: Option<Bytes>,
    /// The session is over, and why.
    pub ended: Option<Ended>,
}

/// Why a session ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// This side ended it.
    #[error("this side ended the session")]
    Disposed,
    /// The peer disconnected: it sent a disconnect, or closed its stream between messages.
    #[error("the other end disconnected")]
    Left,
    /// The peer asked this side to exit.
    #[error("the other end asked this side to exit")]
    Terminated,
    /// The stream broke.
    #[error("the connection is lost: {0}")]
    Lost(String),
    /// A limit was reached or a rule broken.
    #[error("{0}")]
    Failed(String),
}
