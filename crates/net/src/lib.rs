//! What moves frames: the one driver loop, and the transports below it.
//!
//! A [`Connection`] is a [`Link`](breakbulk_link::Link) and the task that drives it over a
//! [`Transport`]. Reader and writer never wait for each other; every queue is the link's own and
//! bounded by its configuration.

#![forbid(unsafe_code)]

#[cfg(feature = "bad-path")]
pub mod bad_path;
mod connection;
mod driver;
pub mod memory;
#[cfg(feature = "nostr")]
pub mod nostr;
pub mod preset;
#[cfg(feature = "process")]
pub mod process;
pub mod stream;
#[cfg(feature = "tcp")]
pub mod tcp;
mod transport;
#[cfg(feature = "ws")]
pub mod ws;

pub use connection::{Connection, fresh_seed};
pub use driver::Options;
pub use transport::{Incoming, Lost, Sink, Source, Transport};
