//! WebRTC data channels: binary messages both ways over one ordered channel, made by an offer and an
//! answer over HTTP.
//!
//! [`connect`] offers; the server is [`http::Server`](crate::http::Server), which answers
//! `POST /offer`. Candidates travel in the descriptions themselves, not one by one.

mod channel;
mod client;
mod options;
mod peer;
mod server;

pub use channel::{Channel, ChannelSink, ChannelSource};
pub use client::connect;
pub use options::ChannelOptions;

pub(crate) use server::offer;
