//! The server's options. Every number limits something that a client could otherwise make grow.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::Budget;

use super::authorize::{AllowAll, Authorize};
use super::dialect::Dialect;
use crate::gate::Refusals;
use crate::ws::{FRAGMENT, FRAME_LIMIT};

/// The options of a [`Server`](super::Server).
#[derive(Clone)]
pub struct ServeOptions {
    /// The protocol's paths, parameter names and answer texts.
    pub dialect: Dialect,
    /// Decides which clients may connect. The default allows all, and trusts their peer ids.
    pub authorize: Arc<dyn Authorize>,
    /// The origins of web pages that may connect; others get 403. `None` allows pages of this machine
    /// (loopback, or the same IP address that the request was sent to; a host name proves nothing), a
    /// list allows exactly those origins, `"*"` allows all. Programs other than browsers send no
    /// `Origin` and are not affected.
    pub allowed_origins: Option<Vec<String>>,
    /// The names in `Host` that are served beside those of this machine (`localhost` and loopback
    /// addresses); others get 403. A web page can make its own name stand for this machine (DNS
    /// rebinding), and then passes for a page of it. `None` allows any name if the authorizer authenticates
    /// clients, and where the connection did not come by a loopback address.
    pub allowed_hosts: Option<Vec<String>>,
    /// The largest body of a POST, in bytes; a larger one gets 413.
    pub body_max: usize,
    /// How many connections may be open, of all kinds of transport together; more get 503.
    pub connections: usize,
    /// How many of them one client address may have (IPv6: one /64 network; loopback addresses are not
    /// limited); more get 503.
    pub per_address: usize,
    /// Where refused clients are counted.
    pub refusals: Refusals,
    /// How many connected clients may wait for [`Arrivals::next`](super::Arrivals::next).
    pub arrivals: usize,
    /// How many POSTs of one connection may be in progress; more get 429.
    pub posts: usize,
    /// How many bytes of POST bodies may be buffered, of all connections together. When this is reached, the
    /// connection that holds most gives up a body for one that holds less; if none holds more, further POSTs
    /// get 503.
    pub posted_bytes: usize,
    /// The budget that POST bodies are charged to as well.
    pub budget: Option<Budget>,
    /// How long a POST may take: receiving its body, waiting until the link accepts the frame, and
    /// until the application has kept the message.
    pub post_time: Duration,
    /// The longest peer id, in bytes.
    pub peer_id_max: usize,
    /// The prefix of the names of sessions of [exchanges](crate::exchange), before their random part.
    pub exchange_prefix: String,
    /// How often an idle event stream sends a heartbeat.
    pub heartbeat: Duration,
    /// A polling client that sent no poll for this long is disconnected.
    pub stale: Duration,
    /// The longest wait that a poll may ask for.
    pub wait_max: Duration,
    /// How long a poll that has a message waits for more before it is answered.
    pub linger: Duration,
    /// A poll is answered once it has this many bytes; a larger message is an answer of its own.
    pub answer_max: usize,
    /// How long a client of an event stream may take to read an event, plus one second for each KiB; a
    /// slower one is disconnected.
    pub slow: Duration,
    /// The largest WebSocket message that is accepted.
    pub frame_limit: usize,
    /// A larger message is sent as WebSocket fragments of this size.
    pub fragment: Option<usize>,
    /// The options of data channels.
    #[cfg(feature = "webrtc")]
    pub webrtc: crate::webrtc::ChannelOptions,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            dialect: Dialect::default(),
            authorize: Arc::new(AllowAll),
            allowed_origins: None,
            allowed_hosts: None,
            body_max: 1 << 20,
            connections: 1024,
            per_address: 256,
            refusals: Refusals::default(),
            arrivals: 64,
            posts: 8,
            posted_bytes: 64 << 20,
            budget: None,
            post_time: Duration::from_secs(60),
            peer_id_max: 256,
            exchange_prefix: String::new(),
            heartbeat: Duration::from_secs(30),
            stale: Duration::from_secs(120),
            wait_max: Duration::from_secs(60),
            linger: Duration::from_millis(10),
            answer_max: 1 << 20,
            slow: Duration::from_secs(60),
            frame_limit: FRAME_LIMIT,
            fragment: Some(FRAGMENT),
            #[cfg(feature = "webrtc")]
            webrtc: crate::webrtc::ChannelOptions::default(),
        }
    }
}

impl std::fmt::Debug for ServeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServeOptions")
            .field("allowed_origins", &self.allowed_origins)
            .field("body_max", &self.body_max)
            .field("connections", &self.connections)
            .field("posts", &self.posts)
            .field("posted_bytes", &self.posted_bytes)
            .finish_non_exhaustive()
    }
}
