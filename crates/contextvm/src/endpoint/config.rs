//! How a client and a server are set up.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_net::nostr::RelayOptions;

use super::Keys;
use crate::machine::{Config, Forgetful, Memory, PublicKey};

/// How a client is set up.
#[derive(Clone)]
pub struct ClientConfig {
    /// Our key.
    pub keys: Keys,
    /// Whom to ask.
    pub server: PublicKey,
    /// By which relays: `ws://` or `wss://`.
    pub relays: Vec<String>,
    /// What is allowed and how long is waited.
    pub config: Config,
    /// How relays are used.
    pub relay_options: RelayOptions,
    /// What is known of servers from earlier days.
    pub memory: Arc<dyn Memory>,
}

impl ClientConfig {
    /// A client with a key of its own.
    pub fn new(keys: Keys, server: PublicKey, relays: Vec<String>) -> Self {
        let relay_options = RelayOptions {
            // Old answers belong to no request; a server's clock may be behind.
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

/// How a server is set up.
#[derive(Clone)]
pub struct ServerConfig {
    /// Our key.
    pub keys: Keys,
    /// By which relays: `ws://` or `wss://`.
    pub relays: Vec<String>,
    /// What is allowed and how long is waited.
    pub config: Config,
    /// How relays are used.
    pub relay_options: RelayOptions,
    /// What is known of clients from earlier days.
    pub memory: Arc<dyn Memory>,
}

impl ServerConfig {
    /// A server for everybody who knows its key.
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
