//! A client of the agent host protocol.
//!
//! A [`Client`] outlives its transports: it keeps what it has seen, its subscriptions and its own
//! numbers. When a transport drops, every call that waits fails, [`Client::next`] tells of it, and
//! nothing is sent again by itself; [`Client::reconnect`] over a new transport goes on where it was.
//!
//! **State comes from [`Client::next`]**: snapshots and actions stand in it in the order in which they
//! apply, those of a replay before what is live, each once. Messages that wait there count against the
//! connection's budget until the application drops what it was given. An application that never calls
//! `next` therefore stalls its own connection, answers to its own calls included; after the group
//! timeout the host, or this side, ends it, and a reconnect brings what was missed.
//!
//! **A call times out** after [`ClientConfig::request_timeout`] in which nothing of it moved: while it
//! waits to go out any frame that goes out counts, afterwards any piece of an unfinished group that
//! comes in. A large answer over a slow path may take longer than the timeout.

mod call;
mod error;
mod event;
mod handshake;
pub(crate) mod moved;
mod queue;
mod request;
mod send;
mod state;
mod text;

pub use error::{ClientError, RpcError};
pub use event::{Action, Event, Origin, Snapshot, Snapshots};
pub use request::Request;
pub use text::Text;

use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Outgoing, SendError};
use breakbulk_message::ahp::{self, Chunking, PROTOCOL_VERSIONS};
use breakbulk_message::jsonrpc::Kind;
use breakbulk_net::Transport;
use serde_json::value::RawValue;

use call::advertised;
use handshake::Shaken;
use send::{closed, fits};
use state::{Shared, State, Wants, dispatch_tag};

use super::Settings;

/// How a client is and behaves.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Who it is; the same over reconnects.
    pub client_id: String,
    /// What its side of a connection allows and says.
    pub settings: Settings,
    /// The protocol versions that it speaks, the preferred one first.
    pub versions: Vec<String>,
    /// How long a call waits while nothing of it moves; for ever if absent.
    pub request_timeout: Option<Duration>,
    /// Whether it defends itself against overtaking; off for tests that show what that is for.
    #[doc(hidden)]
    pub defends: bool,
}

impl ClientConfig {
    /// The default for a client of this name.
    pub fn new(client_id: impl Into<String>) -> Self {
        Self {
            client_id: client_id.into(),
            settings: Settings::default(),
            versions: PROTOCOL_VERSIONS.map(str::to_owned).to_vec(),
            request_timeout: Some(Duration::from_secs(30)),
            defends: true,
        }
    }
}

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
    /// The states of the first subscriptions. [`Client::next`] gives them too, in their place.
    pub snapshots: Snapshots,
}

/// What a host said to `reconnect`.
#[derive(Clone, Debug)]
pub enum Resumed {
    /// What was missed comes by [`Client::next`].
    Replay {
        /// The number of actions that are new to the client.
        actions: u64,
        /// The subscribed channels that are gone. They are not asked for again.
        missing: Vec<String>,
    },
    /// Too much was missed: the states as they are now. [`Client::next`] gives them too, in their
    /// place.
    Snapshot(Snapshots),
}

