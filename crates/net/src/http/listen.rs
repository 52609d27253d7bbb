//! An HTTP server that runs the routers and limits what they cannot see: open sockets, request heads
//! that never end, and clients that do not read their answers.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

use crate::ws::{Identity, ListenError, Socket, acceptor, is_client_error, is_fatal, tune};

/// How long to wait after accepting failed, for example for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// hyper's minimum for its buffer size.
const BUFFER_MIN: usize = 8 << 10;

/// The limits of [`serve`] on sockets and request heads.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// How many sockets may be open; further ones are closed immediately.
    pub sockets: usize,
    /// How long a request head may take to arrive, and how long a socket may be idle between requests.
    pub head_time: Duration,
    /// The longest request head in bytes, and the size of hyper's write buffer.
    pub head_bytes: usize,
    /// How many header fields a request may have.
    pub headers: usize,
    /// A client that reads nothing of its answer for this long is disconnected.
    pub stalled: Duration,
    /// The certificate and key; with them the server speaks `https://` and `wss://`.
    pub identity: Option<Identity>,
}

breakbulk_link::with!(Limits);

impl Default for Limits {
    fn default() -> Self {
        Self {
            sockets: 4096,
            head_time: Duration::from_secs(30),
            head_bytes: 32 << 10,
            headers: 64,
            stalled: Duration::from_secs(60),
            identity: None,
        }
    }
}

/// Serves a router at a listening socket, until the socket fails or this future is dropped: requests in
/// progress end then, WebSockets that were opened go on.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
) -> Result<std::convert::Infallible, ListenError> {
    let acceptor = match &limits.identity {
        Some(identity) => Some(acceptor(identity)?),
        None => None,
    };
    let limits = Arc::new(limits);
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = open.join_next() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_client_error(&error) => continue,
            Err(error) if is_fatal(&error) => {
                let address = listener.local_addr().unwrap_or_else(|_| ([0; 4], 0).into());
                return Err(ListenError::Accept { address, error });
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    "accepting a connection failed, trying again in {PAUSE:?}; \
                     raise the limit of open files if it is reached"
                );
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if open.len() >= limits.sockets {
            let limit = limits.sockets;
            tracing::debug!(%peer, limit, "connection closed: the limit of open sockets is reached");
            continue;
        }
        let (router, limits, acceptor) = (router.clone(), limits.clone(), acceptor.clone());
        open.spawn(async move {
            tune(&stream);
            let secured = secure(stream, acceptor);
            let socket = match timeout(limits.head_time, secured).await {
                Ok(Ok(socket)) => socket,
                Ok(Err(error)) => return tracing::debug!(%peer, %error, "the TLS handshake failed"),
                Err(_) => {
                    let limit = limits.head_time;
                    return tracing::debug!(%peer, ?limit, "the TLS handshake took too long");
                }
            };
            let router = TowerToHyperService::new(router);
            let service = service_fn(move |mut request: hyper::Request<_>| {
                request.extensions_mut().insert(ConnectInfo(peer));
                router.call(request)
            });
            let socket = TokioIo::new(WriteTimeoutSocket {
                socket,
                stalled: limits.stalled,
                stall: None,
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits.head_time)
                .max_buf_size(limits.head_bytes.max(BUFFER_MIN))
                .max_headers(limits.headers)
                .serve_connection(socket, service)
                .with_upgrades()
                .await;
            if let Err(error) = served {
                tracing::debug!(%peer, %error, "an HTTP connection ended with an error");
            }
        });
    }
}

async fn secure(
    stream: TcpStream,
    acceptor: Option<tokio_rustls::TlsAcceptor>,
) -> io::Result<Socket> {
    Ok(match acceptor {
        None => Socket::Plain(stream),
        Some(acceptor) => Socket::Tls(Box::new(acceptor.accept(stream).await?.into())),
    })
}

/// A socket whose writes fail if the other end takes nothing for too long.
#[derive(Debug)]
pub(crate) struct WriteTimeoutSocket {
    socket: Socket,
    stalled: Duration,
    /// Runs while a write is pending.
    stall: Option<Pin<Box<Sleep>>>,
}

impl WriteTimeoutSocket {
    pub(crate) fn into_socket(self) -> Socket {
        self.socket
    }

    /// Starts the timeout when a write is pending, and stops it when one is done.
    fn with_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stall = None;
            return outcome;
        }
        let stalled = self.stalled;
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(stalled)));
        if stall.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        let seconds = stalled.as_secs_f64();
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("the other end read nothing for {seconds} s"),
        )))
    }
}

impl AsyncRead for WriteTimeoutSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl AsyncWrite for WriteTimeoutSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.with_timeout(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.with_timeout(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.socket).poll_flush(context);
        self.with_timeout(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.socket).poll_shutdown(context);
        self.with_timeout(context, outcome)
    }
}
