//! Configuration of a machine: encryption, limits, timeouts, event sizes.

use std::collections::BTreeSet;
use std::time::Duration;

use super::PublicKey;

/// The event size that is assumed of a relay that announces none.
pub const EVENT_MAX: usize = 65_536;

/// Whether messages are encrypted in gift wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// Never; a server answers an encrypted request with an error.
    Disabled,
    /// A client encrypts unless the server announced no support; a server responds in the form of the
    /// request.
    #[default]
    Optional,
    /// Always; an unencrypted message is refused.
    Required,
}

/// Which gift wraps are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wraps {
    /// Persistent ones, until the peer announces support for ephemeral ones.
    #[default]
    Any,
    /// Those that relays store (kind 1059).
    Persistent,
    /// Those that relays do not store (kind 21059).
    Ephemeral,
}

/// How long to wait, for each kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// For the first event of a server, since the request last made progress: until then nobody knows
    /// whether the server exists. `None`: for ever.
    pub first: Option<Duration>,
    /// For any sign of life of a request: its response, a frame, progress. `None`: for as long as `hard`
    /// says, since a tool that is at work may send nothing.
    pub soft: Option<Duration>,
    /// For a request's response, whatever progress it makes.
    pub hard: Option<Duration>,
    /// For `accept` from a server whose support is unknown.
    pub accept: Duration,
    /// For the response to the `ping` that asks an unknown server for its discovery tags.
    pub learn: Duration,
    /// For a whole incoming transfer, from its `start`.
    pub transfer: Duration,
    /// How long after its `end` a request in chunks is answered at the earliest: clients of the TypeScript
    /// SDK expect the response only once their relay has confirmed the `end`.
    pub hold_response: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            first: Some(Duration::from_secs(120)),
            soft: None,
            hard: Some(Duration::from_secs(3600)),
            accept: Duration::from_secs(30),
            learn: Duration::from_secs(15),
            transfer: Duration::from_secs(300),
            hold_response: Duration::from_millis(250),
        }
    }
}

/// The numbers that bound what peers can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one message.
    pub message: usize,
    /// Chunks of one message.
    pub chunks: u64,
    /// Unfinished incoming transfers of one peer.
    pub transfers: usize,
    /// Memory for what one peer sends.
    pub peer_memory: usize,
    /// Memory for what all peers send.
    pub memory: usize,
    /// Peers at once; more evict idle ones. Anybody can make any number of keys.
    pub peers: usize,
    /// Open requests from one peer.
    pub requests: usize,
    /// Messages queued to one peer.
    pub queued: usize,
    /// Bytes of them: `send` waits above this. One message is always accepted.
    pub queued_bytes: usize,
    /// Event ids remembered, to drop duplicates. If more come within [`Config::window`], the older ones
    /// of that time are refused.
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

/// Configuration of a client or a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Whether messages are encrypted in gift wraps.
    pub encryption: Encryption,
    /// Which gift wraps are used.
    pub wraps: Wraps,
    /// The numbers that bound what peers can cause.
    pub limits: Limits,
    /// How long to wait, for each kind of event.
    pub timeouts: Timeouts,
    /// A message whose event would be larger is sent in chunks, if it can be.
    pub cut_above: usize,
    /// The largest event, unless the relays announce a smaller one.
    pub event_max: usize,
    /// Tags that are sent with the discovery tags, such as `["name", "…"]`.
    pub introduction: Vec<Vec<String>>,
    /// The clients that a server accepts; `None`: all.
    pub allowed: Option<BTreeSet<PublicKey>>,
    /// Clients for which a quarter of [`Limits::peers`] is kept free if a server accepts all: anybody can
    /// make any number of keys.
    pub known: BTreeSet<PublicKey>,
    /// How far the time of an event, by its author's clock, may be from ours, either way: clocks that
    /// differ and slow relays included. Older events are refused, since nobody remembers for ever which
    /// ones were heard.
    pub window: Duration,
    /// Whether requests get a progress token, without which no large response can come. For the
    /// endpoints: the machine itself adds none, see [`Prepared::outgoing`](super::Prepared::outgoing).
    pub add_tokens: bool,
    /// Whether this side's key is new, so that no server can know it from before.
    pub fresh_key: bool,
    /// Whether a large request is sent to an unknown server without waiting for `accept`.
    pub unasked: bool,
    /// Messages at least this large are planned by a [`PlanJob`](breakbulk_link::PlanJob): the caller
    /// must serve [`Machine::poll_plan`](super::Machine::poll_plan), or they are never sent.
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
            known: BTreeSet::new(),
            window: Duration::from_secs(600),
            add_tokens: true,
            fresh_key: false,
            unasked: false,
            plan_elsewhere: Some(256 << 10),
        }
    }
}

breakbulk_link::with!(Config, Limits, Timeouts);