/// A client. Clones share it; when the last one is dropped the connection is closed.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// A client without a connection.
    pub fn new(config: ClientConfig) -> Self {
        Self {
            shared: Arc::new(Shared::new(config)),
        }
    }

    /// Begins anew over this transport. A connection that is still there is closed first.
    pub async fn initialize(
        &self,
        transport: impl Transport,
        subscriptions: &[impl AsRef<str>],
    ) -> Result<Initialized, ClientError> {
        let channels: Vec<_> = subscriptions
            .iter()
            .map(|one| one.as_ref().to_owned())
            .collect();
        let config = &self.shared.config;
        let write = |id, _: &State| {
            let chunking = advertised(&config.settings);
            let message =
                ahp::initialize(id, &config.client_id, &channels, &config.versions, chunking);
            (message, channels.clone())
        };
        let wants = |channels, answer| Wants::Start(channels, answer);
        match self.shake(transport, "initialize", write, wants).await? {
            Shaken::Initialized(initialized) => Ok(initialized),
            Shaken::Resumed(_) => Err(ClientError::NotConnected),
        }
    }

    /// Goes on over a new transport: what was missed is replayed, or the states come anew. A
    /// connection that is still there is closed first.
    pub async fn reconnect(&self, transport: impl Transport) -> Result<Resumed, ClientError> {
        let config = &self.shared.config;
        let write = |id, state: &State| {
            let channels: Vec<_> = state.subscriptions.keys().collect();
            let from = state.defence.reconnect_from(state.defence.last_seen());
            let chunking = advertised(&config.settings);
            (
                ahp::reconnect(id, &config.client_id, from, &channels, chunking),
                (),
            )
        };
        let wants = |(), answer| Wants::Return(answer);
        match self.shake(transport, "reconnect", write, wants).await? {
            Shaken::Resumed(resumed) => Ok(resumed),
            Shaken::Initialized(_) => Err(ClientError::NotConnected),
        }
    }

    /// What comes next; `None` where there is no connection and nothing is left to tell. Cancel-safe.
    pub async fn next(&self) -> Option<Event> {
        self.shared.until(State::next).await
    }

    /// Subscribes to a channel; it is asked for again in every reconnect. The state that came with
    /// the answer, if any, is in [`next`](Self::next) too, before the actions that follow it.
    pub async fn subscribe(&self, channel: &str) -> Result<Option<Snapshot>, ClientError> {
        let write = |id| ahp::subscribe(id, channel);
        let wants = |answer| Wants::State(channel.to_owned(), answer);
        let result = self.call("subscribe", write, wants).await?;
        let snapshot = text::member(&result, "snapshot").map(|raw| result.part(raw.get()));
        Ok(snapshot.and_then(|snapshot| Snapshot::read(&snapshot)))
    }

    /// Wants nothing more of a channel.
    pub async fn unsubscribe(&self, channel: &str) -> Result<(), ClientError> {
        self.shared.lock().subscriptions.remove(channel);
        let channel = serde_json::Value::from(channel);
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"unsubscribe","params":{{"channel":{channel}}}}}"#
        );
        self.send(Outgoing::text(text)).await
    }

    /// Sends an action of our own, and returns its number (`clientSeq`) once it is queued; it waits
    /// while the queue is full. What is not sent when the connection ends is told in
    /// [`Event::Disconnected`]. An error means that it was not sent.
    pub async fn dispatch(&self, channel: &str, action: &RawValue) -> Result<i64, ClientError> {
        let _turn = self.shared.turn.lock().await;
        let (serial, connection, seq, message) = {
            let mut state = self.shared.lock();
            let (host, seq) = (state.host, state.next_client_seq);
            let session = state.session()?;
            let (serial, connection) = (session.serial, session.connection.clone());
            let text = ahp::dispatch_action(channel, seq, action);
            let lane = self
                .shared
                .config
                .settings
                .lane(Kind::Notification, Some("dispatchAction"));
            let message = Outgoing::text(text).in_lane(lane).tagged(dispatch_tag(seq));
            fits(&self.shared.config.settings, host.as_ref(), &message)?;
            state.dispatching = Some((seq, false));
            (serial, connection, seq, message)
        };
        let sent = connection.send_when_writable(message).await;
        let mut state = self.shared.lock();
        let out = state.dispatching.take().is_some_and(|(_, out)| out);
        sent.map_err(|rejected| closed(&connection, rejected.error))?;
        state.next_client_seq = seq + 1;
        match state
            .session
            .as_mut()
            .filter(|session| session.serial == serial)
        {
            Some(session) if !out => drop(session.unsent.insert(seq)),
            // Queued, and dropped with the queue before this was told.
            None if !out => return Err(closed(&connection, SendError::Closed)),
            _ => {}
        }
        Ok(seq)
    }

    /// Asks the host something; the result is JSON.
    pub async fn request(
        &self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<Text, ClientError> {
        if params.is_some_and(|params| !params.get().starts_with(['{', '['])) {
            return Err(ClientError::BadParams);
        }
        let name = serde_json::Value::from(method);
        let params = params.map_or_else(String::new, |params| {
            format!(r#","params":{}"#, params.get())
        });
        let write = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{name}{params}}}"#);
        self.call(method, write, Wants::Answer).await
    }

    /// Asks the host for a word. It overtakes what is large.
    pub async fn ping(&self) -> Result<(), ClientError> {
        self.call("ping", ahp::ping, Wants::Answer).await.map(drop)
    }

    /// Ends the connection now: what is queued is dropped, and told as unsent.
    pub fn close(&self, code: u16, reason: &str) {
        if let Some(session) = &self.shared.lock().session {
            session.connection.close(code, reason);
        }
    }

    /// Ends the connection once all that is queued is out.
    pub async fn finish(&self) {
        let connection = self
            .shared
            .lock()
            .session
            .as_ref()
            .map(|session| session.connection.clone());
        if let Some(connection) = connection {
            connection.finish(1000, "").await;
        }
    }

    /// The largest number of an action that came.
    pub fn last_seen(&self) -> i64 {
        self.shared.lock().defence.last_seen()
    }

    /// The channels that a reconnect asks for.
    pub fn subscriptions(&self) -> Vec<String> {
        self.shared.lock().subscriptions.keys().cloned().collect()
    }

    /// What the host is willing to receive, as it last said.
    pub fn host_takes(&self) -> Option<Chunking> {
        self.shared.lock().host
    }
}
