//! The options of data channels: addresses, sizes and timeouts.

use std::net::SocketAddr;
use std::time::Duration;

/// The options of data channels, for client and server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelOptions {
    /// The UDP addresses to bind, as `address:port`; port 0 takes a free one. `0.0.0.0` and `[::]`
    /// stand for all addresses of this machine except loopback. If all of them are loopback addresses
    /// nothing leaves this machine: no multicast DNS, and no packets to the addresses in an offer.
    pub bind: Vec<String>,
    /// STUN servers, as `stun:host:port`, which tell this machine its public address.
    pub stun: Vec<String>,
    /// The largest message in either direction; at most 256 KiB.
    pub message_max: usize,
    /// Sending waits while more than this many bytes are buffered in the channel.
    pub buffered: usize,
    /// How many data channels may be opening at a time on a server; further offers get 503.
    pub half_open: usize,
    /// How long opening a channel may take.
    pub open_time: Duration,
    /// The largest offer or answer, in bytes.
    pub description_max: usize,
}

impl ChannelOptions {
    /// Whether only programs of this machine can connect.
    pub(crate) fn is_local(&self) -> bool {
        let is_loopback = |address: &String| {
            let address = address.parse::<SocketAddr>();
            address.is_ok_and(|address| address.ip().is_loopback())
        };
        !self.bind.is_empty() && self.bind.iter().all(is_loopback)
    }
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
