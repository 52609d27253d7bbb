//! What the live tests of loro-extended's wire format share: npm's own `@loro-extended/repo` as client and
//! as server, a real browser with a sync peer of its own on npm's `loro-crdt`, this project's server with
//! counters, and documents to sync.
//!
//! `cargo xtask interop loro` installs what they need and runs them, `cargo xtask long loro` the long one.

pub mod browser;
pub mod client;
pub mod containers;
pub mod content;
pub mod converge;
pub mod hub;
mod party;
pub mod program;
pub mod repo;
pub mod scenes;
pub mod server;
pub mod state;
