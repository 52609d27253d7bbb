//! The server endpoint, and one session per client.

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::config::ServerConfig;
use super::error::{OpenError, SendError};
use super::run::{Endpoint, Setup};
use crate::machine::{Event, InboundMessage, PublicKey, Role, SendId, Stats};
use crate::machine::{Kind, Prepared};

/// Sessions that may wait to be received.
const BACKLOG: usize = 64;

/// A server for all clients that are allowed. Clones share it; dropping the last one closes it.
#[derive(Clone)]
pub struct Server {
    endpoint: Endpoint,
}

impl Server {
    /// Connects to the relays; returns once one of them has accepted the subscription.
    pub async fn bind(config: ServerConfig) -> Result<Self, OpenError> {
        let setup = Setup {
            role: Role::Server,
            keys: config.keys,
            relays: config.relays,
            config: config.config,
            relay_options: config.relay_options,
            memory: config.memory,
            journal: config.journal,
        };
        Ok(Self {
            endpoint: Endpoint::open(setup).await?,
        })
    }

    /// Queues one JSON-RPC text to a client that has sent something. A response is matched to its
    /// request by the id.
    pub async fn send(&self, to: PublicKey, text: impl Into<Bytes>) -> Result<SendId, SendError> {
        self.endpoint.send(to, text.into()).await
    }

    /// The next event; `None` once the server is closed. For one caller at a time.
    pub async fn event(&self) -> Option<Event> {
        self.endpoint.event().await
    }

    /// The next message; all other events are dropped. For one caller at a time.
    pub async fn recv(&self) -> Option<InboundMessage> {
        self.endpoint.message().await
    }

    /// One [`Session`] per client. It consumes all events of the server.
    pub fn sessions(&self) -> mpsc::Receiver<Session> {
        let (open, sessions) = mpsc::channel(BACKLOG);
        tokio::spawn(route(self.clone(), open));
        sessions
    }

    /// Waits until a relay has accepted every queued message, or sending it has failed.
    pub async fn drained(&self) {
        self.endpoint.drained().await;
    }

    /// This server's public key.
    pub fn public_key(&self) -> PublicKey {
        self.endpoint.public_key()
    }

    /// Figures for logs.
    pub fn stats(&self) -> Stats {
        self.endpoint.stats()
    }

    /// Closes the server; messages that are not sent in full are dropped.
    pub fn close(&self) {
        self.endpoint.close();
    }
}

/// The messages of one client. A session begins with a request, and each `initialize` begins a new one.
pub struct Session {
    /// The client's public key.
    pub peer: PublicKey,
    /// Whether its first message is `initialize`; a stateless client sends none.
    pub initializes: bool,
    server: Server,
    // Each message is charged to its client until it is dropped, and each failure belongs to a message
    // that was sent to it, which bounds the queue.
    events: mpsc::UnboundedReceiver<Event>,
}

impl Session {
    /// Its next message; `None` once the client sent another `initialize` or was evicted, or the server
    /// is closed.
    pub async fn recv(&mut self) -> Option<InboundMessage> {
        loop {
            if let Event::Message(message) = self.event().await? {
                return Some(message);
            }
        }
    }

    /// Its next message, or the failure of one that was sent to it; `None` as of [`recv`](Self::recv).
    pub async fn event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Ends the session: the client's next message begins another one. Messages that came before can
    /// still be received.
    pub fn close(&mut self) {
        self.events.close();
    }

    /// Sends it one JSON-RPC text.
    pub async fn send(&self, text: impl Into<Bytes>) -> Result<SendId, SendError> {
        self.server.send(self.peer, text).await
    }

    /// The server it belongs to.
    pub fn server(&self) -> &Server {
        &self.server
    }
}

async fn route(server: Server, open: mpsc::Sender<Session>) {
    let mut sessions: BTreeMap<PublicKey, mpsc::UnboundedSender<Event>> = BTreeMap::new();
    loop {
        let event = tokio::select! {
            event = server.event() => event,
            () = open.closed() => return,
        };
        let message = match event {
            Some(Event::Message(message)) => message,
            Some(Event::Gone { peer }) => {
                sessions.remove(&peer);
                continue;
            }
            Some(failed @ Event::Failed { peer, .. }) => {
                // Without a session nobody asks what became of its messages; the machine has logged it.
                if let Some(session) = sessions.get(&peer) {
                    let _ = session.send(failed);
                }
                continue;
            }
            Some(Event::TransferFailed { peer, fault }) => {
                tracing::warn!(%peer, %fault, "a transfer of a client failed, and the client is told why");
                continue;
            }
            Some(_) => continue,
            None => return,
        };
        let peer = message.peer;
        let initializes = is_initialize(&message.bytes);
        // Only a request begins a session: a notification or a response belongs to an earlier one.
        let begins = message.kind == Kind::Request;
        let message = match sessions.get(&peer) {
            Some(session) if !initializes => match session.send(Event::Message(message)) {
                Ok(()) => continue,
                // The session was closed: this message begins another.
                Err(unsent) => unsent.0,
            },
            _ => Event::Message(message),
        };
        if !begins {
            tracing::debug!(%peer, "message dropped: it is no request, and its client has no session");
            sessions.remove(&peer);
            continue;
        }
        let (send, events) = mpsc::unbounded_channel();
        let session = Session {
            peer,
            initializes,
            server: server.clone(),
            events,
        };
        // The receiver is right here.
        let _ = send.send(message);
        sessions.insert(peer, send);
        if open.send(session).await.is_err() {
            return;
        }
    }
}

fn is_initialize(bytes: &Bytes) -> bool {
    // An `initialize` request is small.
    bytes.len() < (64 << 10)
        && Prepared::read(bytes.clone())
            .is_ok_and(|message| message.method.as_deref() == Some("initialize"))
}
