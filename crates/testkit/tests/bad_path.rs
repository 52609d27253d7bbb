//! The bad path between a real WebSocket client and a real echo server, on loopback.

#![cfg(feature = "path")]
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "bad_path/caps.rs"]
mod caps;
#[path = "bad_path/common.rs"]
mod common;
#[path = "bad_path/cuts.rs"]
mod cuts;
#[path = "bad_path/pace.rs"]
mod pace;
#[path = "bad_path/passing.rs"]
mod passing;
