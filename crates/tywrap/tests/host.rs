//! Tests of the host against a scripted bridge, which mostly misbehaves.

#![cfg(all(feature = "net", unix))]
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "host/common.rs"]
mod common;
#[path = "host/ends.rs"]
mod ends;
#[path = "host/handshake.rs"]
mod handshake;
#[path = "host/late.rs"]
mod late;
#[path = "host/random.rs"]
mod random;
#[path = "host/recorded.rs"]
mod recorded;
#[path = "host/replayed.rs"]
mod replayed;
#[path = "host/scenarios.rs"]
mod scenarios;
#[path = "host/values.rs"]
mod values;
