//! loro-extended's documents: a peer that really syncs them.
//!
//! A [`Node`] serves whoever comes by WebSocket, SSE, polling or data channel, calls others, and holds
//! documents open. Below it [`hub`] decides (pure: no socket, no clock, no CRDT), documents are worked on
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

pub mod hub;
mod limits;
mod node;
mod permissions;
pub(crate) mod repo;
pub mod store;

pub use ::loro as crdt;
pub use breakbulk_net::http::Way;
pub use hub::{DocId, Event, Head};
pub use limits::Limits;
pub use node::{Backoff, Config, Cut, Cuts, Dial, Doc, DocError, Node, Remote, Seen, Status};
pub use permissions::{OpenToAll, OwnDocuments, Peer, Permissions, Quota};
