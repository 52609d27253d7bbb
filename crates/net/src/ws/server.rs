//! The server: a listener that performs handshakes concurrently.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use breakbulk_link::lock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::handshake::server::{Request, write_response};
use tokio_tungstenite::tungstenite::http::header::HeaderMap;

use super::bearer::Bearer;
use super::error::ListenError;
use super::head::{HEAD_MAX, HeadError, read_head};
use super::request::{self, Refusal, admit};
use super::socket::{Socket, tune};
use super::transport::{Parts, WebSocket};
use super::{FRAGMENT, FRAME_LIMIT};

/// How long to wait after accepting failed, for example for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// At most one warning about refused clients is logged in this time.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// The options of a [`Listener`].
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// The token that every client must send; others get 401.
    pub bearer: Option<Bearer>,
    /// The one path that is served; others get 404.
    pub path: Option<String>,
    /// The supported subprotocols, the best first. A client that offers none of them is accepted
    /// without one.
    pub subprotocols: Vec<String>,
    /// The origins of web pages that may connect; others get 403. Any page can open a WebSocket to
    /// this machine, and only `Origin` tells whose it is: `None` allows pages of this machine
    /// (loopback, or the same IP address that the request was sent to; a host name proves nothing),
    /// a list allows exactly those origins, `"*"` allows all. Programs other than browsers send no
    /// `Origin` and are not affected.
    pub allowed_origins: Option<Vec<String>>,
    /// How long a handshake may take, TLS included.
    pub timeout: Duration,
    /// How many handshakes may be in progress; further connections are closed immediately.
    pub handshakes: usize,
    /// How many WebSockets may be open; further requests get 503.
    pub connections: usize,
    /// The largest incoming message that is accepted, in bytes.
    pub frame_limit: usize,
    /// A larger message is sent as WebSocket fragments of this size.
    pub fragment: Option<usize>,
    /// The certificate and key; with them the server speaks `wss://`.
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

/// A listening socket. Dropping it stops listening; accepted connections go on.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    accepted: mpsc::Receiver<Result<Accepted, ListenError>>,
    task: JoinHandle<()>,
}

/// A connection whose handshake succeeded.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub websocket: WebSocket,
    /// The client's address.
    pub peer: SocketAddr,
    /// The path of the request, without the query.
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

    /// A header of the request, if it is present and text. `Authorization` is removed.
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
        let (sender, accepted) = mpsc::channel(1);
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
            refusals: RefusalLog::default(),
        };
        let task = tokio::spawn(serve(listener, address, Arc::new(state), sender));
        Ok(Self {
            address,
            accepted,
            task,
        })
    }

    /// The address that it listens at.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next connection whose handshake succeeds. Cancel-safe.
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
        // Handshakes in progress end with the task.
        self.task.abort();
    }
}

/// Accepts connections, and performs the handshake of each in a task of its own.
async fn serve(
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<ServerState>,
    accepted: mpsc::Sender<Result<Accepted, ListenError>>,
) {
    let mut handshakes = JoinSet::new();
    loop {
        while handshakes.try_join_next().is_some() {}
        let (stream, peer) = match listener.accept().await {
            Ok(connection) => connection,
            // A client that gave up early.
            Err(error) if is_client_error(&error) => continue,
            Err(error) if is_fatal(&error) => {
                let _ = accepted
                    .send(Err(ListenError::Accept { address, error }))
                    .await;
                return;
            }
            Err(error) => {
                tracing::warn!(
                    %address,
                    %error,
                    "accepting a connection failed, trying again in {PAUSE:?}; \
                     raise the limit of open files if it is reached"
                );
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        while handshakes.try_join_next().is_some() {}
        if handshakes.len() >= state.options.handshakes {
            // Closed without an answer, which would have to wait for the request.
            let limit = state.options.handshakes;
            state
                .refusals
                .log(peer, &format_args!("{limit} handshakes are in progress"));
            continue;
        }
        let (state, accepted) = (state.clone(), accepted.clone());
        handshakes.spawn(async move {
            tune(&stream);
            match timeout(state.options.timeout, state.handshake(stream, peer)).await {
                Ok(Some(connection)) => {
                    let _ = accepted.send(Ok(connection)).await;
                }
                Ok(None) => {}
                Err(_) => {
                    let after = state.options.timeout.as_secs_f64();
                    state.refusals.log(
                        peer,
                        &format_args!("the handshake was not finished within {after} s"),
                    );
                }
            }
        });
    }
}

/// Whether an error of `accept` concerns only the client that was connecting.
pub(crate) fn is_client_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Whether the listening socket itself has failed.
pub(crate) fn is_fatal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected | io::ErrorKind::Unsupported
    )
}

