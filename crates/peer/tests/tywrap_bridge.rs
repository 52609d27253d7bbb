//! Both bridges, the one in Rust and the one in Python, against what was recorded of the original and
//! against hosts that mean harm. `replies`, `runs` and `transcripts` also serve `cargo xtask vectors`.

#![cfg(feature = "tywrap")]
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "tywrap_bridge/hostile.rs"]
mod hostile;
#[path = "tywrap_bridge/python.rs"]
mod python;
#[path = "tywrap_bridge/python_runs.rs"]
mod python_runs;
#[path = "tywrap_bridge/recorded.rs"]
mod recorded;
#[path = "tywrap_bridge/replies.rs"]
mod replies;
#[path = "tywrap_bridge/runs.rs"]
mod runs;
#[path = "tywrap_bridge/rust.rs"]
mod rust;
#[path = "tywrap_bridge/transcripts.rs"]
mod transcripts;
