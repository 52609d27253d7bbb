//! Tests of documents synced between nodes, and with recorded peers.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![cfg(all(feature = "net", feature = "redb"))]

#[path = "sync/common.rs"]
mod common;
#[path = "sync/cuts.rs"]
mod cuts;
#[path = "sync/hostile.rs"]
mod hostile;
#[path = "sync/http_recorded.rs"]
mod http_recorded;
#[path = "sync/idle.rs"]
mod idle;
#[path = "sync/kept.rs"]
mod kept;
#[path = "sync/recorded.rs"]
mod recorded;
#[path = "sync/sizes.rs"]
mod sizes;
#[path = "sync/store_fails.rs"]
mod store_fails;
#[path = "sync/ways.rs"]
mod ways;
