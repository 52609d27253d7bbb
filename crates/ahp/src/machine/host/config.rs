//! The numbers of a host, and the codes it closes connections with.

use std::time::Duration;

use breakbulk_message::ahp::PROTOCOL_VERSIONS;

use crate::Config;
use crate::config::SLOW_FOR;

/// The codes that a host closes connections with.
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
    /// A message is too large for this client, or took too long to send: reconnect for a snapshot.
    pub const TOO_LARGE: u16 = 4413;
}

/// The configuration of a host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostConfig {
    /// What it allows and advertises on each connection.
    pub connection: Config,
    /// The numbers that bound what clients and publishers can cause.
    pub limits: HostLimits,
    /// The protocol versions it speaks; a client's version fits if it is compatible with one of them.
    pub versions: Vec<String>,
    /// Actions are numbered above this, and above what the log has. A host without a log on disk
    /// sets it above every number that clients may have seen before it was restarted.
    pub start_after: i64,
    /// How long a new connection may take until its `initialize` or `reconnect`.
    pub handshake_timeout: Duration,
    /// For how long a client counts as slow after a transfer that was too slow for it.
    pub slow_for: Duration,
}

/// The limits of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostLimits {
    /// Connections at a time. Each may have answers of `connection.limits.queued_bytes` waiting for it;
    /// actions are shared among all.
    pub clients: usize,
    /// Clients whose limits are remembered while they are away; the one longest away is forgotten first.
    pub sessions: usize,
    /// Requests of one client that the application works on; at this number reading from it pauses.
    pub requests: usize,
    /// Channels that one client is subscribed to.
    pub subscriptions: usize,
    /// Bytes of the names of these channels.
    pub subscription_bytes: usize,
    /// Bytes of a clientId.
    pub client_id_bytes: usize,
    /// Bytes of actions that wait for the log.
    pub uncommitted_bytes: usize,
    /// Bytes of a replay, whatever the client would accept; a client that missed more gets a snapshot.
    pub replay_bytes: usize,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            connection: Config::default(),
            limits: HostLimits::default(),
            versions: PROTOCOL_VERSIONS.map(str::to_owned).to_vec(),
            start_after: 0,
            handshake_timeout: Duration::from_secs(30),
            slow_for: SLOW_FOR,
        }
    }
}

impl Default for HostLimits {
    fn default() -> Self {
        Self {
            clients: 1024,
            sessions: 4096,
            requests: 64,
            subscriptions: 1024,
            subscription_bytes: 256 << 10,
            client_id_bytes: 256,
            uncommitted_bytes: 64 << 20,
            replay_bytes: 64 << 20,
        }
    }
}

breakbulk_link::with!(HostConfig, HostLimits);
