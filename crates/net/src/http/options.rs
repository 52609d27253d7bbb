//! What a server allows. Every number bounds something that a client could make grow.

use std::sync::Arc;
use std::time::Duration;

use super::authorize::{Anybody, Authorize};
use super::dialect::Dialect;
use crate::ws::{FRAGMENT, FRAME_LIMIT};

/// How to serve.
#[derive(Clone)]
pub struct ServeOptions {
    /// What the protocol calls its paths, parameters and answers.
    pub dialect: Dialect,
    /// Who may come in. By default everybody: a peer id is only a claim.
    pub authorize: Arc<dyn Authorize>,
    /// Whose web pages may connect; others get 403. `None` lets in pages of this machine itself
    /// (loopback, or the very IP address that was asked for; a name proves nothing), a list lets in
    /// exactly those origins, `"*"` all. Programs that are no browser send no `Origin`.
    pub allowed_origins: Option<Vec<String>>,
    /// Bytes of a POST's body; more gets 413.
    pub body_max: usize,
    /// How many connections may be open, of all ways together; more get 503.
    pub connections: usize,
    /// How many may wait for [`Arrivals::next`](super::Arrivals::next).
    pub arrivals: usize,
    /// POSTs of one connection that may be under way; more get 429.
    pub posts: usize,
    /// Bytes of all bodies that are held at once, of all connections; more get 503.
    pub posted_bytes: usize,
    /// How long a POST may take: its body to come, the link to want it, its message to be kept.
    pub post_time: Duration,
    /// Bytes of a peer's id.
    pub peer_id_max: usize,
    /// An event stream shows so often that it lives.
    pub heartbeat: Duration,
    /// A poller that was not seen for so long is gone.
    pub stale: Duration,
    /// The longest that a poll may ask to wait.
    pub wait_max: Duration,
    /// How long a poll that has a message waits for another one.
    pub linger: Duration,
    /// A poll's answer is closed once it has so many bytes; a larger message goes alone.
    pub answer_max: usize,
    /// What a reader has for an event of no size; each KiB gives it another second.
    pub slow: Duration,
    /// The largest message of a WebSocket.
    pub frame_limit: usize,
    /// A larger message goes out as WebSocket fragments of this size.
    pub fragment: Option<usize>,
    /// Data channels.
    #[cfg(feature = "webrtc")]
    pub webrtc: crate::webrtc::ChannelOptions,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            dialect: Dialect::default(),
            authorize: Arc::new(Anybody),
            allowed_origins: None,
            body_max: 1 << 20,
            connections: 1024,
            arrivals: 64,
            posts: 8,
            posted_bytes: 64 << 20,
            post_time: Duration::from_secs(60),
            peer_id_max: 256,
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
