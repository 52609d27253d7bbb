//! Limits and times of a session.

use std::time::Duration;

use breakbulk_message::vscode::Limits;

/// Limits and times of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Limits on received messages.
    pub received: Limits,
    /// The largest message to send.
    pub sent_message: usize,
    /// Calls without a reply.
    pub pending_calls: usize,
    /// Requests from the peer without a reply. At this number reading pauses. If reading must go on
    /// because calls wait for replies, further requests get an error.
    pub running: usize,
    /// The same in bytes.
    pub running_bytes: usize,
    /// Bytes queued for sending from which on calls are refused and requests wait.
    pub queued_bytes: usize,
    /// Bytes queued for sending at which the session ends, since the peer does not read.
    pub unread_bytes: usize,
    /// The peer is unresponsive after this long without an acknowledgement, while requests are
    /// unacknowledged.
    pub unresponsive_after: Duration,
    /// How often that is checked.
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

breakbulk_link::with!(Config);
