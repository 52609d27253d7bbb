//! The end that answers.

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::config::ServerConfig;
use super::error::{OpenError, SendError};
use super::run::{Endpoint, Setup};
use crate::machine::Prepared;
use crate::machine::{Event, InboundMessage, PublicKey, Role, SendId, Stats};

/// Sessions that wait to be accepted.
const BACKLOG: usize = 64;

/// A server for whoever may ask. Clones share it; the last one dropped ends it.
#[derive(Clone)]
pub struct Server {
    endpoint: Endpoint,
}

impl Server {
    /// Connects to the relays; returns once one of them has taken the subscription.
    pub async fn bind(config: ServerConfig) -> Result<Self, OpenError> {
        let setup = Setup {
            role: Role::Server,
            keys: config.keys,
            relays: config.relays,
            config: config.config,
            relay_options: config.relay_options,
            memory: config.memory,
        };
        Ok(Self {
            endpoint: Endpoint::open(setup).await?,
        })
    }

    /// Sends one JSON-RPC text to somebody who asked before. An answer finds its request by the id.
    pub async fn send(&self, to: PublicKey, text: impl Into<Bytes>) -> Result<SendId, SendError> {
        self.endpoint.send(to, text.into()).await
    }

    /// What happens next; `None` once the server is closed. For one caller at a time.
    pub async fn event(&self) -> Option<Event> {
        self.endpoint.event().await
    }

    /// The next message; all other events are dropped. For one caller at a time.
    pub async fn recv(&self) -> Option<InboundMessage> {
        self.endpoint.message().await
    }

    /// One stream of messages per client, for services that serve one each. It takes all events.
    pub fn sessions(&self) -> mpsc::Receiver<Session> {
        let (open, sessions) = mpsc::channel(BACKLOG);
        tokio::spawn(route(self.clone(), open));
        sessions
    }

    /// Waits until all that was sent is with a relay, or has failed.
    pub async fn drained(&self) {
        self.endpoint.drained().await;
    }

    /// Our key.
    pub fn public_key(&self) -> PublicKey {
        self.endpoint.public_key()
    }

    /// Figures for logs.
    pub fn stats(&self) -> Stats {
        self.endpoint.stats()
    }

    /// Ends it: what is not out yet stays here.
    pub fn close(&self) {
        self.endpoint.close();
    }
}

/// The messages of one client, from its first or its latest `initialize` on.
pub struct Session {
    /// Who it is.
    pub peer: PublicKey,
    /// Whether it began with `initialize`; a stateless client sends none.
    pub initializes: bool,
    server: Server,
    // Each message is charged to its client until it is dropped: that bounds the queue.
    messages: mpsc::UnboundedReceiver<InboundMessage>,
}

impl Session {
    /// Its next message; `None` once it began anew, made room for others, or the server is closed.
    pub async fn recv(&mut self) -> Option<InboundMessage> {
        self.messages.recv().await
    }

    /// Takes no more: what it says from now on begins another session. What came before can still be
    /// received.
    pub fn close(&mut self) {
        self.messages.close();
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
    let mut sessions: BTreeMap<PublicKey, mpsc::UnboundedSender<InboundMessage>> = BTreeMap::new();
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
            Some(_) => continue,
            None => return,
        };
        let peer = message.peer;
        let initializes = begins_session(&message.bytes);
        let message = match sessions.get(&peer) {
            Some(session) if !initializes => match session.send(message) {
                Ok(()) => continue,
                // Its service has ended: this is the first message of another.
                Err(unsent) => unsent.0,
            },
            _ => message,
        };
        let (send, messages) = mpsc::unbounded_channel();
        let session = Session {
            peer,
            initializes,
            server: server.clone(),
            messages,
        };
        // The receiver is right here.
        let _ = send.send(message);
        sessions.insert(peer, send);
        if open.send(session).await.is_err() {
            return;
        }
    }
}

fn begins_session(bytes: &Bytes) -> bool {
    // The first message of a session is small.
    bytes.len() < (64 << 10)
        && Prepared::read(bytes.clone())
            .is_ok_and(|message| message.method.as_deref() == Some("initialize"))
}
