//! Tests of the HTTP transports over sockets on the loopback: event streams, polling, WebSockets beside them.

#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may")]

#[cfg(feature = "webrtc")]
#[path = "http/channels.rs"]
mod channels;
#[path = "http/common.rs"]
mod common;
#[path = "http/hostile.rs"]
mod hostile;
#[path = "http/pages.rs"]
mod pages;
#[path = "http/raw.rs"]
mod raw;
#[path = "http/replaced.rs"]
mod replaced;
#[path = "http/round_trips.rs"]
mod round_trips;
#[path = "http/slow_answers.rs"]
mod slow_answers;
#[path = "http/transcripts.rs"]
mod transcripts;
