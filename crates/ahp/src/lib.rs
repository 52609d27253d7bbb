//! The agent host protocol: a host, a client, and what stands below or between foreign ones.

pub mod client;
mod defence;
pub mod foreign;
pub mod host;
pub mod log;
mod settings;
#[cfg(feature = "ahp-client")]
pub mod transport;

pub use client::{Client, ClientConfig, ClientError, Event, Initialized, Resumed};
pub use defence::Defence;
pub use host::{Application, Host, HostConfig, PublishError, RpcError};
#[doc(hidden)]
pub use settings::Lanes;
pub use settings::Settings;
