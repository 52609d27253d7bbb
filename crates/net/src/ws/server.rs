//! The server: a listener that performs handshakes concurrently.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, ToSocketAddrs};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response, write_response};
use tokio_tungstenite::tungstenite::http::header::HeaderMap;

use super::bearer::{Bearer, Tokens};
use super::error::ListenError;
use super::head::{HEAD_MAX, HeadError, read_head};
use super::request::{self, Admitted, Refusal, admit};
use super::socket::Socket;
use super::transport::{Parts, WebSocket};
use super::{FRAGMENT, FRAME_LIMIT};
use crate::gate::{Gate, Limit, Permit, PlaceGuard, Refusals, SharedPlaces};
use crate::limiter::{AddressKey, AddressLimits};
use crate::listening::{Client, ListenAddress, ListenSocket};

/// The options of a [`Listener`].
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// The token that every client must send; others get 401.
    pub bearer: Option<Bearer>,
    /// Several tokens, of which every client must send one; others get 401.
    pub tokens: Option<Arc<dyn Tokens>>,
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
    /// The names in `Host` that are served beside those of this machine (`localhost` and loopback
    /// addresses); others get 403. A web page can make its own name stand for this machine (DNS
    /// rebinding), and then passes for a page of it. `None` allows any name if there is a token, and
    /// where the connection did not come by a loopback address.
    pub allowed_hosts: Option<Vec<String>>,
    /// How long a handshake may take, TLS included.
    pub timeout: Duration,
    /// How many handshakes may be in progress; the oldest one, of the address with the most, is closed
    /// to make room for another.
    pub handshakes: usize,
    /// How many WebSockets may be open; further requests get 503.
    pub connections: usize,
    /// A subprotocol whose clients get as many places again when all are taken: such a client reconnects
    /// after its connection was lost, and may do so before this side has noticed the loss.
    pub spare_places_for: Option<String>,
    /// The limits for one client address.
    pub per_address: AddressLimits,
    /// Where refused clients are counted.
    pub refusals: Refusals,
    /// The largest incoming message that is accepted, in bytes.
    pub frame_limit: usize,
    /// A larger message is sent as WebSocket fragments of this size.
    pub fragment: Option<usize>,
    /// The certificate and key; with them the server speaks `wss://`.
    #[cfg(feature = "tls")]
    pub identity: Option<super::tls::Identity>,
    /// A PEM file with authorities: only clients with a certificate that one of them signed are
    /// accepted. It needs `identity`.
    #[cfg(feature = "tls")]
    pub client_authority: Option<std::path::PathBuf>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            bearer: None,
            tokens: None,
            path: None,
            subprotocols: Vec::new(),
            allowed_origins: None,
            allowed_hosts: None,
            timeout: Duration::from_secs(10),
            handshakes: 256,
            connections: 1024,
            spare_places_for: None,
            per_address: AddressLimits::default(),
            refusals: Refusals::default(),
            frame_limit: FRAME_LIMIT,
            fragment: Some(FRAGMENT),
            #[cfg(feature = "tls")]
            identity: None,
            #[cfg(feature = "tls")]
            client_authority: None,
        }
    }
}

/// A listening socket. Dropping it stops listening; accepted connections go on.
#[derive(Debug)]
pub struct Listener {
    address: ListenAddress,
    accepted: mpsc::Receiver<Result<Accepted, ListenError>>,
    task: JoinHandle<()>,
}

