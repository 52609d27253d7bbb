//! Socket options: small buffers if the rate is limited, so that the system buffers little.

use std::io;
use std::net::SocketAddr;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::weather::Weather;

/// The buffer size after a rate limit was removed: the system no longer sizes the buffers itself then.
const FREE_BUFFER: usize = 1024 * 1024;

/// The TCP segment size of a real network, set if the rate is limited before the connection opens:
/// loopback's segments of 64 KiB would need large buffers.
const PACED_SEGMENT: usize = 1400;

/// The buffer size in segments. With less the system waits for its timers: 2 MB at 4 MB/s took 11 s
/// with half a segment (measured).
const SEGMENTS: usize = 4;

pub(super) fn listen(address: SocketAddr, weather: &Weather) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Listeners of the standard library do the same: a port that was just in use can be bound again.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    before_opening(&socket, None, weather.from_client.pace);
    socket.bind(address)?;
    socket.listen(128)
}

/// Connects to the first address of `target` that answers.
pub(super) async fn connect(target: &str, weather: &Weather) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in tokio::net::lookup_host(target).await? {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        before_opening(&socket, None, weather.from_target.pace);
        match socket.connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sets the options that must be set before connecting, since segment size and first window are
/// negotiated then. Accepted sockets inherit those of the listener.
pub(super) fn before_opening<'a>(
    socket: impl Into<SockRef<'a>>,
    before: Option<u64>,
    pace: Option<u64>,
) {
    // A socket whose rate was never limited keeps the system's sizes.
    if before.is_some() || pace.is_some() {
        let socket = socket.into();
        let segment = pace.map(|_| PACED_SEGMENT);
        let _ = socket.set_recv_buffer_size(buffer(segment));
        // 0 restores the system's own choice.
        #[cfg(target_os = "linux")]
        let _ = socket.set_tcp_mss(segment.unwrap_or(0) as u32);
    }
}

/// Sets the buffer sizes of one direction's two sockets for its rate, as far as the system allows.
pub(super) fn size(from: &TcpStream, to: &TcpStream, pace: Option<u64>) {
    let (from, to) = (SockRef::from(from), SockRef::from(to));
    let segment = |socket: &SockRef<'_>| pace.map(|_| segment(socket));
    let _ = from.set_recv_buffer_size(buffer(segment(&from)));
    let _ = to.set_send_buffer_size(buffer(segment(&to)));
    #[cfg(target_os = "linux")]
    let _ = to.set_tcp_notsent_lowat(buffer(segment(&to)) as u32);
}

fn buffer(paced_segment: Option<usize>) -> usize {
    match paced_segment {
        // The system doubles the size that is set.
        Some(segment) => (segment * SEGMENTS).max(16 * 1024),
        None => FREE_BUFFER,
    }
}

fn segment(_socket: &SockRef<'_>) -> usize {
    #[cfg(target_os = "linux")]
    if let Ok(segment) = _socket.tcp_mss() {
        return segment as usize;
    }
    64 * 1024
}

/// Closes a connection with a reset.
pub(super) fn reset(stream: TcpStream) {
    let _ = stream.set_zero_linger();
    drop(stream);
}
