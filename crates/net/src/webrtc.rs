//! WebRTC data channels: binary messages both ways over one ordered channel, which is negotiated by an
//! offer and an answer over HTTP.
//!
//! [`connect`] sends the offer; the server is [`http::Server`](crate::http::Server), which answers
//! `POST /offer`. The ICE candidates are part of the descriptions (there is no trickle ICE).

mod channel;
mod client;
mod options;
mod peer;
mod server;

pub use channel::{Channel, ChannelSink, ChannelSource};
pub use client::connect;
pub use options::ChannelOptions;

pub(crate) use server::offer;
