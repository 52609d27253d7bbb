//! Long polling: the server sends JSON text in its answers to polls, the client posts binary frames.
//!
//! [`connect`] is the client; the server is [`http::Server`](crate::http::Server).

mod client;
mod messages;
mod polls;
mod server;

pub use client::{PollSink, PollSource, PollTransport, connect};
pub use server::{PollServer, PollServerSink};

pub(crate) use polls::Polls;
pub(crate) use server::{disconnect, poll};
