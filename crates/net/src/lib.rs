//! The async half of breakbulk: the driver loop that runs a link over a transport, and the transports.
//!
//! A [`Connection`] is a [`Link`](breakbulk_link::Link) and the task that drives it over a
//! [`Transport`]. Reader and writer never wait for each other; every queue is the link's own and
//! bounded by its configuration.

#![forbid(unsafe_code)]

mod bytes_with;
mod connection;
mod driver;
#[cfg(feature = "http")]
pub mod exchange;
#[cfg(feature = "ws")]
mod gate;
#[cfg(feature = "http")]
pub mod http;
#[cfg(any(feature = "process", feature = "http"))]
mod json_scan;
#[cfg(feature = "ws")]
mod limiter;
#[cfg(feature = "ws")]
mod listening;
pub mod memory;
#[cfg(any(feature = "process", feature = "ws"))]
mod message_timer;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "nostr")]
pub mod nostr;
mod observed;
#[cfg(feature = "process")]
mod open_files;
mod plain_text;
#[cfg(feature = "http")]
pub mod poll;
#[cfg(feature = "process")]
pub mod process;
#[cfg(feature = "ws")]
mod proxy;
mod receipt;
#[cfg(feature = "http")]
pub mod sse;
pub mod stream;
mod tap;
#[cfg(feature = "tcp")]
pub mod tcp;
mod transport;
#[cfg(any(feature = "process", feature = "ws"))]
mod unfinished;
#[cfg(feature = "webrtc")]
pub mod webrtc;
#[cfg(feature = "ws")]
pub mod ws;

pub use bytes_with::bytes_with;
pub use connection::{Connection, Mismatch, Unstarted, WeakConnection, fresh_seed, now};
pub use driver::Options;
#[cfg(feature = "ws")]
pub use gate::Refusals;
#[cfg(any(feature = "process", feature = "http"))]
pub use json_scan::{JsonScan, Members};
#[cfg(feature = "ws")]
pub use limiter::{AddressKey, AddressLimits};
#[cfg(feature = "ws")]
pub use listening::{ListenAddress, ListenSocket};
pub use observed::{Observed, Observer};
#[cfg(feature = "process")]
pub use open_files::raise_open_files;
pub use plain_text::{is_unsafe_to_show, plain_text};
#[cfg(feature = "ws")]
pub use proxy::{ProxyHeader, UnknownProxyHeader};
pub use receipt::{Receipt, Refusal, Verdict};
pub use tap::{ClosedBy, Direction, Tap, TapObserver, Tapped, tapped};
pub use transport::{Incoming, Lost, Sink, Source, Transport};
