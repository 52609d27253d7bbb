//! Documents synced between nodes, and with the recorded peers.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![cfg(all(feature = "loro", feature = "redb", feature = "bad-path"))]

#[path = "loro_sync/common.rs"]
mod common;
#[path = "loro_sync/cuts.rs"]
mod cuts;
#[path = "loro_sync/hostile.rs"]
mod hostile;
#[path = "loro_sync/http_recorded.rs"]
mod http_recorded;
#[path = "loro_sync/kept.rs"]
mod kept;
#[path = "loro_sync/recorded.rs"]
mod recorded;
#[path = "loro_sync/sizes.rs"]
mod sizes;
#[path = "loro_sync/ways.rs"]
mod ways;
