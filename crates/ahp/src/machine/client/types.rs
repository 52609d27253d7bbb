//! The configuration of a client, and the plain data that its calls and outputs consist of.

use std::time::Duration;

use breakbulk_message::ahp::{Chunking, PROTOCOL_VERSIONS};
use breakbulk_message::jsonrpc::member;

#[cfg(doc)]
use super::Client;
use super::error::ClientError;
use super::event::{Snapshot, Snapshots};
use super::text::Text;
use crate::Config;

/// The configuration of a client.
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

/// What the host answered to `initialize`.
#[derive(Clone, Debug)]
pub struct Initialized {
    /// The number of its last action.
    pub server_seq: i64,
    /// The version that it chose.
    pub protocol_version: String,
    /// What it is willing to receive.
    pub chunking: Option<Chunking>,
    /// The whole result, as JSON.
    pub result: Text,
    /// The states of the first subscriptions. They are events as well, in their order.
    pub snapshots: Snapshots,
}

/// What the host answered to `reconnect`.
#[derive(Clone, Debug)]
pub enum Resumed {
    /// The missed actions come as events.
    Replay {
        /// The number of actions that are new to the client.
        actions: u64,
        /// The subscribed channels that no longer exist. Later reconnects do not ask for them.
        missing: Vec<String>,
    },
    /// Too much was missed: the current states. They are events as well, in their order.
    Snapshot(Snapshots),
}

/// A call, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(super) u64);

impl CallId {
    /// The tag by which the link reports that the message of this call was sent. Tags of actions are odd.
    pub(super) fn tag(self) -> u64 {
        self.0 << 1
    }

    pub(super) fn of_tag(tag: u64) -> Option<Self> {
        (tag & 1 == 0).then_some(Self(tag >> 1))
    }
}

/// What the caller of the machine has to do.
#[derive(Debug)]
pub enum Output {
    /// The handshake is done: pass the host's limits to the link ([`Config::apply_peer`]).
    Negotiated {
        /// The limits that the host advertised.
        peer: Option<Chunking>,
    },
    /// Close the connection, and pass the events of its link to [`Client::handle_event`] as before.
    Close {
        /// The close code.
        code: u16,
        /// The reason for the close frame.
        reason: String,
    },
    /// A call has ended.
    Answered {
        /// The call.
        call: CallId,
        /// The answer, or why there is none.
        answer: Result<Answer, ClientError>,
    },
}

/// The answer to a call.
#[derive(Debug)]
pub enum Answer {
    /// The result as JSON.
    Result(Text),
    /// The answer to [`Client::initialize`].
    Initialized(Initialized),
    /// The answer to [`Client::reconnect`].
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
