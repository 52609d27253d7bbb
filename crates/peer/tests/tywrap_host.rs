//! The host against a bridge that does as it is told, much of which is wrong.

#![cfg(all(feature = "tywrap", unix))]
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "tywrap_host/common.rs"]
mod common;
#[path = "tywrap_host/ends.rs"]
mod ends;
#[path = "tywrap_host/handshake.rs"]
mod handshake;
#[path = "tywrap_host/late.rs"]
mod late;
#[path = "tywrap_host/random.rs"]
mod random;
#[path = "tywrap_host/recorded.rs"]
mod recorded;
#[path = "tywrap_host/replayed.rs"]
mod replayed;
#[path = "tywrap_host/scenarios.rs"]
mod scenarios;
#[path = "tywrap_host/values.rs"]
mod values;
