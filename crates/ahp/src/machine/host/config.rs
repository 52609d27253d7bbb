//! The numbers of a host, and the codes it closes connections with.

use std::time::Duration;

use breakbulk_message::ahp::PROTOCOL_VERSIONS;

use crate::Settings;
use crate::settings::SLOW_FOR;

/// What a host closes a connection with.
pub mod close {
    /// The host is shut down.
    pub const GOING_AWAY: u16 = 1001;
    /// The log failed: what was published is not safe, and nothing more becomes visible.
    pub const FAILED: u16 = 1011;
    /// The client reads too slowly, or there are too many: come back, and replay what was missed.
    pub const TRY_LATER: u16 = 1013;
    /// The client broke a rule of the protocol.
    pub const PROTOCOL: u16 = 4400;
    /// There is no protocol version in common.
    pub const VERSION: u16 = 4406;
    /// No handshake in time.
    pub const NO_HANDSHAKE: u16 = 4408;
    /// The same clientId came by another connection, which has taken over.
    pub const REPLACED: u16 = 4409;
    /// An action is larger than this client can take, or takes longer: reconnect for a snapshot.
    pub const TOO_LARGE: u16 = 4413;
}

/// How a host is set up. Each number bounds something that a client or a publisher could grow.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// What it allows and says on each connection.
    pub settings: Settings,
    /// The versions it speaks; a client's version fits where it is compatible with one of them.
    pub versions: Vec<String>,
    /// Actions are numbered above this, and above what the log has. A host without a log on disk
    /// sets it above all that clients may have seen of its former life.
    pub start_after: i64,
    /// Connections at a time. Each may have answers of `settings.queued_bytes` waiting for it;
    /// actions are shared among all.
    pub max_clients: usize,
    /// Clients whose limits are remembered while they are away; the one longest away goes first.
    pub max_sessions: usize,
    /// Requests of one client that the application works on; then no more of it is read.
    pub max_requests: usize,
    /// Channels of one client.
    pub max_subscriptions: usize,
    /// Bytes of the names of these channels.
    pub max_subscription_bytes: usize,
    /// Bytes of a clientId.
    pub max_client_id_bytes: usize,
    /// Bytes of actions that wait for the log.
    pub uncommitted_bytes: usize,
    /// Bytes of a replay, whatever the client would take; beyond there is a snapshot.
    pub max_replay_bytes: usize,
    /// How long a connection may take to introduce itself.
    pub handshake_timeout: Duration,
    /// For how long a client counts as slow after a transfer that was too slow for it.
    pub slow_for: Duration,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            versions: PROTOCOL_VERSIONS.map(str::to_owned).to_vec(),
            start_after: 0,
            max_clients: 1024,
            max_sessions: 4096,
            max_requests: 64,
            max_subscriptions: 1024,
            max_subscription_bytes: 256 << 10,
            max_client_id_bytes: 256,
            uncommitted_bytes: 64 << 20,
            max_replay_bytes: 64 << 20,
            handshake_timeout: Duration::from_secs(30),
            slow_for: SLOW_FOR,
        }
    }
}
