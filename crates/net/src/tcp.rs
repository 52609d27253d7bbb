//! TCP and Unix sockets as plain byte streams.

use std::io;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Connects to `host:port`, with Nagle's algorithm off (`TCP_NODELAY`).
pub async fn connect(address: &str, within: Duration) -> io::Result<TcpStream> {
    let stream = timeout(within, TcpStream::connect(address))
        .await
        .map_err(|_| late(address, within))??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Accepts the next connection, with Nagle's algorithm off (`TCP_NODELAY`).
pub async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects to a Unix socket.
#[cfg(unix)]
pub async fn connect_unix(
    path: impl AsRef<std::path::Path>,
    within: Duration,
) -> io::Result<tokio::net::UnixStream> {
    let path = path.as_ref();
    timeout(within, tokio::net::UnixStream::connect(path))
        .await
        .map_err(|_| late(&path.display().to_string(), within))?
}

fn late(address: &str, within: Duration) -> io::Error {
    let seconds = within.as_secs_f64();
    let text = format!("connecting to {address} took over {seconds} s; is it up and reachable?");
    io::Error::new(io::ErrorKind::TimedOut, text)
}
