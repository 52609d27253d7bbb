//! A server whose peer keeps what it gets and sends what a test tells it to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use breakbulk_link::{
    Budget, Cap, Config, Event, Link, Message, Outgoing, PeerLimits, PeerSupport,
};
use breakbulk_net::http::{Arrival, Arrivals, Limits, ServeOptions, Server, Way, serve};
use breakbulk_net::{Connection, Options, Refusal, Transport};
use breakbulk_wire::{Loro, Whole};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The largest frame, so that larger messages are cut.
pub(crate) const CAP: usize = 20_000;

/// Fails with this text instead of hanging.
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work)
        .await
        .unwrap_or_else(|_| panic!("{what} takes for ever"))
}

/// Serves a router at a free port.
pub(crate) async fn listen(router: Router, limits: Limits) -> (SocketAddr, Serving) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let _ = serve(listener, router, limits).await;
    });
    (address, Serving(task))
}

/// A server of all transports under `/loro`, and its arriving clients.
pub(crate) async fn all_ways(options: ServeOptions) -> (SocketAddr, Arrivals, Serving) {
    let (server, arrivals) = Server::new(options);
    let router = Router::new().nest("/loro", server.router());
    let (address, serving) = listen(router, Limits::default()).await;
    (address, arrivals, serving)
}

/// The task of a server; dropping it stops the server.
pub(crate) struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) fn config(way: Way) -> Config {
    let mut config = Loro::config();
    if matches!(way, Way::Sse | Way::Poll) {
        config.rules = Loro::http_rules();
    }
    config
}

/// The server's end of a connection.
pub(crate) fn open(arrival: Arrival, config: Config) -> Connection {
    let way = arrival.transport.way();
    let options = arrival.transport.options();
    let text = matches!(way, Way::Sse | Way::Poll);
    let mut link = if text {
        link(Arc::new(Whole::TEXT), Arc::new(Loro), config)
    } else {
        link(Arc::new(Loro), Arc::new(Loro), config)
    };
    if !text {
        link.set_cap(Cap::frame(CAP));
    }
    Connection::open(link, arrival.transport, options).unwrap()
}

/// The client's end of a connection.
pub(crate) fn dialled(way: Way, transport: impl Transport) -> Connection {
    let text = matches!(way, Way::Sse | Way::Poll);
    let mut link = if text {
        let config = Config::new(Whole::rules());
        link(Arc::new(Loro), Arc::new(Whole::TEXT), config)
    } else {
        link(Arc::new(Loro), Arc::new(Loro), config(way))
    };
    link.set_cap(Cap::frame(CAP));
    Connection::open(link, transport, Options::default()).unwrap()
}

fn link(
    send: Arc<dyn breakbulk_link::Wire>,
    receive: Arc<dyn breakbulk_link::Wire>,
    config: Config,
) -> Link {
    let mut link = Link::new(send, receive, config, Budget::unlimited(), [7; 32]);
    link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
    link
}

/// The next message, unless the connection ends before.
pub(crate) async fn message(connection: &Connection) -> Option<Message> {
    loop {
        match connection.event().await? {
            Event::Message(message) => return Some(message),
            Event::Closed(_) => return None,
            _ => {}
        }
    }
}

pub(crate) fn send(connection: &Connection, text: impl Into<Bytes>) {
    let outcome = connection.send(Outgoing::new(text));
    assert!(outcome.is_ok(), "{:?}", outcome.err().map(|it| it.error));
}

/// How a real peer judges a message: one that it cannot decode is refused.
pub(crate) fn verdict(message: &[u8]) -> Result<(), Refusal> {
    match message.first() {
        Some(2) => Ok(()),
        other => {
            let version = other.copied().unwrap_or(0);
            let error = format!("Unsupported wire version: {version} (expected 2)");
            Err(Refusal::new(400, error))
        }
    }
}

/// Serves all clients: settles each message, and answers it with its length and checksum.
pub(crate) fn keepers(mut arrivals: Arrivals) -> JoinHandle<()> {
    tokio::spawn(async move {
        while let Some(arrival) = arrivals.next().await {
            let config = config(arrival.claim.way);
            let connection = open(arrival, config);
            tokio::spawn(async move {
                while let Some(message) = message(&connection).await {
                    connection.settle(message.id, verdict(&message.bytes));
                    send(&connection, echo(&message.bytes));
                }
            });
        }
    })
}

/// A JSON text somewhat longer than the message, with the message's length and checksum.
pub(crate) fn echo(message: &[u8]) -> String {
    let sum = message.iter().fold(7_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(*byte))
    });
    let fill = "x".repeat(message.len());
    format!(
        r#"{{"length":{},"sum":{sum},"fill":"{fill}"}}"#,
        message.len()
    )
}

/// Bytes that begin as a frame of version 2.
pub(crate) fn payload(size: usize) -> Bytes {
    let fill = (0..size.saturating_sub(1)).map(|index| (index % 251) as u8);
    std::iter::once(2).chain(fill).collect()
}
