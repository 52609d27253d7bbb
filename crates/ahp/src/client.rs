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

pub(crate) mod moved;
mod request;
mod shared;

use std::sync::Arc;

use breakbulk_message::ahp::Chunking;
use breakbulk_net::Transport;
use serde_json::value::RawValue;

pub use crate::machine::client::{
    Action, ClientConfig, ClientError, Initialized, Origin, Resumed, RpcError, Snapshot, Snapshots,
    Text,
};
use crate::machine::client::{Answer, Client as Machine, Event as MachineEvent};
pub use request::Request;
use shared::{Shared, State, send};

use moved::now;

/// What comes to a client, in order.
pub type Event = MachineEvent<Request>;

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
        let begin = |machine: &mut Machine| machine.initialize(now(), subscriptions);
        match self.shared.shake(transport, begin).await? {
            Answer::Initialized(initialized) => Ok(initialized),
            _ => Err(ClientError::NotConnected),
        }
    }

    /// Goes on over a new transport: what was missed is replayed, or the states come anew. A
    /// connection that is still there is closed first.
    pub async fn reconnect(&self, transport: impl Transport) -> Result<Resumed, ClientError> {
        let begin = |machine: &mut Machine| machine.reconnect(now());
        match self.shared.shake(transport, begin).await? {
            Answer::Resumed(resumed) => Ok(resumed),
            _ => Err(ClientError::NotConnected),
        }
    }

    /// What comes next; `None` where there is no connection and nothing is left to tell. Cancel-safe.
    pub async fn next(&self) -> Option<Event> {
        self.shared.until(State::next).await
    }

    /// Subscribes to a channel; it is asked for again in every reconnect. The state that came with
    /// the answer, if any, is in [`next`](Self::next) too, before the actions that follow it.
    pub async fn subscribe(&self, channel: &str) -> Result<Option<Snapshot>, ClientError> {
        let subscribe = |machine: &mut Machine| machine.subscribe(now(), channel);
        Ok(self.shared.call(subscribe).await?.snapshot())
    }

    /// Wants nothing more of a channel.
    pub async fn unsubscribe(&self, channel: &str) -> Result<(), ClientError> {
        let (message, connection) = {
            let mut state = self.shared.lock();
            (state.machine.unsubscribe(channel)?, state.connection()?)
        };
        send(&connection, message).await
    }

    /// Sends an action of our own, and returns its number (`clientSeq`) once it is queued; it waits
    /// while the queue is full. What is not sent when the connection ends is told in
    /// [`Event::Disconnected`]. An error means that it was not sent.
    pub async fn dispatch(&self, channel: &str, action: &RawValue) -> Result<i64, ClientError> {
        let _turn = self.shared.turn.lock().await;
        let (message, connection) = {
            let mut state = self.shared.lock();
            let message = state.machine.dispatch(channel, action)?;
            (message, state.connection()?)
        };
        send(&connection, message).await?;
        self.shared.drive(Machine::handle_queued)
    }

    /// Asks the host something; the result is JSON.
    pub async fn request(
        &self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<Text, ClientError> {
        let request = |machine: &mut Machine| machine.request(now(), method, params);
        match self.shared.call(request).await? {
            Answer::Result(result) => Ok(result),
            _ => Err(ClientError::NotConnected),
        }
    }

    /// Asks the host for a word. It overtakes what is large.
    pub async fn ping(&self) -> Result<(), ClientError> {
        let ping = |machine: &mut Machine| machine.ping(now());
        self.shared.call(ping).await.map(drop)
    }

    /// Ends the connection now: what is queued is dropped, and told as unsent.
    pub fn close(&self, code: u16, reason: &str) {
        if let Some(connection) = &self.shared.lock().connection {
            connection.close(code, reason);
        }
    }

    /// Ends the connection once all that is queued is out.
    pub async fn finish(&self) {
        let connection = self.shared.lock().connection.clone();
        if let Some(connection) = connection {
            connection.finish(1000, "").await;
        }
    }

    /// The largest number of an action that came.
    pub fn last_seen(&self) -> i64 {
        self.shared.lock().machine.last_seen()
    }

    /// The channels that a reconnect asks for.
    pub fn subscriptions(&self) -> Vec<String> {
        let state = self.shared.lock();
        state.machine.subscriptions().map(str::to_owned).collect()
    }

    /// What the host is willing to receive, as it last said.
    pub fn host_takes(&self) -> Option<Chunking> {
        self.shared.lock().machine.host_takes().copied()
    }
}
