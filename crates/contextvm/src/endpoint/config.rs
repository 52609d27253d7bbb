//! Configuration of a client and of a server.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_net::nostr::RelayOptions;

use super::Keys;
use crate::machine::{Config, Forgetful, Heard, Memory, PublicKey};

/// Configuration of a client.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// The client's own key.
    pub keys: Keys,
    /// The server's public key.
    pub server: PublicKey,
    /// The relays' URLs: `ws://` or `wss://`.
    pub relays: Vec<String>,
    /// Encryption, limits and timeouts.
    pub config: Config,
    /// How relays are used.
    pub relay_options: RelayOptions,
    /// What is stored about servers.
    pub memory: Arc<dyn Memory>,
    /// Where heard events are kept. Without it a relay can repeat a server's notifications and requests
    /// of the last minutes to a client that is started again with the same key.
    pub journal: Option<Arc<dyn Journal>>,
}

/// A store of the events that were heard, so that a relay cannot repeat them after a restart. It is
/// called before an event is acted on, on the endpoint's task: it should be fast.
pub trait Journal: Send + Sync + 'static {
    /// All that was kept; `None` if nothing was kept, or it cannot be read.
    fn load(&self) -> Option<Vec<Heard>>;

    /// Adds an event. True if the store has grown so far that it should be [replaced](Self::replace).
    fn add(&self, heard: &Heard) -> bool;

    /// Replaces everything that was kept by these events.
    fn replace(&self, all: Vec<Heard>);
}

impl ClientConfig {
    /// The default configuration.
    pub fn new(keys: Keys, server: PublicKey, relays: Vec<String>) -> Self {
        let relay_options = RelayOptions {
            // Older responses belong to no open request; the margin is for a server's slow clock.
            back: Duration::from_secs(600),
            ..RelayOptions::default()
        };
        Self {
            keys,
            server,
            relays,
            config: Config::default(),
            relay_options,
            memory: Arc::new(Forgetful),
            journal: None,
        }
    }
}

/// Configuration of a server.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The server's own key.
    pub keys: Keys,
    /// The relays' URLs: `ws://` or `wss://`.
    pub relays: Vec<String>,
    /// Encryption, limits and timeouts.
    pub config: Config,
    /// How relays are used.
    pub relay_options: RelayOptions,
    /// What is stored about clients.
    pub memory: Arc<dyn Memory>,
    /// Where heard events are kept. Without it events are refused that were made before the server was
    /// bound.
    pub journal: Option<Arc<dyn Journal>>,
}

impl ServerConfig {
    /// The default configuration: open to every client.
    pub fn new(keys: Keys, relays: Vec<String>) -> Self {
        Self {
            keys,
            relays,
            config: Config::default(),
            relay_options: RelayOptions::default(),
            memory: Arc::new(Forgetful),
            journal: None,
        }
    }
}

breakbulk_link::with!(ClientConfig, ServerConfig);
