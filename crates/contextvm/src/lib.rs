//! ContextVM: MCP over Nostr relays, with messages of any size (CEP-22).
//!
//! A [`Server`] answers whoever may ask, a [`Client`] asks one server. Both carry JSON-RPC texts as
//! they are: what is too large for an event travels in chunks, and comes out whole at the other end
//! or not at all. Whatever becomes of a request, it is answered: by the server, or by an error that
//! says what went wrong.
//!
//! [`Machine`] is the part that decides: it knows no socket, no clock and no key.

#![forbid(unsafe_code)]

#[cfg(feature = "net")]
mod endpoint;
mod machine;

#[cfg(feature = "rmcp")]
pub use endpoint::rmcp;
#[cfg(feature = "net")]
pub use endpoint::{
    Client, ClientConfig, KeyError, Keys, OpenError, SendError, Server, ServerConfig, Session,
    envelope, npub, public_key,
};
pub use machine::{
    Arrival, Config, EVENT_MAX, Encryption, Event, EventId, Failure, Forgetful, InboundMessage,
    Kind, Learned, Limits, Machine, Memory, NotHex, NotJsonRpc, Prepared, PublicKey, Publish,
    PublishId, Refused, Role, Seal, SendId, Stats, Timeouts, Way, Wraps,
};
