//! HTTP as a path for frames: servers that are mounted into an application of one's own, and what
//! their clients share.
//!
//! A [`Server`] gives routers for four ways in: an event stream with POSTs ([`sse`](crate::sse)), long
//! polling ([`poll`](crate::poll)), WebSockets, and data channels. Whoever comes in by any of them is
//! an [`Arrival`] with a transport, and from there on a connection like any other.
//!
//! The routers run below any server of axum's. [`serve`] is one that bounds what a router cannot see:
//! sockets, heads that do not end, readers that do not read.

mod answer;
mod arrival;
mod authorize;
mod body;
pub(crate) mod client;
pub(crate) mod connection;
mod cors;
mod dialect;
mod listen;
mod options;
mod posts;
pub(crate) mod query;
mod registry;
pub(crate) mod server;
mod upgrade;

pub use arrival::{Arrival, Arrivals, Arrived, ArrivedSink, ArrivedSource};
pub use authorize::{Anybody, Authorize, Claim, Denied, Grant, Way};
pub use client::{ClientOptions, ConnectError};
pub use connection::HttpSource;
pub use dialect::{Dialect, PostWords};
pub use listen::{Limits, serve};
pub use options::ServeOptions;
pub use server::{Server, router};

pub(crate) use answer::Answer;
#[cfg(feature = "webrtc")]
pub(crate) use body::read as read_body;
