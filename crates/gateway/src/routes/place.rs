//! Where a route listens: two routes cannot do so at the same place.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

#[cfg(feature = "process")]
use crate::endpoint::SocketAddress;
use crate::endpoint::{At, WsAddress};

/// Where a listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A host and port, and the addresses that the host has.
    Tcp {
        host: String,
        port: u16,
        addresses: Vec<SocketAddr>,
    },
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// A place of another kind: standard streams, a subject of NATS, or a server at relays.
    Other { at: At, name: String },
}

impl Place {
    /// The place of an end that may listen: its address was checked.
    pub(super) fn of(at: &At) -> Self {
        match at {
            At::Ws(address) => Self::web(at, address),
            #[cfg(feature = "http")]
            At::Http(address) | At::Exchange(address) => Self::web(at, address),
            #[cfg(feature = "loro")]
            At::Loro(address) => Self::tcp(at, address.listen_at().ok()),
            #[cfg(feature = "process")]
            At::Socket(SocketAddress::Unix(path)) => Self::Unix(path.clone()),
            #[cfg(feature = "process")]
            At::Socket(address) => Self::tcp(at, address.listen_at().ok().flatten()),
            #[cfg(feature = "process")]
            At::Stdio | At::Exec(_) => Self::other(at, "stdio:".to_owned()),
            #[cfg(feature = "nats")]
            At::Nats(address) => Self::other(at, address.name()),
            #[cfg(feature = "nostr")]
            At::Relays(_) => Self::other(at, "the same relays".to_owned()),
        }
    }

    fn web(at: &At, address: &WsAddress) -> Self {
        match &address.socket {
            Some(path) => Self::Unix(path.clone()),
            None => Self::tcp(at, address.listen_at().ok()),
        }
    }

    fn tcp(at: &At, listen_at: Option<(String, u16)>) -> Self {
        let Some((host, port)) = listen_at else {
            return Self::other(at, "the same address".to_owned());
        };
        let found = (host.as_str(), port).to_socket_addrs();
        Self::Tcp {
            addresses: found.map(Iterator::collect).unwrap_or_default(),
            host,
            port,
        }
    }

    fn other(at: &At, name: String) -> Self {
        Self::Other {
            at: at.clone(),
            name,
        }
    }

    /// Whether a listener at one of the two keeps others from listening at the other.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            // Port 0 stands for any free port, so two of them are never the same.
            (Self::Tcp { port: 0, .. }, _) | (_, Self::Tcp { port: 0, .. }) => false,
            (Self::Tcp { addresses: one, .. }, Self::Tcp { addresses: two, .. }) => one
                .iter()
                .any(|one| two.iter().any(|two| overlap(*one, *two))),
            (Self::Unix(one), Self::Unix(two)) => one == two,
            (Self::Other { at: one, .. }, Self::Other { at: two, .. }) => one == two,
            _ => false,
        }
    }

    /// Whether a socket at this address is one of this place.
    pub(super) fn is_at(&self, address: SocketAddr) -> bool {
        matches!(self, Self::Tcp { addresses, .. } if addresses.contains(&address))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
            Self::Other { name, .. } => f.write_str(name),
        }
    }
}

/// Whether listeners at two addresses exclude each other: a wildcard address includes every single one, and
/// `[::]` also those of IPv4.
fn overlap(one: SocketAddr, two: SocketAddr) -> bool {
    let covers = |wide: SocketAddr, narrow: SocketAddr| {
        wide.ip().is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4())
    };
    one.port() == two.port() && (one.ip() == two.ip() || covers(one, two) || covers(two, one))
}

#[cfg(all(test, feature = "process", feature = "http"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Endpoint;

    // OPS-2
    #[test]
    fn places_that_exclude_each_other() {
        for (one, two, overlaps) in [
            ("ws://8080", "http://127.0.0.1:8080/mcp", true),
            ("ws://8080/a", "ws://8080/b", true),
            ("ws://8080", "tcp://8081", false),
            ("ws://0.0.0.0:8080", "tcp://8080", true),
            ("ws://[::]:8080", "ws://0.0.0.0:8080", true),
            ("ws://[::1]:8080", "ws://127.0.0.1:8080", false),
            ("ws://[::1]:8080", "ws://0.0.0.0:8080", false),
            ("ws://0", "ws://0", false),
            ("ws+unix:/run/a", "unix:/run/a", true),
            ("unix:/run/a", "unix:/run/b", false),
            ("stdio:", "stdio:", true),
            ("stdio:", "ws://8080", false),
        ] {
            let place = |text: &str| Place::of(&text.parse::<Endpoint>().unwrap().at);
            assert_eq!(place(one).overlaps(&place(two)), overlaps, "{one} {two}");
            assert_eq!(place(two).overlaps(&place(one)), overlaps, "{two} {one}");
        }
    }
}
