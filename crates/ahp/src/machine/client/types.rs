//! What goes into a client and comes out of it: plain data.

use std::time::Duration;

use breakbulk_message::ahp::{Chunking, PROTOCOL_VERSIONS};
use breakbulk_message::jsonrpc::member;

#[cfg(doc)]
use super::Client;
use super::error::ClientError;
use super::event::{Snapshot, Snapshots};
use super::text::Text;
use crate::Config;

/// What a client does.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientConfig {
    /// The client's id; the same over reconnects.
    pub client_id: String,
    /// What it allows and advertises on its connection.
    pub connection: Config,
    /// The protocol versions that it speaks, the preferred one first.
    pub versions: Vec<String>,
    /// How long a call waits while nothing of its request or answer moves; `None`: for ever.
    pub request_timeout: Option<Duration>,
}

impl ClientConfig {
    /// The default for a client with this id.
    pub fn new(client_id: impl Into<String>) -> Self {
        Self {
            client_id: client_id.into(),
            connection: Config::default(),
            versions: PROTOCOL_VERSIONS.map(str::to_owned).to_vec(),
            request_timeout: Some(Duration::from_secs(30)),
        }
    }
}

breakbulk_link::with!(ClientConfig);

/// What a host said to `initialize`.
#[derive(Clone, Debug)]
pub struct Initialized {
    /// The number of its last action.
    pub server_seq: i64,
    /// The version that it chose.
    pub protocol_version: String,
    /// What it is willing to receive.
    pub chunking: Option<Chunking>,
    /// All that it said, as JSON.
    pub result: Text,
    /// The states of the first subscriptions. They are told as events too, in their place.
    pub snapshots: Snapshots,
}

/// What a host said to `reconnect`.
#[derive(Clone, Debug)]
pub enum Resumed {
    /// What was missed comes as events.
    Replay {
        /// The number of actions that are new to the client.
        actions: u64,
        /// The subscribed channels that are gone. They are not asked for again.
        missing: Vec<String>,
    },
    /// Too much was missed: the states as they are now. They are told as events too, in their place.
    Snapshot(Snapshots),
}

/// A call, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(super) u64);

impl CallId {
    /// How its message is known again when it is out. Those of actions are odd.
    pub(super) fn tag(self) -> u64 {
        self.0 << 1
    }

    pub(super) fn of_tag(tag: u64) -> Option<Self> {
        (tag & 1 == 0).then_some(Self(tag >> 1))
    }
}

/// What is to be done.
#[derive(Debug)]
pub enum Output {
    /// The handshake is done: the link is told what the host takes ([`Config::apply_peer`]).
    Negotiated {
        /// What the host takes.
        peer: Option<Chunking>,
    },
    /// Close the connection; what the link then tells comes to [`Client::handle_event`] as always.
    Close {
        /// With this code.
        code: u16,
        /// And these words.
        reason: String,
    },
    /// A call has come to its end.
    Answered {
        /// Which.
        call: CallId,
        /// What was answered, or why there is no answer.
        answer: Result<Answer, ClientError>,
    },
}

/// What a call was answered with.
#[derive(Debug)]
pub enum Answer {
    /// The result as JSON.
    Result(Text),
    /// That of [`Client::initialize`].
    Initialized(Initialized),
    /// That of [`Client::reconnect`].
    Resumed(Resumed),
}

impl Answer {
    /// The state that came with the answer to `subscribe`, if any.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let Self::Result(result) = self else {
            return None;
        };
        Snapshot::read(&result.part(member(result, "snapshot")?.get()))
    }
}

/// Which way a frame moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To this side.
    In,
    /// To the host.
    Out,
}
