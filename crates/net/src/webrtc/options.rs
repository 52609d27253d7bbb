//! What a data channel is made of, and what it may cost.

use std::time::Duration;

/// How data channels are made, by either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelOptions {
    /// Where to listen for datagrams, as `address:port`; port 0 takes a free one. `0.0.0.0` and `[::]`
    /// stand for all addresses of this machine but the loopback.
    pub bind: Vec<String>,
    /// Servers that tell this machine its public address, as `stun:host:port`.
    pub stun: Vec<String>,
    /// The largest message, either way; at most 256 KiB.
    pub message_max: usize,
    /// No message is handed over while more than this is on its way.
    pub buffered: usize,
    /// How many offers may be on their way to a channel; more get 503.
    pub half_open: usize,
    /// How long that may take.
    pub open_time: Duration,
    /// Bytes of an offer or an answer.
    pub description_max: usize,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self {
            bind: vec!["0.0.0.0:0".to_owned()],
            stun: Vec::new(),
            message_max: 256 << 10,
            buffered: 256 << 10,
            half_open: 32,
            open_time: Duration::from_secs(15),
            description_max: 64 << 10,
        }
    }
}
