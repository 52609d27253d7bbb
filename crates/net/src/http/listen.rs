//! An HTTP server that runs the routers and limits what they cannot see: open sockets, request heads
//! that never end, and clients that do not read their answers.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

use super::answer::Answer;
use crate::gate::{Gate, Limit, PlaceGuard, Refusals, SharedPlaces};
use crate::limiter::{AddressKey, AddressLimits};
use crate::listening::{Client, ListenSocket};
use crate::ws::{Identity, ListenError, Refusal, Socket, accept, acceptor};

/// hyper's minimum for its buffer size.
const BUFFER_MIN: usize = 8 << 10;

/// The limits of [`serve`] on sockets and request heads.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// How many sockets may be open. To make room for another, the one that was idle longest, of the
    /// address with the most idle ones, is closed; if none is idle, further ones get 503.
    pub sockets: usize,
    /// The limits for one client address; `connections` limits its sockets.
    pub per_address: AddressLimits,
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
    /// A PEM file with authorities: only clients with a certificate that one of them signed are
    /// accepted. It needs `identity`.
    pub client_authority: Option<PathBuf>,
    /// Where refused clients are counted.
    pub refusals: Refusals,
}

breakbulk_link::with!(Limits);

impl Default for Limits {
    fn default() -> Self {
        Self {
            sockets: 4096,
            per_address: AddressLimits {
                connections: 1024,
                ..AddressLimits::default()
            },
            head_time: Duration::from_secs(30),
            head_bytes: 32 << 10,
            headers: 64,
            stalled: Duration::from_secs(60),
            identity: None,
            client_authority: None,
            refusals: Refusals::default(),
        }
    }
}

/// Serves a router at a listening socket, until the socket fails or this future is dropped: requests in
/// progress end then, WebSockets that were opened go on.
pub async fn serve(
    socket: impl Into<ListenSocket>,
    router: Router,
    limits: Limits,
) -> Result<std::convert::Infallible, ListenError> {
    serve_until(socket, router, limits, std::future::pending()).await?;
    std::future::pending().await
}

/// Serves a router as [`serve`] does until `stop` is done. Then it accepts nothing more, and returns
/// once all requests in progress are answered; if this future is dropped before, they end.
pub async fn serve_until(
    socket: impl Into<ListenSocket>,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), ListenError> {
    let acceptor = match &limits.identity {
        Some(identity) => Some(acceptor(identity, limits.client_authority.as_deref())?),
        None => None,
    };
    let state = Arc::new(ListenState {
        gate: Gate::new(
            limits.per_address.clone(),
            limits.sockets.div_ceil(16).min(64),
        )
        .counting(limits.refusals.clone()),
        places: SharedPlaces::new(limits.sockets, limits.per_address.connections),
        acceptor,
        limits,
        stopping: watch::Sender::new(false),
    });
    let socket = socket.into();
    let address = socket.address().map_err(|error| ListenError::Bind {
        address: "a socket without an address".to_owned(),
        error,
    })?;
    let mut open = JoinSet::new();
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept(&state.gate.warnings) => accepted,
            Some(_) = open.join_next() => continue,
            () = &mut stop => break,
        };
        let client = match accepted {
            Ok(client) => client,
            Err(error) => return Err(ListenError::Accept { address, error }),
        };
        let peer = client.peer;
        let key = state.gate.key_of_socket(peer.ip());
        // A TLS handshake costs as much as many requests.
        if state.acceptor.is_some() && !state.gate.asks(peer, key) {
            continue;
        }
        let place = match state.places.take(key, true) {
            Ok((place, evicts)) => {
                if evicts {
                    state.log_eviction();
                }
                place
            }
            Err(full) => {
                state.gate.log_full(full, peer, state.limits.sockets);
                open.spawn(state.clone().refuse(client.socket));
                continue;
            }
        };
        open.spawn(state.clone().serve_socket(client, place, router.clone()));
    }
    drop(socket);
    state.stopping.send_replace(true);
    while open.join_next().await.is_some() {}
    Ok(())
}

