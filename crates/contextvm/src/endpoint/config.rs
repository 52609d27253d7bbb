//! Configuration of a client and of a server.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_net::nostr::RelayOptions;

use super::Keys;
use crate::machine::{Config, Forgetful, Memory, PublicKey};

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
        }
    }
}

breakbulk_link::with!(ClientConfig, ServerConfig);
