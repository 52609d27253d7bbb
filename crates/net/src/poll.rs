//! Long polling: JSON text down in the answers to polls, binary frames up by POSTs.
//!
//! [`connect`] is the client; the server is [`http::Server`](crate::http::Server).

mod client;
mod messages;
mod polls;
mod server;

pub use client::{PollSink, PollSource, PollTransport, connect};
pub use server::{PollServer, PollServerSink};

pub(crate) use polls::Polls;
pub(crate) use server::{forget, poll};
