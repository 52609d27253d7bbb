//! What the live tests of loro-extended's wire format share: a real browser with a sync peer of its own
//! on npm's `loro-crdt`, our server under measurement, and documents to sync.
//!
//! `cargo xtask interop loro` installs what they need and runs them, `cargo xtask long loro` the long one.

pub mod browser;
pub mod content;
pub mod converge;
mod party;
pub mod program;
pub mod server;
pub mod state;
