//! Tests of the VSCode RPC endpoint over every transport that can carry it.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "endpoint/calls.rs"]
mod calls;
#[path = "endpoint/cancel.rs"]
mod cancel;
#[path = "endpoint/common.rs"]
mod common;
#[path = "endpoint/hostile.rs"]
mod hostile;
#[path = "endpoint/reconnect.rs"]
mod reconnect;
#[path = "endpoint/streams.rs"]
mod streams;
