//! The tunnel between two gateways: it carries any JSON-RPC program in the segments of AHP's wire.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_ahp::host::close::PROTOCOL;
use breakbulk_link::{Budget, Cap, Closed, Event, Link, Outgoing, PeerSupport, SendError};
use breakbulk_message::ahp::{Chunking, TimeoutFrom};
use breakbulk_message::tunnel::{
    Hello, HelloError, is_reserved_by_tunnel, is_tunnel_end, tunnel_end,
};
use breakbulk_net::Connection;
use breakbulk_wire::Ahp;
use bytes::Bytes;

use super::run::HELLO;
use super::{Incoming, Oversized, Pass, Passing, Port, Replacement, Side};

/// How long the other gateway's hello may take: it connects to its own target before.
const HELLO_TIME: Duration = Duration::from_secs(30);

/// Why a tunnel could not be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoTunnel {
    /// The other end sent something else first.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// The other end sent nothing.
    #[error("the other gateway sent no breakbulk/hello within {} s", .0.as_secs())]
    Silent(Duration),
    /// The other end closed.
    #[error("the other gateway closed with {} {}", .0.code, .0.reason)]
    Closed(Closed),
}

/// Sends a hello and waits for the other gateway's; afterwards messages of any size can be sent.
///
/// # Errors
/// If the other end is no breakbulk gateway; the connection is then closed with that reason.
pub async fn greet(connection: Connection, ours: &TunnelConfig) -> Result<Port, NoTunnel> {
    let failed = |connection: &Connection, error: NoTunnel| {
        connection.close(PROTOCOL, &error.to_string());
        error
    };
    let hello = ours.hello().to_json();
    if connection
        .send(Outgoing::new(hello).uncut().tagged(HELLO))
        .is_err()
    {
        return Err(NoTunnel::Closed(connection.closed().await));
    }
    let heard = async {
        loop {
            match connection.event().await {
                Some(Event::Message(message)) => {
                    let text = std::str::from_utf8(&message.bytes).unwrap_or_default();
                    return match message.key {
                        None => Hello::read(text).map_err(NoTunnel::Hello),
                        Some(_) => Err(HelloError::Other.into()),
                    };
                }
                Some(Event::Opened(_)) => return Err(HelloError::Other.into()),
                Some(Event::Closed(closed)) => return Err(NoTunnel::Closed(closed)),
                None => return Err(NoTunnel::Closed(connection.closed().await)),
                Some(_) => {}
            }
        }
    };
    let hello = match tokio::time::timeout(HELLO_TIME, heard).await {
        Ok(Ok(hello)) => hello,
        Ok(Err(error)) => return Err(failed(&connection, error)),
        Err(_) => return Err(failed(&connection, NoTunnel::Silent(HELLO_TIME))),
    };
    connection.with(|link| link.set_peer(PeerSupport::Yes(Ahp::peer_limits(&hello.chunking))));
    Ok(Port::new(connection).ending_with(tunnel_end()))
}

/// The limits of one side of a tunnel.
#[derive(Clone, Debug)]
pub struct TunnelConfig {
    /// The largest frame that is sent.
    pub cap: Cap,
    /// The largest frame that is received.
    pub max_frame: usize,
    /// The largest message that is received.
    pub max_message: usize,
    /// The memory that all connections share.
    pub budget: Budget,
}

impl TunnelConfig {
    /// The hello that contains these limits. A message has no time limit: a slow reader may delay it for any
    /// time, and pings tell whether the other end is alive.
    pub fn hello(&self) -> Hello {
        Hello {
            chunking: Chunking {
                max_frame_bytes: self.max_frame.min(self.max_message).max(1) as u64,
                max_message_bytes: self.max_message.max(1) as u64,
                max_groups: Some(1),
                group_timeout_ms: None,
                timeout_from: TimeoutFrom::Last,
            },
        }
    }

    /// A link with these limits; the names of its transfers come from the seed.
    pub fn link(&self, seed: [u8; 32]) -> Link {
        let mut config = Ahp::config();
        config.report_opened = true;
        config.progress = 0;
        config.rules.timeouts.idle = None;
        config.rules.timeouts.age = None;
        config.limits = super::limits(self.max_message).with(|it| {
            it.frame = self.max_frame;
            it.transfers = 1;
            it.pieces = config.limits.pieces;
        });
        let wire = Arc::new(Ahp);
        let budget = self.budget.clone();
        let mut link = Link::new(wire.clone(), wire, config, budget, seed);
        link.set_cap(self.cap);
        link
    }
}

/// Where one side is a tunnel, or both: passes messages to `inner`, except the tunnel's own messages, which
/// are not passed on and which no program may send.
#[derive(Debug)]
pub struct Tunnel<P> {
    /// Whether the side that listens is a tunnel.
    pub listen: bool,
    /// Whether the target is a tunnel.
    pub to: bool,
    /// How messages are edited.
    pub inner: P,
}

impl<P> Tunnel<P> {
    fn is_tunnel(&self, side: Side) -> bool {
        match side {
            Side::Listen => self.listen,
            Side::To => self.to,
        }
    }
}

impl<P: Passing> Passing for Tunnel<P> {
    fn pass(&mut self, from: Side, message: Incoming<'_>) -> Pass {
        let method = message.shape.method.clone();
        let method = method
            .and_then(|range| std::str::from_utf8(message.bytes.get(range)?).ok())
            .unwrap_or_default();
        if self.is_tunnel(from) {
            if is_tunnel_end(method) {
                return Pass::InputEnded;
            }
        } else if self.is_tunnel(from.other()) && is_reserved_by_tunnel(method) {
            let reason = format!(
                "a tunnel cannot carry the program's own {method}; use whole+ws, or ahp without a tunnel"
            );
            return Pass::Refuse(PROTOCOL, reason);
        }
        self.inner.pass(from, message)
    }

    fn heard(&mut self, from: Side, event: &Event) {
        self.inner.heard(from, event);
    }

    fn asks_again(&self, method: &str) -> bool {
        self.inner.asks_again(method)
    }

    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Replacement {
        self.inner.not_sent(to, bytes, error)
    }

    fn oversized(&mut self, from: Side, oversized: &Oversized) -> Replacement {
        self.inner.oversized(from, oversized)
    }
}
