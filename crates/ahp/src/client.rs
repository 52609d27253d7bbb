//! A client of the agent host protocol.
//!
//! A [`Client`] outlives its transports: it keeps which actions it has received, its subscriptions and the
//! numbers of its own actions. When a transport ends, every open call fails, [`Client::next`] returns
//! [`Event::Disconnected`], and nothing is sent again automatically; [`Client::reconnect`] resumes over a
//! new transport.
//!
//! **State comes from [`Client::next`]**: it returns snapshots and actions in the order in which they
//! apply, those of a replay before new ones, each once. Messages that wait there count against the
//! connection's budget until the application drops the events made from them. An application that never
//! calls `next` therefore stalls its own connection, including the answers to its calls; after the group
//! timeout the host or this side closes it, and a reconnect brings what was missed.
//!
//! **A call times out** after [`ClientConfig::request_timeout`] without progress: until its message is
//! sent, any frame that is sent counts as progress; afterwards any received segment of an incomplete
//! group does. A large answer over a slow path may take longer than the timeout.

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

/// An event for the application; [`Client::next`] returns them in order.
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

    /// Starts over on this transport. A previous connection is closed first.
    pub async fn initialize(
        &self,
        transport: impl Transport,
        subscriptions: &[impl AsRef<str>],
    ) -> Result<Initialized, ClientError> {
        let begin = |machine: &mut Machine| machine.initialize(now(), subscriptions);
        match self.shared.handshake(transport, begin).await? {
            Answer::Initialized(initialized) => Ok(initialized),
            _ => Err(ClientError::NotConnected),
        }
    }

    /// Resumes on a new transport: the host replays the actions that were missed, or sends the current
    /// states. A previous connection is closed first.
    pub async fn reconnect(&self, transport: impl Transport) -> Result<Resumed, ClientError> {
        let begin = |machine: &mut Machine| machine.reconnect(now());
        match self.shared.handshake(transport, begin).await? {
            Answer::Resumed(resumed) => Ok(resumed),
            _ => Err(ClientError::NotConnected),
        }
    }

    /// The next event; `None` if there is no connection and no event is left. Cancel-safe.
    pub async fn next(&self) -> Option<Event> {
        self.shared.until(State::next).await
    }

    /// Subscribes to a channel; reconnects include it. The state in the answer, if any, is also an event
    /// of [`next`](Self::next), before the actions that follow it.
    pub async fn subscribe(&self, channel: &str) -> Result<Option<Snapshot>, ClientError> {
        let subscribe = |machine: &mut Machine| machine.subscribe(now(), channel);
        Ok(self.shared.call(subscribe).await?.snapshot())
    }

    /// Unsubscribes from a channel.
    pub async fn unsubscribe(&self, channel: &str) -> Result<(), ClientError> {
        let (message, connection) = {
            let mut state = self.shared.lock();
            (state.machine.unsubscribe(channel)?, state.connection()?)
        };
        send(&connection, message).await
    }

    /// Sends an action of this client, and returns its number (`clientSeq`) once it is queued; waits while
    /// the queue is full. [`Event::Disconnected`] names the actions that were still queued when the
    /// connection ended. An error means that it was not sent.
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

    /// Sends a request to the host; the result is JSON.
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

    /// Sends a `ping` and waits for the answer. It may overtake large messages that are being sent.
    pub async fn ping(&self) -> Result<(), ClientError> {
        let ping = |machine: &mut Machine| machine.ping(now());
        self.shared.call(ping).await.map(drop)
    }

    /// Closes the connection now. Actions that are queued are dropped, and named in
    /// [`Event::Disconnected`].
    pub fn close(&self, code: u16, reason: &str) {
        if let Some(connection) = &self.shared.lock().connection {
            connection.close(code, reason);
        }
    }

    /// Closes the connection once all that is queued is sent.
    pub async fn finish(&self) {
        let connection = self.shared.lock().connection.clone();
        if let Some(connection) = connection {
            connection.finish(1000, "").await;
        }
    }

    /// The largest number of an action that was received.
    pub fn last_seen(&self) -> i64 {
        self.shared.lock().machine.last_seen()
    }

    /// The channels that a reconnect asks for.
    pub fn subscriptions(&self) -> Vec<String> {
        let state = self.shared.lock();
        state.machine.subscriptions().map(str::to_owned).collect()
    }

    /// The limits that the host last advertised.
    pub fn host_takes(&self) -> Option<Chunking> {
        self.shared.lock().machine.host_takes().copied()
    }
}
