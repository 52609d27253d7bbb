//! The client endpoint.

use bytes::Bytes;

use super::config::ClientConfig;
use super::error::{OpenError, SendError};
use super::run::{Endpoint, Setup};
use crate::machine::{Event, InboundMessage, PublicKey, Role, SendId, Stats};

/// A client of one server. Clones share the connection; dropping the last one closes it.
#[derive(Clone)]
pub struct Client {
    endpoint: Endpoint,
    server: PublicKey,
}

impl Client {
    /// Connects to the relays; returns once one of them has accepted the subscription.
    pub async fn connect(config: ClientConfig) -> Result<Self, OpenError> {
        let server = config.server;
        let setup = Setup {
            role: Role::Client { server },
            keys: config.keys,
            relays: config.relays,
            config: config.config,
            relay_options: config.relay_options,
            memory: config.memory,
            journal: config.journal,
        };
        Ok(Self {
            endpoint: Endpoint::open(setup).await?,
            server,
        })
    }

    /// Queues one JSON-RPC text. A request always gets a response: the server's, or a JSON-RPC error.
    pub async fn send(&self, text: impl Into<Bytes>) -> Result<SendId, SendError> {
        self.endpoint.send(self.server, text.into()).await
    }

    /// The next event; `None` once the client is closed. For one caller at a time.
    pub async fn event(&self) -> Option<Event> {
        self.endpoint.event().await
    }

    /// The next message; all other events are dropped. For one caller at a time.
    pub async fn recv(&self) -> Option<InboundMessage> {
        self.endpoint.message().await
    }

    /// Waits until a relay has accepted every queued message, or sending it has failed.
    pub async fn drained(&self) {
        self.endpoint.drained().await;
    }

    /// This client's public key.
    pub fn public_key(&self) -> PublicKey {
        self.endpoint.public_key()
    }

    /// Figures for logs.
    pub fn stats(&self) -> Stats {
        self.endpoint.stats()
    }

    /// Closes the client; messages that are not sent in full are dropped.
    pub fn close(&self) {
        self.endpoint.close();
    }
}
