//! The server's side: a listener whose handshakes do not wait for each other.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::handshake::server::{Request, write_response};
use tokio_tungstenite::tungstenite::http::header::HeaderMap;

use super::bearer::Bearer;
use super::error::ListenError;
use super::head::{HEAD_MAX, NoHead, read_head};
use super::request::{self, Refusal, admit};
use super::socket::{Socket, tune};
use super::transport::{Parts, WebSocket};
use super::{FRAGMENT, FRAME_LIMIT};

/// How long to wait when the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// At most one line of the log in this time is about clients that were refused.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// How to listen.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// The token that every client must send; others get 401.
    pub bearer: Option<Bearer>,
    /// The one path that is served; others get 404.
    pub path: Option<String>,
    /// The subprotocols understood, the best first. A client that offers none of them is taken
    /// without one.
    pub subprotocols: Vec<String>,
    /// Whose web pages may connect; others get 403. Any page can open a WebSocket to this machine,
    /// and only `Origin` tells whose it is: `None` lets in pages of this machine itself (loopback, or
    /// the very IP address that was asked for; a name proves nothing), a list lets in exactly those
    /// origins, `"*"` all. Programs that are no browser send no `Origin` and are not concerned.
    pub allowed_origins: Option<Vec<String>>,
    /// How long a handshake may take, TLS included.
    pub timeout: Duration,
    /// How many handshakes may be under way; connections above are closed.
    pub handshakes: usize,
    /// How many WebSockets may be open; requests above get 503.
    pub connections: usize,
    /// The largest frame that is taken.
    pub frame_limit: usize,
    /// A larger message goes out as WebSocket fragments of this size.
    pub fragment: Option<usize>,
    /// Makes this `wss://`.
    #[cfg(feature = "tls")]
    pub identity: Option<super::tls::Identity>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            bearer: None,
            path: None,
            subprotocols: Vec::new(),
            allowed_origins: None,
            timeout: Duration::from_secs(10),
            handshakes: 256,
            connections: 1024,
            frame_limit: FRAME_LIMIT,
            fragment: Some(FRAGMENT),
            #[cfg(feature = "tls")]
            identity: None,
        }
    }
}

/// A listening socket. Dropped, it listens no more; connections that were taken go on.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    accepted: mpsc::Receiver<Result<Accepted, ListenError>>,
    task: JoinHandle<()>,
}

/// A connection that passed the handshake.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub websocket: WebSocket,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// The path that was asked for, without the query.
    pub path: String,
    /// The query, without its question mark.
    pub query: Option<String>,
    headers: HeaderMap,
}

impl Accepted {
    /// The subprotocol that both ends agreed on.
    pub fn subprotocol(&self) -> Option<&str> {
        self.websocket.subprotocol()
    }

    /// A header of the request, if it is there and text. The token is not shown.
    pub fn header(&self, name: &str) -> Option<&str> {
        request::text(&self.headers, name)
    }
}

