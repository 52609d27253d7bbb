//! Sessions at a real `nats-server`, which each test starts for itself.

#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may")]

#[path = "nats/common.rs"]
mod common;
#[path = "nats/ends.rs"]
mod ends;
#[path = "nats/round_trips.rs"]
mod round_trips;
