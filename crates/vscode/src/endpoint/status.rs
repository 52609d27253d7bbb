//! How a session stands.

use bytes::Bytes;

/// How a session stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The peer acknowledges what it is asked.
    pub responsive: bool,
    /// There is a stream; false while a persistent session waits for another.
    pub connected: bool,
    /// Which stream it has, or had last, counted from 1.
    pub stream: u64,
    /// The handshake is over, or there was none.
    pub initialized: bool,
    /// What the renderer said in the handshake, where this is the host.
    pub init_data: Option<Bytes>,
    /// The session is over, and why.
    pub ended: Option<Ended>,
}

/// Why a session is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// This side ended it.
    #[error("Canceled")]
    Disposed,
    /// The peer left: it said so, or closed its stream after a whole message.
    #[error("the peer has left")]
    Left,
    /// The peer asked this side to end.
    #[error("the peer asked to terminate")]
    Terminated,
    /// The stream broke.
    #[error("the connection is lost: {0}")]
    Lost(String),
    /// A limit was reached or a rule broken.
    #[error("{0}")]
    Failed(String),
}