impl Listener {
    /// Listens at an address; port 0 takes a free one.
    pub async fn bind(
        address: impl ToSocketAddrs + std::fmt::Debug,
        options: ListenOptions,
    ) -> Result<Self, ListenError> {
        let named = format!("{address:?}");
        let bind = |error| ListenError::Bind {
            address: named,
            error,
        };
        let listener = match TcpListener::bind(address).await {
            Ok(listener) => listener,
            Err(error) => return Err(bind(error)),
        };
        let address = listener.local_addr().map_err(bind)?;
        let (tell, accepted) = mpsc::channel(1);
        let state = ServerState {
            #[cfg(feature = "tls")]
            acceptor: match &options.identity {
                Some(identity) => Some(super::tls::acceptor(identity)?),
                None => None,
            },
            open: Arc::new(Semaphore::new(
                options.connections.min(Semaphore::MAX_PERMITS),
            )),
            options,
            refused: Refused::default(),
        };
        let task = tokio::spawn(serve(listener, address, Arc::new(state), tell));
        Ok(Self {
            address,
            accepted,
            task,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The next connection that passed its handshake. Cancel-safe.
    pub async fn accept(&mut self) -> Result<Accepted, ListenError> {
        self.accepted
            .recv()
            .await
            .unwrap_or(Err(ListenError::Ended {
                address: self.address,
            }))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Handshakes under way end with it.
        self.task.abort();
    }
}

/// Takes connections and has each shake hands in a task of its own.
async fn serve(
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<ServerState>,
    tell: mpsc::Sender<Result<Accepted, ListenError>>,
) {
    let mut handshakes = JoinSet::new();
    loop {
        while handshakes.try_join_next().is_some() {}
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            // One client that gave up early.
            Err(error) if is_of_one(&error) => continue,
            Err(error) if is_fatal(&error) => {
                let _ = tell.send(Err(ListenError::Accept { address, error })).await;
                return;
            }
            Err(error) => {
                tracing::warn!(%address, %error, "no room for another connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        while handshakes.try_join_next().is_some() {}
        if handshakes.len() >= state.options.handshakes {
            // It is closed at once: an answer would have to wait for a request.
            let limit = state.options.handshakes;
            state
                .refused
                .tell(peer, &format_args!("{limit} handshakes are under way"));
            continue;
        }
        let (state, tell) = (state.clone(), tell.clone());
        handshakes.spawn(async move {
            tune(&stream);
            match timeout(state.options.timeout, state.handshake(stream, peer)).await {
                Ok(Some(accepted)) => {
                    let _ = tell.send(Ok(accepted)).await;
                }
                Ok(None) => {}
                Err(_) => {
                    let after = state.options.timeout.as_secs_f64();
                    state
                        .refused
                        .tell(peer, &format_args!("no handshake within {after} s"));
                }
            }
        });
    }
}

/// Whether only the client of that socket is concerned.
pub(crate) fn is_of_one(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Whether the listening socket itself is of no more use.
pub(crate) fn is_fatal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected | io::ErrorKind::Unsupported
    )
}

/// Who was refused of late. Anybody can be, as often as he likes: the log is told at most once in a
/// while, with a count.
#[derive(Default)]
struct Refused(Mutex<Untold>);

#[derive(Default)]
struct Untold {
    told: Option<Instant>,
    more: u64,
}

impl Refused {
    fn tell(&self, peer: SocketAddr, why: &dyn std::fmt::Display) {
        let Some(more) = self.due(Instant::now()) else {
            return tracing::debug!(%peer, %why, "a client is refused");
        };
        match more {
            0 => tracing::warn!(%peer, "a client is refused: {why}"),
            more => tracing::warn!(
                %peer,
                "a client is refused: {why}; {more} more were refused since the last such line"
            ),
        }
    }

    /// How many were not told, if it is time to tell.
    fn due(&self, now: Instant) -> Option<u64> {
        let mut untold = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if untold.told.is_some_and(|told| now < told + LOG_PAUSE) {
            untold.more = untold.more.saturating_add(1);
            return None;
        }
        untold.told = Some(now);
        Some(std::mem::take(&mut untold.more))
    }
}

/// What every handshake needs.
struct ServerState {
    options: ListenOptions,
    refused: Refused,
    /// One permit for every connection that may be open.
    open: Arc<Semaphore>,
    #[cfg(feature = "tls")]
    acceptor: Option<tokio_rustls::TlsAcceptor>,
}

impl ServerState {
    /// One handshake; `None` where it failed or was refused.
    async fn handshake(&self, stream: TcpStream, peer: SocketAddr) -> Option<Accepted> {
        let told = |error: &dyn std::fmt::Display| {
            tracing::debug!(%peer, error = %error, "a handshake failed");
        };
        let mut socket = match self.secure(stream).await {
            Ok(socket) => socket,
            Err(error) => {
                self.refused
                    .tell(peer, &format_args!("TLS failed: {error}"));
                return None;
            }
        };
        let refusal = match read_head::<Request>(&mut socket).await {
            Ok((request, rest)) => match admit(&request, &self.options) {
                Ok((response, subprotocol)) => match self.open.clone().try_acquire_owned() {
                    Ok(permit) => {
                        let mut answer = Vec::new();
                        if let Err(error) = write_response(&mut answer, &response) {
                            told(&error);
                            return None;
                        }
                        if let Err(error) = write_all(&mut socket, &answer).await {
                            told(&error);
                            return None;
                        }
                        let parts = Parts {
                            socket,
                            peer,
                            rest,
                            server: true,
                            frame_limit: self.options.frame_limit,
                            fragment: self.options.fragment,
                            subprotocol,
                            permit: Some(permit),
                        };
                        return Some(Accepted {
                            websocket: WebSocket::new(parts),
                            peer,
                            path: request.uri().path().to_owned(),
                            query: request.uri().query().map(ToOwned::to_owned),
                            headers: request::public_headers(&request),
                        });
                    }
                    Err(_) => Refusal::busy(),
                },
                Err(refusal) => refusal,
            },
            Err(NoHead::Io(error)) => {
                told(&error);
                return None;
            }
            Err(NoHead::TooLong) => Refusal::new(
                "431 Request Header Fields Too Large",
                format!("The head of a request may have {HEAD_MAX} bytes.\n"),
            ),
            Err(NoHead::Malformed(reason)) => {
                Refusal::new("400 Bad Request", format!("{reason}\n"))
            }
        };
        // Some of it may be the client's own words.
        let why = refusal.text.chars().filter(|c| !c.is_control());
        let why: String = why.take(200).collect();
        self.refused
            .tell(peer, &format_args!("{}: {why}", refusal.status));
        refuse(socket, &refusal).await;
        None
    }

    #[cfg(feature = "tls")]
    async fn secure(&self, stream: TcpStream) -> io::Result<Socket> {
        match &self.acceptor {
            None => Ok(Socket::Plain(stream)),
            Some(acceptor) => {
                let stream = acceptor.accept(stream).await?;
                Ok(Socket::Tls(Box::new(stream.into())))
            }
        }
    }

    #[cfg(not(feature = "tls"))]
    async fn secure(&self, stream: TcpStream) -> io::Result<Socket> {
        Ok(Socket::Plain(stream))
    }
}

async fn write_all(socket: &mut Socket, bytes: &[u8]) -> io::Result<()> {
    socket.write_all(bytes).await?;
    socket.flush().await
}

/// Answers and closes; what the client still sends is read, or it would get a reset for an answer.
async fn refuse(mut socket: Socket, refusal: &Refusal) {
    if write_all(&mut socket, &refusal.to_bytes()).await.is_err() {
        return;
    }
    let _ = socket.shutdown().await;
    let mut room = [0; 1024];
    let mut left = 4 * HEAD_MAX;
    while let Ok(read @ 1..) = socket.read(&mut room).await {
        left = left.saturating_sub(read);
        if left == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_clients_are_told_once_a_second_with_a_count() {
        let (refused, start) = (Refused::default(), Instant::now());
        for (after, told) in [
            (0, Some(0)),
            (1, None),
            (999, None),
            (1000, Some(2)),
            (1999, None),
            (5000, Some(1)),
            (9000, Some(0)),
        ] {
            let now = start + Duration::from_millis(after);
            assert_eq!(refused.due(now), told, "after {after} ms");
        }
    }
}
