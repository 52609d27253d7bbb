//! Sockets between the two ends: byte streams over TCP or over WebSockets, and the first line that names the
//! session to which a socket belongs.

use anyhow::{Context, Result, anyhow};
use breakbulk::net::stream::over_frames;
use breakbulk::net::ws::{ConnectOptions, ListenOptions, Listener, WebSocket, connect};
use breakbulk::vscode::Stream;
use breakbulk::vscode::machine::ipc::WEBSOCKET_CUT;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The largest message, with room for more than a 64 MB buffer.
pub(crate) const MESSAGE: usize = 96 << 20;

/// The longest line that names a socket's session; a longer one is an error.
const LONGEST_HELLO: usize = 1024;

/// The listener for a session's next sockets, if node is the end that connects.
pub(crate) enum Door {
    Tcp(TcpListener),
    WebSocket(Listener),
}

impl Door {
    pub(crate) async fn open(websocket: bool) -> Result<Self> {
        if !websocket {
            return Ok(Self::Tcp(TcpListener::bind("127.0.0.1:0").await?));
        }
        let options = ListenOptions {
            frame_limit: MESSAGE,
            ..ListenOptions::default()
        };
        let listener = Listener::bind("127.0.0.1:0", options).await?;
        Ok(Self::WebSocket(listener))
    }

    pub(crate) fn address(&self) -> Result<String> {
        Ok(match self {
            Self::Tcp(listener) => listener.local_addr()?.to_string(),
            Self::WebSocket(listener) => listener.local_addr().to_string(),
        })
    }

    pub(crate) async fn websocket(&mut self) -> Result<WebSocket> {
        match self {
            Self::Tcp(_) => Err(anyhow!("no WebSocket comes by here")),
            Self::WebSocket(listener) => Ok(listener.accept().await?.websocket),
        }
    }

    pub(crate) async fn stream(&mut self) -> Result<Box<dyn Stream>> {
        if let Self::Tcp(listener) = self {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            return Ok(Box::new(stream));
        }
        Ok(Box::new(over_frames(
            self.websocket().await?,
            WEBSOCKET_CUT,
        )?))
    }
}

pub(crate) async fn dial_websocket(address: &str) -> Result<WebSocket> {
    let options = ConnectOptions {
        frame_limit: MESSAGE,
        ..ConnectOptions::default()
    };
    Ok(connect(&format!("ws://{address}/"), &options).await?)
}

pub(crate) async fn dial(websocket: bool, address: &str) -> Result<Box<dyn Stream>> {
    if websocket {
        let websocket = dial_websocket(address).await?;
        return Ok(Box::new(over_frames(websocket, WEBSOCKET_CUT)?));
    }
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

/// Sends the line that names the session, before the protocol's first byte; `carriers.mjs` does the same.
pub(crate) async fn say_hello(stream: &mut Box<dyn Stream>) -> Result<()> {
    let hello = format!("{}\n", json!({"session": "ours"}));
    stream.write_all(hello.as_bytes()).await?;
    Ok(stream.flush().await?)
}

/// Reads up to the line feed and not a byte more, and tells the session's name.
pub(crate) async fn hear_hello(stream: &mut Box<dyn Stream>) -> Result<Value> {
    let mut line = Vec::new();
    while line.len() < LONGEST_HELLO {
        match stream.read_u8().await? {
            b'\n' => {
                let hello: Value = serde_json::from_slice(&line)?;
                return hello.get("session").cloned().context("no session");
            }
            byte => line.push(byte),
        }
    }
    Err(anyhow!("no hello in {LONGEST_HELLO} bytes"))
}
