//! loro-extended's documents: a peer that really syncs them.
//!
//! A [`Node`] serves whoever comes by WebSocket, SSE, polling or data channel, calls others, and holds
//! documents open. Below it [`machine`] decides (pure: no socket, no clock, no CRDT), documents are worked on
//! by threads of their own, and a [`store`] keeps them; nothing is told to anybody before it is kept.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use breakbulk_loro::{Config, Dial, Node, store::MemoryStore};
//!
//! let node = Node::new(Config::client("notes"), MemoryStore::new())?;
//! let _remote = node.dial(Dial::new("ws://127.0.0.1:7402/ws"));
//! let doc = node.open("doc-1").await?;
//! doc.loro().get_text("text").insert(0, "hello")?;
//! doc.sync().await?; // the server keeps it
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "net")]
pub mod http;
mod limits;
pub mod machine;
#[cfg(feature = "net")]
mod node;
mod permissions;
#[cfg(feature = "net")]
mod repo;
pub mod store;

#[cfg(feature = "net")]
pub use ::loro as crdt;
#[cfg(feature = "net")]
pub use breakbulk_net::http::Way;
pub use limits::Limits;
pub use machine::{DocId, Event, Head};
#[cfg(feature = "net")]
pub use node::{
    Backoff, Config, Cut, Cuts, Dial, DialError, Doc, DocError, Node, Remote, Seen, Status,
};
pub use permissions::{OpenToAll, OwnDocuments, Peer, Permissions, Quota};
