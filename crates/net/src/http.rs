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
mod cors;
pub(crate) mod desk;
pub(crate) mod line;
mod listen;
mod options;
mod posts;
pub(crate) mod query;
mod registry;
mod upgrade;

pub use arrival::{Arrival, Arrivals, Arrived, ArrivedSink, ArrivedSource};
pub use authorize::{Anybody, Authorize, Claim, Denied, Grant, Way};
pub use client::{ClientOptions, ConnectError};
pub use desk::{Server, router};
pub use line::LineSource;
pub use listen::{Limits, serve};
pub use options::ServeOptions;

pub(crate) use answer::Answer;
#[cfg(feature = "webrtc")]
pub(crate) use body::read as read_body;
