//! Tests of both bridges, in Rust and in Python, with recordings of the original and with misbehaving
//! hosts. `replies`, `runs` and `transcripts` also serve `cargo xtask vectors`.

#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "bridge/hostile.rs"]
mod hostile;
#[path = "bridge/python.rs"]
mod python;
#[path = "bridge/python_runs.rs"]
mod python_runs;
#[path = "bridge/recorded.rs"]
mod recorded;
#[path = "bridge/replies.rs"]
mod replies;
#[path = "bridge/runs.rs"]
mod runs;
#[path = "bridge/rust.rs"]
mod rust;
#[path = "bridge/transcripts.rs"]
mod transcripts;
#[path = "bridge/values.rs"]
mod values;
