//! The messages, configurations and connections that the measurements share.

use breakbulk::ahp::Config;
use breakbulk::link::Cap;
use breakbulk::net::ws::{Accepted, ConnectOptions, ListenOptions, Listener, WebSocket, connect};

/// The size of a large message, in bytes.
pub(crate) const LARGE: usize = 32_000_000;

/// The size of a frame, in bytes.
pub(crate) const FRAME: usize = 900_000;

pub(crate) fn config() -> Config {
    Config::default().with(|config| config.cap = Cap::frame(FRAME))
}

/// A text of this size that needs no escapes in JSON.
pub(crate) fn text(size: usize) -> String {
    (0..size)
        .map(|at| char::from(b'a' + u8::try_from(at % 23).unwrap_or(0)))
        .collect()
}

/// A listener on a free port, and its address.
pub(crate) async fn listen() -> Result<(Listener, String), Box<dyn std::error::Error>> {
    let options = ListenOptions {
        connections: 4096,
        ..ListenOptions::default()
    };
    let listener = Listener::bind("127.0.0.1:0", options).await?;
    let url = format!("ws://{}/", listener.local_addr());
    Ok((listener, url))
}

/// Both ends of a connection over loopback: the client's and the server's.
pub(crate) async fn pair() -> Result<(WebSocket, WebSocket), Box<dyn std::error::Error>> {
    let (mut listener, url) = listen().await?;
    let options = ConnectOptions::default();
    let (client, accepted) = tokio::join!(connect(&url, &options), listener.accept());
    let Accepted { websocket, .. } = accepted?;
    Ok((client?, websocket))
}
