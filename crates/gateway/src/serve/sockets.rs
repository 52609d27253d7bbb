//! Keeps listening sockets open for longer than the gateways that accept from them.
//!
//! When one gateway takes the place of another at the same address, both accept from one socket, one after
//! the other: the address is never free for another program, and clients that connect in between wait
//! instead of being refused.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Mutex};

use breakbulk_link::lock;
use tokio::net::{TcpListener, lookup_host};

/// The TCP sockets that are held. Clones hold the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sockets(Arc<Mutex<Vec<Held>>>);

#[derive(Debug)]
struct Held {
    at: SocketAddr,
    socket: StdListener,
}

impl Sockets {
    /// A socket at this host and port: one that is held, else a new one.
    pub(crate) async fn bind(&self, host: &str, port: u16) -> io::Result<TcpListener> {
        match self.held(host, port).await? {
            Some(held) => Ok(held),
            None => TcpListener::bind((host, port)).await,
        }
    }

    /// Opens a socket and holds it, unless there is one at this host and port. Any port (0) is not held,
    /// since nobody could ask for it again. Returns the address if it was opened.
    pub(crate) async fn open(&self, host: &str, port: u16) -> io::Result<Option<SocketAddr>> {
        if port == 0 || self.held(host, port).await?.is_some() {
            return Ok(None);
        }
        let socket = TcpListener::bind((host, port)).await?.into_std()?;
        let at = socket.local_addr()?;
        lock(&self.0).push(Held { at, socket });
        Ok(Some(at))
    }

    /// Keeps only the sockets at these addresses.
    pub(crate) fn keep(&self, wanted: impl Fn(SocketAddr) -> bool) {
        lock(&self.0).retain(|held| wanted(held.at));
    }

    async fn held(&self, host: &str, port: u16) -> io::Result<Option<TcpListener>> {
        if lock(&self.0).is_empty() {
            return Ok(None);
        }
        let addresses: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
        let held = lock(&self.0);
        let found = held.iter().find(|held| addresses.contains(&held.at));
        let found = found.map(|held| held.socket.try_clone()).transpose()?;
        drop(held);
        found.map(TcpListener::from_std).transpose()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    // OPS-5
    #[tokio::test]
    async fn one_socket_serves_two_listeners_after_each_other() {
        let sockets = Sockets::default();
        // A free port.
        let port = {
            let free = StdListener::bind(("127.0.0.1", 0)).unwrap();
            free.local_addr().unwrap().port()
        };
        let at = sockets.open("127.0.0.1", port).await.unwrap().unwrap();
        assert_eq!(sockets.open("localhost", port).await.unwrap(), None);
        let first = sockets.bind("127.0.0.1", port).await.unwrap();
        let _one = tokio::net::TcpStream::connect(at).await.unwrap();
        first.accept().await.unwrap();
        drop(first);
        // Whoever comes now waits for the next listener.
        let two = tokio::net::TcpStream::connect(at).await.unwrap();
        let second = sockets.bind("127.0.0.1", port).await.unwrap();
        let (_, peer) = second.accept().await.unwrap();
        assert_eq!(peer, two.local_addr().unwrap());
        sockets.keep(|_| false);
        drop(second);
        assert!(tokio::net::TcpStream::connect(at).await.is_err());
    }
}
