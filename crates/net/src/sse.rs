//! Server-sent events: JSON text down an event stream, binary frames up by POSTs.
//!
//! [`connect`] is the client; the server is [`http::Server`](crate::http::Server).

mod client;
mod server;

pub use client::{SseSink, SseSource, SseTransport, connect};
pub use server::{SseServer, SseServerSink};

pub(crate) use server::events;