/// A connection whose handshake succeeded.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub websocket: WebSocket,
    /// The address of the socket's other end.
    pub peer: SocketAddr,
    /// The client's address; behind a proxy as the proxy tells it.
    pub client: IpAddr,
    /// The holder of the token that it sent, if the listener has several tokens.
    pub holder: Option<String>,
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
        match TcpListener::bind(address).await {
            Ok(listener) => Self::new(listener, options),
            Err(error) => Err(bind(error)),
        }
    }

    /// Listens at a socket that is bound already: TCP or Unix.
    pub fn new(
        socket: impl Into<ListenSocket>,
        options: ListenOptions,
    ) -> Result<Self, ListenError> {
        let socket = socket.into();
        let address = socket.address().map_err(|error| ListenError::Bind {
            address: "a socket without an address".to_owned(),
            error,
        })?;
        let (sender, accepted) = mpsc::channel(1);
        let state = ServerState {
            #[cfg(feature = "tls")]
            acceptor: match &options.identity {
                Some(identity) => {
                    let authority = options.client_authority.as_deref();
                    Some(super::tls::acceptor(identity, authority)?)
                }
                None => None,
            },
            handshakes: SharedPlaces::new(
                options.handshakes.max(1),
                options.per_address.handshakes,
            ),
            open: SharedPlaces::new(options.connections, options.per_address.connections),
            spare: SharedPlaces::new(options.connections, options.per_address.connections),
            gate: Gate::new(options.per_address.clone(), options.handshakes.div_ceil(4))
                .counting(options.refusals.clone()),
            options,
        };
        let task = tokio::spawn(serve(socket, address.clone(), Arc::new(state), sender));
        Ok(Self {
            address,
            accepted,
            task,
        })
    }

    /// The address that it listens at.
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// The TCP address that it listens at.
    ///
    /// # Panics
    /// If it listens at a Unix socket.
    pub fn local_addr(&self) -> SocketAddr {
        match &self.address {
            ListenAddress::Tcp(address) => *address,
            ListenAddress::Unix(path) => panic!("{} is no TCP address", path.display()),
        }
    }

    /// Waits for the next connection whose handshake succeeds. Cancel-safe.
    pub async fn accept(&mut self) -> Result<Accepted, ListenError> {
        self.accepted
            .recv()
            .await
            .unwrap_or(Err(ListenError::Ended {
                address: self.address.clone(),
            }))
    }

    /// Stops listening, and waits until the socket is closed and its file, if it has one, is removed: a
    /// process that ends right after a drop may leave the file behind.
    pub async fn close(&mut self) {
        self.task.abort();
        if self.task.is_finished() {
            return;
        }
        // An error says that the task was aborted.
        let _ = (&mut self.task).await;
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
    socket: ListenSocket,
    address: ListenAddress,
    state: Arc<ServerState>,
    accepted: mpsc::Sender<Result<Accepted, ListenError>>,
) {
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let client = match socket.accept(&state.gate.warnings).await {
            Ok(client) => client,
            Err(error) => {
                let failed = ListenError::Accept { address, error };
                let _ = accepted.send(Err(failed)).await;
                return;
            }
        };
        let peer = client.peer;
        let key = state.gate.key_of_socket(peer.ip());
        if !state.gate.asks(peer, key) {
            tasks.spawn(state.clone().refuse_socket(client.socket));
            continue;
        }
        let place = match state.handshakes.take(key, true) {
            Ok((place, evicts)) => {
                if evicts {
                    state.log_eviction();
                }
                place
            }
            Err(full) => {
                state.gate.log_full(full, peer, state.options.handshakes);
                tasks.spawn(state.clone().refuse_socket(client.socket));
                continue;
            }
        };
        let (state, accepted) = (state.clone(), accepted.clone());
        tasks.spawn(async move {
            let evicted = place.evicted_by_newcomer();
            let handshake = timeout(state.options.timeout, state.handshake(client, place));
            let done = tokio::select! {
                done = handshake => done,
                () = evicted => return,
            };
            match done {
                // The place of its handshake was given back already.
                Ok(Some(connection)) => {
                    let _ = accepted.send(Ok(connection)).await;
                }
                Ok(None) => {}
                Err(_) => {
                    let after = state.options.timeout.as_secs_f64();
                    state.gate.warnings.log(
                        Limit::Silent,
                        peer,
                        &format_args!("the handshake was not finished within {after} s"),
                    );
                }
            }
        });
    }
}

/// What all handshakes share.
struct ServerState {
    options: ListenOptions,
    gate: Gate,
    /// A place for each handshake in progress.
    handshakes: SharedPlaces,
    /// A place for each connection that may be open.
    open: SharedPlaces,
    /// As many places again, for clients that may reconnect ([`ListenOptions::spare_places_for`]).
    spare: SharedPlaces,
    #[cfg(feature = "tls")]
    acceptor: Option<tokio_rustls::TlsAcceptor>,
}

