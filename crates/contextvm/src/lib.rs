//! ContextVM: MCP over Nostr relays, with messages of any size (CEP-22).
//!
//! A [`Server`] answers whoever may ask, a [`Client`] asks one server. Both carry JSON-RPC texts as
//! they are: what is too large for an event travels in chunks, and comes out whole at the other end
//! or not at all. Whatever becomes of a request, it is answered: by the server, or by an error that
//! says what went wrong.
//!
//! [`Machine`] is the part that decides: it knows no socket, no clock and no key.

mod client;
mod config;
mod endpoint;
mod error;
mod learned;
mod machine;
mod prepared;
#[cfg(feature = "rmcp")]
pub mod rmcp;
mod server;
mod tags;

pub use breakbulk_net::nostr::{EventId, Keys, PublicKey, Seal, npub};
pub use client::Client;
pub use config::{ClientConfig, Config, Encryption, Limits, ServerConfig, Timeouts, Wraps};
pub use error::{Failure, KeyError, OpenError, SendError, keys, public_key};
pub use learned::{Forgetful, Learned, Memory};
pub use machine::{
    Arrival, Event, InboundMessage, Machine, Publish, PublishId, Refused, Role, SendId, Stats, Way,
};
pub use prepared::{Kind, NotJsonRpc, Prepared};
pub use server::{Server, Session};
