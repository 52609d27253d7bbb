//! The VSCode RPC endpoint over everything that carries it.

#![cfg(feature = "vscode")]
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "vscode_endpoint/calls.rs"]
mod calls;
#[path = "vscode_endpoint/cancel.rs"]
mod cancel;
#[path = "vscode_endpoint/common.rs"]
mod common;
#[path = "vscode_endpoint/hostile.rs"]
mod hostile;
#[cfg(feature = "bad-path")]
#[path = "vscode_endpoint/reconnect.rs"]
mod reconnect;
#[path = "vscode_endpoint/streams.rs"]
mod streams;
