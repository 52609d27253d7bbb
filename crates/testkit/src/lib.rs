//! Simulated failures for tests and demos, each behind a feature of its own.
//!
//! - [`links`]: two links, a clock and a seeded network between them, without IO.
//! - `bad_path` (feature `path`): a proxy for WebSockets and TCP that enforces caps, delays, limits
//!   the rate, holds and cuts.
//! - `http_path` (feature `path`): a proxy for HTTP that caps bodies, loses answers and cuts.
//! - `http_refusal` (feature `path`): one that refuses bodies over its cap in a way of the test's choice.
//! - `bad_relay` (feature `relay`): a Nostr relay that limits, delays, duplicates and reorders events.
//! - `lying_relay` (feature `relay`): a Nostr relay that forges and repeats events.
//! - `crash_disk` (feature `disk`): storage for redb that loses power.
//! - `tls_front` (feature `tls`): a proxy that ends TLS, and breaks off with an alert.
//! - `log` (feature `log`): the log lines of a test, for what an operator sees.
//! - `nats` (feature `nats`): NATS servers with JetStream that are killed and started again.
//! - `node` (feature `node`): programs of node that speak JSON lines, as peers of live tests.

#![forbid(unsafe_code)]

#[cfg(feature = "path")]
pub mod bad_path;
#[cfg(feature = "relay")]
pub mod bad_relay;
#[cfg(feature = "disk")]
pub mod crash_disk;
#[cfg(feature = "path")]
pub mod http_path;
#[cfg(feature = "path")]
pub mod http_refusal;
pub mod links;
#[cfg(feature = "log")]
pub mod log;
#[cfg(feature = "relay")]
pub mod lying_relay;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "node")]
pub mod node;
#[cfg(feature = "tls")]
pub mod tls_front;
