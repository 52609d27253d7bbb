//! Server-sent events: the server sends JSON text in an event stream, the client posts binary frames.
//!
//! [`connect`] is the client; the server is [`http::Server`](crate::http::Server).

mod client;
mod server;
mod text;

pub use client::{SseSink, SseSource, SseTransport, connect};
pub use server::{SseServer, SseServerSink};
pub use text::EventText;

pub(crate) use server::events;
