//! How much a session takes.

use std::time::Duration;

use breakbulk_message::vscode::Limits;

/// The numbers of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// What is read of a message.
    pub received: Limits,
    /// The largest message that is sent.
    pub sent_message: usize,
    /// Calls of ours without a reply.
    pub pending_calls: usize,
    /// Requests of the peer's without a reply. Beyond it none is read; where reading must go on,
    /// since our own calls wait for replies, a request more is answered with an error.
    pub running: usize,
    /// The same in bytes.
    pub running_bytes: usize,
    /// Bytes waiting to be sent, from which on no call is taken and no request is begun.
    pub queued_bytes: usize,
    /// Bytes waiting to be sent, from which on the peer counts as one that does not read, and the
    /// session ends.
    pub unread_bytes: usize,
    /// After so long without an acknowledgement, while some are owed, the peer is unresponsive.
    pub unresponsive_after: Duration,
    /// How often that is looked at.
    pub check_every: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            received: Limits::default(),
            sent_message: 100 << 20,
            pending_calls: 65_536,
            running: 65_536,
            running_bytes: 256 << 20,
            queued_bytes: 64 << 20,
            unread_bytes: 512 << 20,
            unresponsive_after: Duration::from_secs(3),
            check_every: Duration::from_secs(1),
        }
    }
}
