//! What tests and demos need of a bad world: each part behind a feature of its own.
//!
//! - [`links`]: two links, a clock and a seeded network between them, without IO.
//! - `bad_path` (feature `path`): a proxy that caps, delays, paces, holds and cuts WebSockets and TCP.
//! - `bad_relay` (feature `relay`): a Nostr relay that caps, delays, doubles and reorders.
//! - `crash_disk` (feature `disk`): storage for redb that loses power.
//! - `node` (feature `node`): programs of node that speak JSON lines, as peers of live tests.

#![forbid(unsafe_code)]

#[cfg(feature = "path")]
pub mod bad_path;
#[cfg(feature = "relay")]
pub mod bad_relay;
#[cfg(feature = "disk")]
pub mod crash_disk;
pub mod links;
#[cfg(feature = "node")]
pub mod node;
