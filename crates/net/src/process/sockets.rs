//! TCP and Unix sockets as streams of frames: the listener that accepts them, and those that were dialed.
//!
//! A stream has no handshake: a client is accepted as soon as it connects, within the limits of its
//! address, and one that is refused is only closed, since there is no way to tell it why.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::framing::Framing;
use super::stream::Stream;
use crate::gate::{Gate, Permit, Refusals, SharedPlaces};
use crate::limiter::AddressLimits;
use crate::listening::{Client, ListenAddress, ListenSocket};
use crate::ws::{ListenError, Socket, tune};

/// The system asks the other end of an idle TCP connection whether it is alive after this time, and then
/// each quarter of it: a stream has no pings.
const ALIVE: Duration = Duration::from_secs(60);

/// Frames over a socket.
pub type SocketStream = Stream<SocketReader>;

/// The receiving half of a socket.
pub struct SocketReader {
    socket: Box<dyn AsyncRead + Send + Unpin>,
    /// The listener's permit for one connection, given back with the socket.
    _permit: Option<Permit>,
}

impl AsyncRead for SocketReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

/// Frames over a TCP connection that was dialed.
pub fn tcp_stream(stream: TcpStream, framing: Framing, limit: usize) -> SocketStream {
    tune(&stream);
    of_socket(Socket::Plain(stream), None, framing, limit)
}

/// Frames over a Unix socket that was dialed.
#[cfg(unix)]
pub fn unix_stream(stream: tokio::net::UnixStream, framing: Framing, limit: usize) -> SocketStream {
    of_socket(Socket::Unix(stream), None, framing, limit)
}

fn of_socket(
    socket: Socket,
    permit: Option<Permit>,
    framing: Framing,
    limit: usize,
) -> SocketStream {
    type Halves = (
        Box<dyn AsyncRead + Send + Unpin>,
        Box<dyn AsyncWrite + Send + Unpin>,
    );
    let (reader, writer): Halves = match socket {
        Socket::Plain(stream) => {
            keep_alive(&stream);
            let (reader, writer) = stream.into_split();
            (Box::new(reader), Box::new(writer))
        }
        #[cfg(unix)]
        Socket::Unix(stream) => {
            let (reader, writer) = stream.into_split();
            (Box::new(reader), Box::new(writer))
        }
        #[cfg(feature = "tls")]
        socket => {
            let (reader, writer) = tokio::io::split(socket);
            (Box::new(reader), Box::new(writer))
        }
    };
    let reader = SocketReader {
        socket: reader,
        _permit: permit,
    };
    Stream::new(reader, writer, framing, limit).watched()
}

/// A failure is only logged.
fn keep_alive(stream: &TcpStream) {
    let times = TcpKeepalive::new()
        .with_time(ALIVE)
        .with_interval(ALIVE / 4);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&times) {
        tracing::debug!(%error, "setting SO_KEEPALIVE failed");
    }
}

/// A listening socket whose clients speak without a handshake. Dropping it stops listening; accepted
/// connections go on.
#[derive(Debug)]
pub struct StreamListener {
    socket: ListenSocket,
    address: ListenAddress,
    gate: Gate,
    /// A place for each connection that may be open.
    open: SharedPlaces,
    connections: usize,
}

/// A client that connected.
#[derive(Debug)]
pub struct AcceptedStream {
    socket: Socket,
    permit: Permit,
    /// Its address; of a Unix socket a loopback address without a port.
    pub peer: SocketAddr,
}

impl StreamListener {
    /// Accepts at most this many clients at a time from a socket, and of one address as many as its
    /// limits say. Of [`AddressLimits`] the handshakes and the proxy do not apply: a stream has neither a
    /// handshake nor headers.
    pub fn new(
        socket: impl Into<ListenSocket>,
        connections: usize,
        per_address: AddressLimits,
    ) -> Result<Self, ListenError> {
        let socket = socket.into();
        let address = socket.address().map_err(|error| ListenError::Bind {
            address: "a socket without an address".to_owned(),
            error,
        })?;
        let limits = AddressLimits {
            proxy: None,
            ..per_address
        };
        Ok(Self {
            socket,
            address,
            open: SharedPlaces::new(connections, limits.connections),
            gate: Gate::new(limits, 0),
            connections,
        })
    }