impl ServerState {
    /// Performs one handshake; `None` if it failed or was refused. Its place is given back as soon as the
    /// request was read: neither an open connection nor a refused client that stays counts as a handshake.
    async fn handshake(&self, client: Client, place: PlaceGuard) -> Option<Accepted> {
        let Client {
            socket,
            peer,
            local,
        } = client;
        let log_failure = |error: &dyn std::fmt::Display| {
            tracing::debug!(%peer, error = %error, "a WebSocket handshake failed");
        };
        let mut socket = match self.secure(socket).await {
            Ok(socket) => socket,
            Err(error) => {
                let why = format_args!("TLS failed: {error}");
                self.gate.warnings.log(Limit::Request, peer, &why);
                return None;
            }
        };
        let head = read_head::<Request>(&mut socket).await;
        drop(place);
        let refusal = match head {
            Ok((request, rest)) => match self.judge(&request, peer, local) {
                Ok(judged) => {
                    let mut answer = Vec::new();
                    if let Err(error) = write_response(&mut answer, &judged.response) {
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
                        subprotocol: judged.subprotocol,
                        permit: Some(judged.permit),
                    };
                    return Some(Accepted {
                        websocket: WebSocket::new(parts),
                        peer,
                        client: judged.client,
                        holder: judged.holder,
                        path: request.uri().path().to_owned(),
                        query: request.uri().query().map(ToOwned::to_owned),
                        headers: request::public_headers(&request),
                    });
                }
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
            Err(HeadError::NotGet) => request::only_web_sockets(),
            Err(HeadError::Malformed(reason)) => {
                Refusal::new("400 Bad Request", format!("{reason}\n"))
            }
        };
        if refusal.status != request::BUSY {
            let why = format_args!("{}: {}", refusal.status, refusal.text.trim_end());
            self.gate.warnings.log(Limit::Request, peer, &why);
        }
        let answer = refusal.to_bytes();
        self.gate.answer_and_close(socket, &answer).await;
        None
    }

    /// Judges a request, and takes a place for the connection.
    fn judge(
        &self,
        request: &Request,
        peer: SocketAddr,
        local: Option<SocketAddr>,
    ) -> Result<Judged, Refusal> {
        let client = self.gate.client(request.headers(), peer.ip());
        // Behind a proxy the port is the proxy's.
        let name = match client == peer.ip() {
            true => peer.to_string(),
            false => client.to_string(),
        };
        let key = AddressKey::of(client);
        if self.gate.has_proxy() && !self.gate.asks(&name, key) {
            return Err(Refusal::busy());
        }
        let Admitted {
            response,
            subprotocol,
            holder,
        } = admit(request, &self.options, local)?;
        let comes_back = subprotocol.is_some() && subprotocol == self.options.spare_places_for;
        let place = match self.open.take(key, false) {
            Err(_) if comes_back => self.spare.take(key, false),
            taken => taken,
        };
        let (place, _) = place.map_err(|full| {
            self.gate.log_full(full, &name, self.options.connections);
            Refusal::busy()
        })?;
        Ok(Judged {
            response,
            subprotocol,
            client,
            holder,
            permit: Permit {
                _open: None,
                _place: place,
            },
        })
    }

    /// Refuses a client before its request was read.
    async fn refuse_socket(self: Arc<Self>, socket: Socket) {
        // Over TLS an answer would need a handshake.
        if self.is_plain() {
            let answer = Refusal::busy().to_bytes();
            self.gate.answer_and_close(socket, &answer).await;
        }
    }

    fn log_eviction(&self) {
        let limit = self.options.handshakes;
        self.gate.warnings.log(
            Limit::Silent,
            "the oldest of them",
            &format_args!("{limit} handshakes are in progress, and it made room for a new client"),
        );
    }

    #[cfg(feature = "tls")]
    fn is_plain(&self) -> bool {
        self.acceptor.is_none()
    }

    #[cfg(not(feature = "tls"))]
    fn is_plain(&self) -> bool {
        true
    }

    #[cfg(feature = "tls")]
    async fn secure(&self, socket: Socket) -> io::Result<Socket> {
        super::tls::accept(self.acceptor.as_ref(), socket).await
    }

    #[cfg(not(feature = "tls"))]
    async fn secure(&self, socket: Socket) -> io::Result<Socket> {
        Ok(socket)
    }
}

/// A request that is granted.
struct Judged {
    response: Response,
    subprotocol: Option<String>,
    client: IpAddr,
    holder: Option<String>,
    permit: Permit,
}

async fn write_all(socket: &mut Socket, bytes: &[u8]) -> io::Result<()> {
    socket.write_all(bytes).await?;
    socket.flush().await
}