/// Logs refused clients. Anybody can cause a refusal, as often as they like, so warnings are limited in
/// rate and carry a count of the refusals in between.
#[derive(Default)]
struct RefusalLog(Mutex<RefusalCount>);

#[derive(Default)]
struct RefusalCount {
    last_logged: Option<Instant>,
    unlogged: u64,
}

impl RefusalLog {
    fn log(&self, peer: SocketAddr, why: &dyn std::fmt::Display) {
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

    /// The number of refusals since the last warning, if another warning is due.
    fn due(&self, now: Instant) -> Option<u64> {
        let mut count = lock(&self.0);
        if count
            .last_logged
            .is_some_and(|logged| now < logged + LOG_PAUSE)
        {
            count.unlogged = count.unlogged.saturating_add(1);
            return None;
        }
        count.last_logged = Some(now);
        Some(std::mem::take(&mut count.unlogged))
    }
}

/// What all handshakes share.
struct ServerState {
    options: ListenOptions,
    refusals: RefusalLog,
    /// One permit for every connection that may be open.
    open: Arc<Semaphore>,
    #[cfg(feature = "tls")]
    acceptor: Option<tokio_rustls::TlsAcceptor>,
}

impl ServerState {
    /// Performs one handshake; `None` if it failed or was refused.
    async fn handshake(&self, stream: TcpStream, peer: SocketAddr) -> Option<Accepted> {
        let log_failure = |error: &dyn std::fmt::Display| {
            tracing::debug!(%peer, error = %error, "a WebSocket handshake failed");
        };
        let mut socket = match self.secure(stream).await {
            Ok(socket) => socket,
            Err(error) => {
                self.refusals
                    .log(peer, &format_args!("TLS failed: {error}"));
                return None;
            }
        };
        let refusal = match read_head::<Request>(&mut socket).await {
            Ok((request, rest)) => match admit(&request, &self.options) {
                Ok((response, subprotocol)) => match self.open.clone().try_acquire_owned() {
                    Ok(permit) => {
                        let mut answer = Vec::new();
                        if let Err(error) = write_response(&mut answer, &response) {
                            log_failure(&error);
                            return None;
                        }
                        if let Err(error) = write_all(&mut socket, &answer).await {
                            log_failure(&error);
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
            Err(HeadError::Io(error)) => {
                log_failure(&error);
                return None;
            }
            Err(HeadError::TooLong) => Refusal::new(
                "431 Request Header Fields Too Large",
                format!("The head of a request may have at most {HEAD_MAX} bytes.\n"),
            ),
            Err(HeadError::Malformed(reason)) => {
                Refusal::new("400 Bad Request", format!("{reason}\n"))
            }
        };
        // The text may quote the client: it is shortened and stripped of control characters.
        let why = refusal.text.chars().filter(|c| !c.is_control());
        let why: String = why.take(200).collect();
        self.refusals
            .log(peer, &format_args!("{}: {why}", refusal.status));
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

/// Sends the refusal and closes. Reads what the client still sends: closing with unread bytes would
/// reset the connection, and the client would not see the answer.
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
        let (refusals, start) = (RefusalLog::default(), Instant::now());
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
            assert_eq!(refusals.due(now), told, "after {after} ms");
        }
    }
}
