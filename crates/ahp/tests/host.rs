//! Tests of the host by what a client receives: raw JSON texts over a transport within the process, on a
//! paused clock.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "host/busy.rs"]
mod busy;
#[path = "host/common.rs"]
mod common;
#[path = "host/handshake.rs"]
mod handshake;
#[path = "host/hostile.rs"]
mod hostile;
#[path = "host/logs.rs"]
mod logs;
#[path = "host/publish.rs"]
mod publish;
#[path = "host/reconnect.rs"]
mod reconnect;
#[path = "host/requests.rs"]
mod requests;
#[path = "host/too_large.rs"]
mod too_large;
