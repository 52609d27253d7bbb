//! A server, a client, and a proxy between them that caps bodies, loses answers and breaks off streams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use breakbulk_link::Frame;
use breakbulk_net::exchange::{self, ExchangeTransport};
use breakbulk_net::http::{
    AcceptedTransport, Arrivals, ClientOptions, ConnectError, Limits, ServeOptions, Server, serve,
};
use breakbulk_net::{Incoming, Sink, Source, Transport};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::net::TcpListener;

/// The cap of the path in most tests.
pub(crate) const CAP: usize = 64 << 10;

pub(crate) fn serve_options() -> ServeOptions {
    ServeOptions {
        body_max: CAP,
        answer_max: CAP,
        wait_max: Duration::from_secs(20),
        ..ServeOptions::default()
    }
}

/// Starts a server, and returns its address and the clients that connect.
pub(crate) async fn server(options: ServeOptions) -> (SocketAddr, Arrivals) {
    let (server, arrivals) = Server::new(options);
    let router = server.exchange_below("/tunnel");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, router, Limits::default()));
    (address, arrivals)
}

pub(crate) fn client_options() -> ClientOptions {
    let mut options = ClientOptions::new("");
    options.body_max = CAP;
    options
}

pub(crate) async fn dial(address: SocketAddr) -> Result<ExchangeTransport, ConnectError> {
    let url = format!("http://{address}/tunnel");
    exchange::connect(&url, &client_options()).await
}

/// Both ends of a session, over a path to the server.
pub(crate) async fn pair(
    path: SocketAddr,
    arrivals: &mut Arrivals,
) -> (ExchangeTransport, AcceptedTransport) {
    let client = dial(path).await.unwrap();
    let arrival = arrivals.next().await.unwrap();
    (client, arrival.transport)
}

/// The next frame; panics at the end of the connection.
pub(crate) async fn frame(source: &mut impl Source) -> Frame {
    loop {
        match source.next().await {
            Incoming::Frame(frame) => return frame,
            Incoming::Alive => {}
            other => panic!("{other:?}"),
        }
    }
}

/// How the connection ends.
pub(crate) async fn end(source: &mut impl Source) -> breakbulk_link::Closed {
    loop {
        match source.next().await {
            Incoming::Closed(closed) => return closed,
            Incoming::Alive => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A frame whose content begins with its number.
pub(crate) fn numbered(number: usize, size: usize) -> Frame {
    let mut bytes = format!("{number} ").into_bytes();
    bytes.resize(size.max(bytes.len()), b'a' + (number % 26) as u8);
    match number % 2 {
        0 => Frame::Text(bytes.into()),
        _ => Frame::Binary(bytes.into()),
    }
}

/// Sends everything back, and closes when the other end does.
pub(crate) async fn echo(transport: impl Transport) {
    let (mut source, mut sink) = transport.split();
    loop {
        match source.next().await {
            Incoming::Frame(frame) => {
                if sink.send(frame).await.is_err() {
                    return;
                }
            }
            Incoming::Alive => {}
            _ => return,
        }
    }
}

/// An HTTP client for requests that the test itself makes.
pub(crate) fn plain_client() -> reqwest::Client {
    // An error means that another test of this process has installed the provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// What a proxy does to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    /// The proxy answers 502, and the server never gets the request.
    Refuse,
    /// The server answers, but the client gets 504 instead.
    LoseAnswer,
    /// The server gets the request twice.
    Twice,
}

/// A proxy between client and server.
pub(crate) struct Proxy {
    server: SocketAddr,
    http: reqwest::Client,
    /// The largest body that passes, either way.
    cap: usize,
    fate: fn(usize) -> Fate,
    /// How many bytes of each event stream pass, as they are written, before it breaks off; `None` if event
    /// streams are held back until they are complete.
    streams: Option<usize>,
    pub(crate) requests: AtomicUsize,
    /// The largest body that passed.
    pub(crate) largest: AtomicUsize,
}

impl Proxy {
    pub(crate) async fn start(
        server: SocketAddr,
        cap: usize,
        fate: fn(usize) -> Fate,
    ) -> (SocketAddr, Arc<Self>) {
        Self::run(server, cap, fate, None).await
    }

    /// A proxy that passes on event streams as they are written, up to this many bytes of each.
    pub(crate) async fn streaming(
        server: SocketAddr,
        cap: usize,
        bytes: usize,
    ) -> (SocketAddr, Arc<Self>) {
        Self::run(server, cap, |_| Fate::Pass, Some(bytes)).await
    }

    async fn run(
        server: SocketAddr,
        cap: usize,
        fate: fn(usize) -> Fate,
        streams: Option<usize>,
    ) -> (SocketAddr, Arc<Self>) {
        let proxy = Arc::new(Self {
            server,
            http: plain_client(),
            cap,
            fate,
            streams,
            requests: AtomicUsize::new(0),
            largest: AtomicUsize::new(0),
        });
        let router = Router::new().fallback(pass).with_state(proxy.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, router, Limits::default()));
        (address, proxy)
    }

    async fn forward(
        self: &Arc<Self>,
        head: &axum::http::request::Parts,
        body: &Bytes,
    ) -> Response {
        let path = head.uri.path_and_query().unwrap();
        let url = format!("http://{}{path}", self.server);
        let mut request = self.http.request(head.method.clone(), url);
        for name in ["x-peer", "content-type", "authorization", "accept"] {
            if let Some(value) = head.headers.get(name) {
                request = request.header(name, value);
            }
        }
        let Ok(answer) = request.body(body.clone()).send().await else {
            return StatusCode::BAD_GATEWAY.into_response();
        };
        let (status, headers) = (answer.status(), answer.headers().clone());
        let kind = headers.get("content-type");
        if let (Some(bytes), Some(kind)) = (self.streams, kind)
            && kind == "text/event-stream"
        {
            let (proxy, mut passed) = (self.clone(), 0);
            let parts = answer.bytes_stream().map(move |part| {
                let part = part.map_err(std::io::Error::other)?;
                passed += part.len();
                proxy.largest.fetch_max(passed, SeqCst);
                match passed > bytes {
                    true => Err(std::io::Error::other("cut")),
                    false => Ok(part),
                }
            });
            let mut response = Response::new(Body::from_stream(parts));
            response.headers_mut().insert("content-type", kind.clone());
            return response;
        }
        let body = answer.bytes().await.unwrap();
        if body.len() > self.cap {
            return StatusCode::BAD_GATEWAY.into_response();
        }
        self.largest.fetch_max(body.len(), SeqCst);
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        if let Some(kind) = headers.get("content-type") {
            response.headers_mut().insert("content-type", kind.clone());
        }
        response
    }
}

async fn pass(State(proxy): State<Arc<Proxy>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, proxy.cap).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    proxy.largest.fetch_max(body.len(), SeqCst);
    // Opening the session always succeeds, so that the losses concern its frames.
    let fate = match head.uri.path().ends_with("/open") {
        true => Fate::Pass,
        false => (proxy.fate)(proxy.requests.fetch_add(1, SeqCst)),
    };
    match fate {
        Fate::Pass => proxy.forward(&head, &body).await,
        Fate::Refuse => StatusCode::BAD_GATEWAY.into_response(),
        Fate::LoseAnswer => {
            proxy.forward(&head, &body).await;
            StatusCode::GATEWAY_TIMEOUT.into_response()
        }
        Fate::Twice => {
            proxy.forward(&head, &body).await;
            proxy.forward(&head, &body).await
        }
    }
}
