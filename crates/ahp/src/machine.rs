//! The parts that decide, for any runtime: a [`host`] and a [`client`].
//!
//! Both have the poll shape of a link: feed them what came in and the time, take from them what to do.
//! They know no socket, no task and no clock. Links stay outside: whoever drives a connection drives
//! its link, and tells the machine what the link tells.

pub mod client;
pub mod host;

pub use client::Client;
pub use host::Host;