    /// Counts the clients that are not let in.
    pub fn counting(self, refusals: Refusals) -> Self {
        let gate = self.gate.counting(refusals);
        Self { gate, ..self }
    }

    /// The address that it listens at.
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// Waits for the next client; those over the limits are closed, and logged. Cancel-safe.
    pub async fn accept(&mut self) -> Result<AcceptedStream, ListenError> {
        loop {
            let accepted = self.socket.accept(&self.gate.warnings).await;
            let Client { socket, peer, .. } = accepted.map_err(|error| ListenError::Accept {
                address: self.address.clone(),
                error,
            })?;
            if let Some(permit) = self.admit(peer) {
                return Ok(AcceptedStream {
                    socket,
                    permit,
                    peer,
                });
            }
        }
    }

    /// A place for a client that connected, within the limits of its address; why there is none is logged.
    fn admit(&self, peer: SocketAddr) -> Option<Permit> {
        let key = self.gate.key_of_socket(peer.ip());
        if !self.gate.asks(peer, key) {
            return None;
        }
        match self.open.take(key, false) {
            Ok((place, _)) => Some(Permit {
                _open: None,
                _place: place,
            }),
            Err(full) => {
                self.gate.log_full(full, peer, self.connections);
                None
            }
        }
    }
}

impl AcceptedStream {
    /// Its frames, of at most `limit` bytes.
    pub fn frames(self, framing: Framing, limit: usize) -> SocketStream {
        of_socket(self.socket, Some(self.permit), framing, limit)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn listener(limits: AddressLimits) -> StreamListener {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        StreamListener::new(socket, 6, limits).unwrap()
    }

    /// Whether a client of this address gets a place, which it keeps.
    fn admitted(listener: &StreamListener, open: &mut Vec<Permit>, address: &str) -> bool {
        let permit = listener.admit(SocketAddr::new(address.parse().unwrap(), 4711));
        let admitted = permit.is_some();
        open.extend(permit);
        admitted
    }

    // STREAM-4
    #[tokio::test]
    async fn one_address_does_not_take_all_places() {
        let limits = AddressLimits {
            connections: 2,
            ..AddressLimits::default()
        };
        let (listener, mut open) = (listener(limits).await, Vec::new());
        for (address, expected) in [
            ("203.0.113.7", true),
            ("203.0.113.7", true),
            ("203.0.113.7", false),
            ("203.0.113.8", true),
            // IPv6 counts by /64.
            ("2001:db8:1:1::1", true),
            ("2001:db8:1:1::2", true),
            ("2001:db8:1:1:ffff::3", false),
            // A program of this machine may act for many clients, so loopback addresses are not limited.
            ("127.0.0.1", true),
            // All are taken.
            ("203.0.113.9", false),
        ] {
            assert_eq!(
                admitted(&listener, &mut open, address),
                expected,
                "{address}"
            );
        }
        open.remove(0);
        assert!(admitted(&listener, &mut open, "203.0.113.7"));
    }

    // STREAM-4
    #[tokio::test]
    async fn one_address_connects_only_so_often() {
        let limits = AddressLimits {
            per_second: 5,
            ..AddressLimits::default()
        };
        let listener = listener(limits).await;
        let connects = |address| admitted(&listener, &mut Vec::new(), address);
        let often: Vec<_> = (0..40).map(|_| connects("203.0.113.7")).collect();
        assert!(often[0] && often.contains(&false), "{often:?}");
        assert!(connects("203.0.113.8"));
        assert!((0..40).all(|_| connects("127.0.0.1")));
    }
}
