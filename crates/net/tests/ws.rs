//! The WebSocket transport over real sockets on the loopback.

#![cfg(feature = "ws")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may")]

#[path = "ws/common.rs"]
mod common;
#[path = "ws/connection.rs"]
mod connection;
#[path = "ws/frames.rs"]
mod frames;
#[path = "ws/handshake.rs"]
mod handshake;
#[path = "ws/interop.rs"]
mod interop;
#[path = "ws/life.rs"]
mod life;
#[path = "ws/raw.rs"]
mod raw;
#[path = "ws/share.rs"]
mod share;
#[cfg(feature = "tls")]
#[path = "ws/tls.rs"]
mod tls;
#[cfg(unix)]
#[path = "ws/unix.rs"]
mod unix;
