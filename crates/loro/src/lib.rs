//! A sync peer for loro-extended: server and client of Loro CRDT documents.
//!
//! A [`Node`] serves peers that connect by WebSocket, SSE, polling or data channel, dials other peers, and
//! opens documents for the application. Below it [`machine`] is the state machine (no sockets, no clock,
//! no CRDT), worker threads import and export documents, and a [`store`] stores them. Every change is
//! stored before it is sent to a peer.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use breakbulk_loro::{Config, Dial, Node, store::MemoryStore};
//!
//! let node = Node::new(Config::client("notes"), MemoryStore::new())?;
//! let _remote = node.dial(Dial::new("ws://127.0.0.1:7402/ws"));
//! let doc = node.open("doc-1").await?;
//! doc.loro().get_text("text").insert(0, "hello")?;
//! doc.sync().await?; // returns once the server has stored it
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "http")]
pub mod http;
mod limits;
pub mod machine;
#[cfg(feature = "net")]
mod node;
mod permissions;
#[cfg(feature = "net")]
mod repo;
mod rights;
pub mod store;

#[cfg(feature = "net")]
pub use ::loro as crdt;
#[cfg(feature = "net")]
pub use breakbulk_net::http::Way;
pub use limits::Limits;
pub use machine::{DocId, Event, Head};
#[cfg(feature = "net")]
pub use node::{
    Backoff, Config, Cut, Cuts, Dial, DialError, Doc, DocError, DocState, Node, Remote, Status,
};
pub use permissions::{OpenToAll, OwnDocuments, Peer, Permissions, Quota};
pub use rights::{Right, Rights, Rule, RuleError};
