//! The stream below a WebSocket: TCP, a Unix socket, TLS, or an upgraded HTTP connection; and the socket
//! options that keep the kernel from queueing frames.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The value of `TCP_NOTSENT_LOWAT`: how much unsent data the kernel accepts. For a peer that does not
/// read, Linux buffers 160 KiB with this setting and 4 MiB without (measured); urgent small messages
/// would wait behind all of it.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT: u32 = 64 << 10;

/// Systems without `TCP_NOTSENT_LOWAT` get a small send buffer instead.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const SEND_BUFFER: usize = 256 << 10;

/// What a WebSocket runs over.
#[derive(Debug)]
pub(crate) enum Socket {
    Plain(TcpStream),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::TlsStream<TcpStream>>),
    /// A connection that another HTTP server than ours upgraded.
    #[cfg(feature = "http")]
    Upgraded(Box<hyper_util::rt::TokioIo<hyper::upgrade::Upgraded>>),
}

/// Sets the socket options for sending immediately and buffering little. A failure is only logged.
pub(crate) fn tune(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let mut set = vec![("TCP_NODELAY", socket.set_tcp_nodelay(true))];
    #[cfg(any(target_os = "linux", target_os = "android"))]
    set.push(("TCP_NOTSENT_LOWAT", socket.set_tcp_notsent_lowat(UNSENT)));
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    set.push(("SO_SNDBUF", socket.set_send_buffer_size(SEND_BUFFER)));
    for (option, outcome) in set {
        if let Err(error) = outcome {
            tracing::debug!(option, %error, "setting a socket option failed");
        }
    }
}

macro_rules! either {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self {
            Socket::Plain($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            #[cfg(unix)]
            Socket::Unix($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            #[cfg(feature = "tls")]
            Socket::Tls($stream) => {
                let $stream = Pin::new($stream.as_mut());
                $call
            }
            #[cfg(feature = "http")]
            Socket::Upgraded($stream) => {
                let $stream = Pin::new($stream.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), stream => stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), stream => stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            #[cfg(unix)]
            Self::Unix(stream) => stream.is_write_vectored(),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.is_write_vectored(),
            #[cfg(feature = "http")]
            Self::Upgraded(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => stream.poll_shutdown(context))
    }
}

/// A connection to a server over which nothing was said yet.
#[derive(Debug)]
pub struct ByteStream(pub(super) Socket);

impl AsyncRead for ByteStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(context, buffer)
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(context)
    }
}
