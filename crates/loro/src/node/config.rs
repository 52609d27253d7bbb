//! The configuration of a node, and the link of each connection.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Budget, Cap, Carries, Link, PeerLimits, PeerSupport};
use breakbulk_message::loro::{PeerIdentity, PeerType};
use breakbulk_net::fresh_seed;
use breakbulk_net::http::Way;
use breakbulk_wire::{Loro, Whole};

use crate::limits::Limits;
use crate::permissions::{OpenToAll, OwnDocuments, Permissions};

/// The most messages being sent in pieces at once: a receiver drops the oldest of more than 32.
const TRANSFERS: usize = 16;

/// How large messages are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Like the original's `fragmentThreshold`: longer frames are cut into pieces of this many bytes, not
    /// counting the header before each piece. 0: never.
    Native(usize),
    /// No frame sent is larger than this.
    Cap(usize),
}

/// The thresholds of the transports. SSE and polling cut only from client to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cuts {
    /// WebSockets.
    pub web_socket: Cut,
    /// The POSTs of SSE and polling.
    pub post: Cut,
    /// WebRTC data channels.
    pub data_channel: Cut,
}

impl Default for Cuts {
    /// The original's numbers.
    fn default() -> Self {
        Self {
            web_socket: Cut::Native(102_400),
            post: Cut::Native(81_920),
            data_channel: Cut::Native(204_800),
        }
    }
}

/// The configuration of a node.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// The identity of this node.
    pub identity: PeerIdentity,
    /// Limits on what peers can cause.
    pub limits: Limits,
    /// Which peers may do what.
    pub permissions: Arc<dyn Permissions>,
    /// How large messages are cut.
    pub cuts: Cuts,
    /// The largest incoming message, in bytes.
    pub message: usize,
    /// How long a peer may read nothing of what is queued for it before it is disconnected; two seconds
    /// if others wait for the memory.
    pub write_deadline: Duration,
    /// The memory for messages of all connections together. Outgoing ones take at most half of it.
    pub budget: Budget,
    /// Memory for the messages of each client address that others cannot take, beside `budget`.
    pub reserved: usize,
    /// How long to delay `ready` on a new WebSocket: the original's client throws if it comes at once.
    pub ready_delay: Duration,
    /// Worker threads for documents.
    pub threads: usize,
}

breakbulk_link::with!(Config);

impl Config {
    /// A server with this name that is open to all peers.
    pub fn server(name: &str) -> Self {
        let limits = Limits::default();
        Self {
            identity: identity(name, PeerType::Service),
            limits,
            permissions: Arc::new(OpenToAll),
            cuts: Cuts::default(),
            message: 50 << 20,
            write_deadline: Duration::from_secs(30),
            budget: Budget::new(1 << 30),
            reserved: 64 << 10,
            ready_delay: Duration::from_millis(20),
            threads: std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 8)),
        }
    }

    /// A client with this name that syncs the documents that the application opens.
    pub fn client(name: &str) -> Self {
        Self {
            identity: identity(name, PeerType::User),
            permissions: Arc::new(OwnDocuments),
            threads: 1,
            ..Self::server(name)
        }
    }

    /// The link of one connection, by its transport and its part of the memory.
    pub(super) fn link(&self, way: Way, dialed: bool, budget: Budget) -> (Link, Form) {
        let (http, cut) = match way {
            Way::WebSocket => (false, self.cuts.web_socket),
            Way::DataChannel => (false, self.cuts.data_channel),
            Way::Sse | Way::Poll | Way::Exchange => (true, self.cuts.post),
        };
        let mut config = Loro::config();
        if http {
            config.rules = if dialed {
                Whole::rules()
            } else {
                Loro::http_rules()
            };
        }
        let limits = &mut config.limits;
        limits.message = self.message;
        limits.memory = self.message.saturating_mul(3);
        // The machine bounds the queue, and the budget all queues together.
        limits.queued_bytes = usize::MAX;
        // The memory bounds unfinished transfers; the original's 50 MiB would evict one of two large ones.
        limits.pending_bytes = limits.memory;
        let json = Whole {
            carries: Carries::Text,
        };
        let (send, receive, form): (
            Arc<dyn breakbulk_link::Wire>,
            Arc<dyn breakbulk_link::Wire>,
            _,
        ) = match (http, dialed) {
            (false, _) => (Arc::new(Loro), Arc::new(Loro), Form::BINARY),
            (true, false) => (Arc::new(json), Arc::new(Loro), Form::SERVER),
            (true, true) => (Arc::new(Loro), Arc::new(json), Form::CLIENT),
        };
        // JSON text is not cut: a whole document in base64 must fit into one frame.
        let whole = self.message / 3 * 4 + (1 << 20);
        limits.frame = if form.receives_json { whole } else { 16 << 20 };
        if form.receives_json {
            limits.message = whole;
        }
        let mut link = Link::new(send, receive, config, budget, fresh_seed());
        if !form.sends_json {
            link.set_peer(PeerSupport::Yes(PeerLimits {
                transfers: TRANSFERS,
                ..PeerLimits::NONE
            }));
            link.set_cap(match cut {
                Cut::Native(threshold) => Cap::piece(threshold),
                Cut::Cap(max) => Cap::frame(max),
            });
        }
        (link, form)
    }
}

/// The encoding of messages in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) sends_json: bool,
    pub(super) receives_json: bool,
}

impl Form {
    const BINARY: Self = Self {
        sends_json: false,
        receives_json: false,
    };
    const SERVER: Self = Self {
        sends_json: true,
        receives_json: false,
    };
    const CLIENT: Self = Self {
        sends_json: false,
        receives_json: true,
    };
}

/// An identity with this name and a random peer id.
fn identity(name: &str, kind: PeerType) -> PeerIdentity {
    let seed = fresh_seed();
    let mut word = [0; 8];
    word.copy_from_slice(&seed[..8]);
    PeerIdentity {
        peer_id: (u64::from_be_bytes(word) >> 1).to_string(),
        name: Some(name.to_owned()),
        kind,
    }
}
