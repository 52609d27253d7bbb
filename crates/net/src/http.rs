//! Frames over HTTP: routers that an axum application mounts, and what the clients share.
//!
//! A [`Server`] has routers for five kinds of transport: an event stream with POSTs
//! ([`sse`](crate::sse)), long polling ([`poll`](crate::poll)), numbered POSTs and polls
//! ([`exchange`](crate::exchange)), WebSockets, and WebRTC data channels.
//! Each client that connects by any of them is handed to the application as an [`Arrival`], whose
//! transport is driven like any other.
//!
//! The routers run under any axum server. [`serve`] is one that also limits what a router cannot see:
//! open sockets, request heads that never end, and clients that do not read their answers.

mod answer;
mod arrival;
mod authorize;
mod bodies;
mod body;
pub(crate) mod client;
pub(crate) mod connection;
mod cors;
mod dialect;
mod guard;
mod listen;
mod options;
mod parts;
mod posts;
pub(crate) mod presence;
pub(crate) mod query;
mod registry;
pub(crate) mod server;
mod upgrade;

pub use arrival::{AcceptedSink, AcceptedSource, AcceptedTransport, Arrival, Arrivals};
pub use authorize::{AllowAll, Authorize, Claim, Denied, Grant, Way};
pub use bodies::{Bodies, BodyCharge};
pub use body::{BodyError, read_body};
pub use client::{ClientOptions, ConnectError, HttpTarget, failure, read_answer, refused_post};
pub use connection::HttpSource;
pub use dialect::{Dialect, PostErrors};
pub use guard::{
    Guard, GuardOptions, NoPlace, PageHeaders, Place, Visitor, secret_name, text_answer,
};
pub use listen::{Limits, LocalAddress, serve, serve_until};
pub use options::ServeOptions;
pub use parts::Parts;
pub use server::{Server, router};

pub(crate) use answer::{Answer, with_body};
pub(crate) use body::read as read_or_answer;
