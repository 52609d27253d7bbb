//! What an endpoint allows and how long it waits.

use std::collections::BTreeSet;
use std::time::Duration;

use super::PublicKey;

/// What a relay takes where it does not say.
pub const EVENT_MAX: usize = 65_536;

/// Whether messages are sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// Never; gift wraps are not even listened for.
    Disabled,
    /// A client seals unless the server said it cannot open; a server answers as it was asked.
    #[default]
    Optional,
    /// Always; a bare message is refused.
    Required,
}

/// Which gift wraps are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wraps {
    /// Those that relays keep, until the peer says that it takes the others.
    #[default]
    Any,
    /// Those that relays keep (kind 1059).
    Persistent,
    /// Those that relays forget (kind 21059).
    Ephemeral,
}

/// How long is waited for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the next sign of life of a request: its answer, a frame, progress. `None`: for ever.
    pub soft: Option<Duration>,
    /// For a request's answer, whatever comes meanwhile.
    pub hard: Option<Duration>,
    /// For the leave of a server of which nothing is known.
    pub accept: Duration,
    /// For the answer to the question what a server can do.
    pub learn: Duration,
    /// For a whole transfer that comes in, from its start.
    pub transfer: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            soft: Some(Duration::from_secs(120)),
            hard: Some(Duration::from_secs(3600)),
            accept: Duration::from_secs(30),
            learn: Duration::from_secs(15),
            transfer: Duration::from_secs(300),
        }
    }
}

/// The numbers that bound what peers can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one message.
    pub message: usize,
    /// Chunks of one message.
    pub chunks: u64,
    /// Unfinished transfers of one peer.
    pub transfers: usize,
    /// Memory for what one peer sends.
    pub peer_memory: usize,
    /// Memory for what all peers send.
    pub memory: usize,
    /// Peers at once. Keys are free to make.
    pub peers: usize,
    /// Requests of one peer that wait for our answer.
    pub requests: usize,
    /// Messages that wait to go out to one peer.
    pub queued: usize,
    /// Bytes of them: whoever sends more waits. One message may always go.
    pub queued_bytes: usize,
    /// Event ids that are remembered, so that each counts once.
    pub remembered: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message: 100 << 20,
            chunks: 10_000,
            transfers: 64,
            peer_memory: 256 << 20,
            memory: 1 << 30,
            peers: 1024,
            requests: 256,
            queued: 1024,
            queued_bytes: 64 << 20,
            remembered: 1 << 16,
        }
    }
}

/// What both ends have in common.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether messages are sealed.
    pub encryption: Encryption,
    /// Which gift wraps are used.
    pub wraps: Wraps,
    /// The numbers that bound what peers can cause.
    pub limits: Limits,
    /// How long is waited for what.
    pub timeouts: Timeouts,
    /// A message whose event would be larger is cut, where it can be.
    pub cut_above: usize,
    /// No event is larger. What the relays say counts too.
    pub event_max: usize,
    /// Further tags for the first event to each peer, such as `["name", "…"]`.
    pub introduction: Vec<Vec<String>>,
    /// Who may speak to us; `None`: everybody.
    pub allowed: Option<BTreeSet<PublicKey>>,
    /// Whether our requests get a token, without which no large answer can come.
    pub add_tokens: bool,
    /// Whether our key is new: then no server can have learned of it before.
    pub fresh_key: bool,
    /// Whether a large request goes to an unknown server without its leave.
    pub unasked: bool,
    /// Messages at least this large are looked at where it holds up nobody.
    pub plan_elsewhere: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            encryption: Encryption::default(),
            wraps: Wraps::default(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            cut_above: 48_000,
            event_max: EVENT_MAX,
            introduction: Vec::new(),
            allowed: None,
            add_tokens: true,
            fresh_key: false,
            unasked: false,
            plan_elsewhere: Some(256 << 10),
        }
    }
}
