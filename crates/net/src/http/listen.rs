//! A server below the routers, which bounds what they cannot see: sockets, heads that do not end,
//! readers that do not read.

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

use crate::ws::{Identity, ListenError, Socket, acceptor, is_fatal, is_of_one, tune};

/// How long to wait when the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// The least that the HTTP library takes for a buffer.
const BUFFER_MIN: usize = 8 << 10;

/// What a server allows below HTTP.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How many sockets may be open; more are closed at once.
    pub sockets: usize,
    /// How long the head of a request may take, and a socket may be idle between two.
    pub head_time: Duration,
    /// Bytes of a head, and of what waits to be written beside one frame.
    pub head_bytes: usize,
    /// Fields of a head.
    pub headers: usize,
    /// A reader that takes nothing for so long is cut off.
    pub stalled: Duration,
    /// Makes this `https://` and `wss://`.
    pub identity: Option<Identity>,
}

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

/// Serves a router at a listening socket, until that fails or this is dropped: requests under way end
/// then, WebSockets that were made go on.
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
            Err(error) if is_of_one(&error) => continue,
            Err(error) if is_fatal(&error) => {
                let address = listener.local_addr().unwrap_or_else(|_| ([0; 4], 0).into());
                return Err(ListenError::Accept { address, error });
            }
            Err(error) => {
                tracing::warn!(%error, "no room for another connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if open.len() >= limits.sockets {
            let limit = limits.sockets;
            tracing::debug!(%peer, limit, "all sockets are taken: a client is refused");
            continue;
        }
        let (router, limits, acceptor) = (router.clone(), limits.clone(), acceptor.clone());
        open.spawn(async move {
            tune(&stream);
            let secured = secure(stream, acceptor);
            let socket = match timeout(limits.head_time, secured).await {
                Ok(Ok(socket)) => socket,
                Ok(Err(error)) => return tracing::debug!(%peer, %error, "TLS failed"),
                Err(_) => return tracing::debug!(%peer, "TLS takes too long"),
            };
            let router = TowerToHyperService::new(router);
            let service = service_fn(move |mut request: hyper::Request<_>| {
                request.extensions_mut().insert(ConnectInfo(peer));
                router.call(request)
            });
            let socket = TokioIo::new(Watched {
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
                tracing::debug!(%peer, %error, "a connection ended badly");
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

/// A socket whose reader must read.
#[derive(Debug)]
pub(crate) struct Watched {
    socket: Socket,
    stalled: Duration,
    /// Since the other end takes nothing.
    stall: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    pub(crate) fn into_socket(self) -> Socket {
        self.socket
    }

    fn watch<T>(
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
            format!("the other end took nothing for {seconds} s"),
        )))
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.watch(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.watch(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.socket).poll_flush(context);
        self.watch(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.socket).poll_shutdown(context);
        self.watch(context, outcome)
    }
}
