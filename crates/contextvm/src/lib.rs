//! ContextVM: MCP over Nostr relays, with messages of any size (CEP-22).
//!
//! A [`Server`] answers the clients that it allows, a [`Client`] talks to one server. Both carry
//! JSON-RPC texts unchanged: a message that is too large for one Nostr event travels in chunks, and
//! arrives whole or not at all. Every request gets a response: the server's, or a JSON-RPC error that
//! says what went wrong.
//!
//! [`Machine`] is the state machine below both. It has no sockets, no clock and no secret key: its
//! documentation lists what a caller on another runtime must do.

#![forbid(unsafe_code)]

#[cfg(feature = "net")]
mod endpoint;
mod machine;

#[cfg(feature = "rmcp")]
pub use endpoint::rmcp;
#[cfg(feature = "net")]
pub use endpoint::{
    Client, ClientConfig, Journal, KeyError, Keys, OpenError, SendError, Server, ServerConfig,
    Session, envelope, npub, public_key,
};
pub use machine::{
    Arrival, Config, EVENT_MAX, Encryption, Event, EventId, Failure, Forgetful, Heard,
    InboundMessage, Kind, Learned, Limits, Machine, Memory, NotHex, NotJsonRpc, Prepared,
    PublicKey, Publish, PublishId, Refused, Role, Seal, SendId, Stats, Timeouts, Way, Wraps,
    sort_stored,
};