/// What all sockets of a listener share.
struct ListenState {
    limits: Limits,
    gate: Gate,
    places: SharedPlaces,
    acceptor: Option<tokio_rustls::TlsAcceptor>,
    /// Set when the sockets are to be closed once their requests are answered.
    stopping: watch::Sender<bool>,
}

/// The address that a client connected to, as an extension of its requests.
#[derive(Clone, Copy, Debug)]
pub struct LocalAddress(pub SocketAddr);

impl ListenState {
    async fn serve_socket(self: Arc<Self>, client: Client, place: PlaceGuard, router: Router) {
        let Client {
            socket,
            peer,
            local,
        } = client;
        let evicted = place.evicted_by_newcomer();
        let serving = async {
            let secured = accept(self.acceptor.as_ref(), socket);
            let socket = match timeout(self.limits.head_time, secured).await {
                Ok(Ok(socket)) => socket,
                Ok(Err(error)) => return tracing::debug!(%peer, %error, "the TLS handshake failed"),
                Err(_) => {
                    let limit = self.limits.head_time;
                    return tracing::debug!(%peer, ?limit, "the TLS handshake took too long");
                }
            };
            self.serve_requests(socket, peer, local, place, router)
                .await;
        };
        tokio::select! {
            () = serving => {}
            () = evicted => {}
        }
    }

    async fn serve_requests(
        self: &Arc<Self>,
        socket: Socket,
        peer: SocketAddr,
        local: Option<SocketAddr>,
        place: PlaceGuard,
        router: Router,
    ) {
        let router = TowerToHyperService::new(router);
        let (state, place) = (self.clone(), Arc::new(place));
        let service = service_fn(move |mut request: Request<Incoming>| {
            let busy = BusySocket::new(place.clone());
            let client = state.gate.client(request.headers(), peer.ip());
            let granted = state.gate.asks(client, AddressKey::of(client));
            // Behind a proxy the port belongs to the proxy.
            let port = if client == peer.ip() { peer.port() } else { 0 };
            let extensions = request.extensions_mut();
            extensions.insert(ConnectInfo(SocketAddr::new(client, port)));
            if let Some(local) = local {
                extensions.insert(LocalAddress(local));
            }
            let answering = granted.then(|| router.call(request));
            async move {
                let response = match answering {
                    Some(answering) => answering.await?,
                    None => Answer::busy("too many requests from this address: try again later")
                        .closing()
                        .into(),
                };
                Ok::<_, std::convert::Infallible>(
                    response.map(|body| BusyBody { body, _busy: busy }),
                )
            }
        });
        let socket = TokioIo::new(WriteTimeoutSocket {
            socket,
            stalled: self.limits.stalled,
            stall: None,
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_time)
            .max_buf_size(self.limits.head_bytes.max(BUFFER_MIN))
            .max_headers(self.limits.headers)
            .serve_connection(socket, service)
            .with_upgrades();
        let mut stopping = self.stopping.subscribe();
        let stopped = async { drop(stopping.wait_for(|stopping| *stopping).await) };
        tokio::pin!(served);
        let served = tokio::select! {
            served = &mut served => served,
            () = stopped => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(%peer, %error, "an HTTP connection ended with an error");
        }
    }

    /// Refuses a client before its request was read.
    async fn refuse(self: Arc<Self>, socket: Socket) {
        // Over TLS an answer would need a handshake.
        if self.acceptor.is_none() {
            let answer = Refusal::busy().to_bytes();
            self.gate.answer_and_close(socket, &answer).await;
        }
    }

    fn log_eviction(&self) {
        let limit = self.limits.sockets;
        self.gate.warnings.log(
            Limit::Silent,
            "the one idle longest",
            &format_args!("{limit} sockets are open, and it made room for a new client"),
        );
    }
}

/// Marks a socket as busy, until this is dropped.
struct BusySocket(Arc<PlaceGuard>);

impl BusySocket {
    fn new(place: Arc<PlaceGuard>) -> Self {
        place.set_idle(false);
        Self(place)
    }
}

impl Drop for BusySocket {
    fn drop(&mut self) {
        self.0.set_idle(true);
    }
}

/// The body of an answer. Its socket is busy while it is sent.
struct BusyBody {
    body: Body,
    _busy: BusySocket,
}

impl hyper::body::Body for BusyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
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
