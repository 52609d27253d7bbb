//! The host as a client sees it: raw JSON texts over a transport within the process, on a paused
//! clock.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "ahp_host/busy.rs"]
mod busy;
#[path = "ahp_host/common.rs"]
mod common;
#[path = "ahp_host/handshake.rs"]
mod handshake;
#[path = "ahp_host/hostile.rs"]
mod hostile;
#[path = "ahp_host/logs.rs"]
mod logs;
#[path = "ahp_host/publish.rs"]
mod publish;
#[path = "ahp_host/reconnect.rs"]
mod reconnect;
#[path = "ahp_host/requests.rs"]
mod requests;
#[path = "ahp_host/too_large.rs"]
mod too_large;
