//! MCP over HTTP (Streamable HTTP), to listen and to reach: both eras on one URL, and every message byte
//! for byte as its sender wrote it.
//!
//! In the **session era** (2025-03-26 to 2025-11-25) a client begins with `initialize`, gets an
//! `Mcp-Session-Id`, may listen on a stream of its own (GET) and may resume a broken stream by
//! `Last-Event-ID`. In the **stateless era** (2026-07-28) every request stands alone and says its version,
//! and the end of its connection cancels it. A request says by itself which era it is of ([`message::Message`]).
//!
//! The pure parts: [`message`] what a body says, [`head`] what a head must say, [`mirror`] values in headers,
//! [`tools`] arguments that a tool wants in headers, [`events`] event streams, [`errors`] what a sender is
//! told. [`target`] is the transport to a server, [`door`] is the listener.

mod door;
mod end;
mod errors;
mod events;
mod head;
mod message;
mod mirror;
mod target;
mod tools;

pub(crate) use door::listen;
pub use end::HeadersError;
pub(crate) use end::HttpEnd;
pub(crate) use target::connect;
