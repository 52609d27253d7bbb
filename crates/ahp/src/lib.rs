//! The agent host protocol (AHP) over paths whose frames are capped: a host, a client, and middle boxes
//! for programs that do not know segments.
//!
//! [`machine`] and [`foreign`] are pure (no socket, no task, no clock). A [`log`] keeps the actions that a
//! host published, for replays. The feature `net` adds a host and a client on tokio.

#![forbid(unsafe_code)]

#[cfg(feature = "net")]
pub mod client;
mod config;
mod defence;
pub mod foreign;
#[cfg(feature = "net")]
pub mod host;
pub mod log;
pub mod machine;
#[cfg(feature = "ahp-client")]
pub mod transport;

#[cfg(feature = "net")]
pub use client::{Client, Event};
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use config::testing;
pub use config::{Config, Limits};
pub use defence::Defence;
#[cfg(feature = "net")]
pub use host::{Application, Host};
pub use machine::client::{ClientConfig, ClientError, Initialized, Resumed};
pub use machine::host::{HostConfig, HostLimits, PublishError, RpcError};
