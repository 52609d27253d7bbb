//! The async endpoints: a client and a server on Nostr relays, and transports for the crate `rmcp`.

mod client;
mod config;
pub mod envelope;
mod error;
mod keys;
#[cfg(feature = "rmcp")]
pub mod rmcp;
mod run;
mod server;

pub use client::Client;
pub use config::{ClientConfig, Journal, ServerConfig};
pub use error::{OpenError, SendError};
pub use keys::{KeyError, Keys, npub, public_key};
pub use server::{Server, Session};
