//! The tunnel between two gateways: any JSON-RPC program, cut and put together by AHP's wire.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{
    Budget, Cap, Closed, Event, Limits, Link, Outgoing, PeerLimits, PeerSupport, SendError,
};
use breakbulk_message::ahp::{
    Chunking, Hello, HelloError, TimeoutFrom, is_reserved_by_tunnel, is_tunnel_end, tunnel_end,
};
use breakbulk_net::Connection;
use breakbulk_wire::Ahp;
use bytes::Bytes;

use super::pump::HELLO;
use super::{EndOutput, Incoming, Instead, Oversized, Pass, Passing, Port, Ports, Side};

/// What a side closes with when the other breaks the tunnel's rules.
const BROKEN: u16 = 4400;

/// How long the other gateway's first frame may take: it may have to reach its own target before.
const HELLO_TIME: Duration = Duration::from_secs(30);

/// Why a tunnel did not come about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoTunnel {
    /// The other end said something else.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// The other end said nothing.
    #[error("the other gateway sent no breakbulk/hello within {} s", .0.as_secs())]
    Silent(Duration),
    /// The other end closed.
    #[error("the other gateway closed with {} {}", .0.code, .0.reason)]
    Closed(Closed),
}

/// Says hello and waits for the other's; then messages of any size go both ways.
///
/// # Errors
/// If the other end is no gateway of ours; the connection is closed then, and says why.
pub async fn greet(connection: Connection, ours: &TunnelSettings) -> Result<Port, NoTunnel> {
    let failed = |connection: &Connection, error: NoTunnel| {
        connection.close(BROKEN, &error.to_string());
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
    connection.with(|link| link.set_peer(PeerSupport::Yes(limits(&hello.chunking))));
    Ok(Port {
        connection,
        input_ended: None,
        end_output: EndOutput::Message(tunnel_end().into()),
        skipped: None,
    })
}

fn limits(chunking: &Chunking) -> PeerLimits {
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    PeerLimits {
        frame: size(chunking.max_frame_bytes),
        message: size(chunking.max_message_bytes),
        transfers: size(chunking.groups_to_open()),
        timeout: chunking.group_timeout_ms.map(Duration::from_millis),
        timeout_from_last: chunking.timeout_from == TimeoutFrom::Last,
    }
}

/// What one side of a tunnel allows.
#[derive(Clone, Debug)]
pub struct TunnelSettings {
    /// The largest frame that goes out.
    pub cap: Cap,
    /// The largest frame that comes in.
    pub max_frame: usize,
    /// The largest message that comes in.
    pub max_message: usize,
    /// The memory that all connections share.
    pub budget: Budget,
}

impl TunnelSettings {
    /// What it says of itself. There is no time limit for a message: who reads slowly holds it up for
    /// as long as it takes, and whether the other end lives is asked by other means.
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

    /// A link for it; the names of its transfers come from the seed.
    pub fn link(&self, seed: [u8; 32]) -> Link {
        let mut config = Ahp::config();
        config.report_opened = true;
        config.progress = 0;
        config.rules.timeouts.idle = None;
        config.rules.timeouts.age = None;
        config.limits = Limits {
            frame: self.max_frame,
            transfers: 1,
            pieces: config.limits.pieces,
            ..super::limits(self.max_message)
        };
        let wire = Arc::new(Ahp);
        let budget = self.budget.clone();
        let mut link = Link::new(wire.clone(), wire, config, budget, seed);
        link.set_cap(self.cap);
        link
    }
}

/// How messages pass where one side is a tunnel, or both: as `inner` has them pass, but the tunnel's
/// own words are its own.
#[derive(Debug)]
pub struct Tunnel<P> {
    /// Whether the side that came to us is one.
    pub listen: bool,
    /// Whether the side that we made is one.
    pub to: bool,
    /// What is done to messages.
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
    fn pass(&mut self, from: Side, ports: Ports<'_>, message: Incoming<'_>) -> Pass {
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
            return Pass::Refuse(BROKEN, reason);
        }
        self.inner.pass(from, ports, message)
    }

    fn heard(&mut self, from: Side, event: &Event) {
        self.inner.heard(from, event);
    }

    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Instead {
        self.inner.not_sent(to, bytes, error)
    }

    fn oversized(&mut self, from: Side, oversized: &Oversized) -> Instead {
        self.inner.oversized(from, oversized)
    }
}
