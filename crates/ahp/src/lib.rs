//! The agent host protocol: a host, a client, and what stands below or between foreign ones.
//!
//! [`machine`] decides (pure: no socket, no task, no clock), and so does [`foreign`]; a [`log`] keeps
//! what a host published. With the feature `net` there are a host and a client on tokio.

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
