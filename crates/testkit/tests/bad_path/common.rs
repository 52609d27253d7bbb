//! A real WebSocket client, a real echo server, and what is said between them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use breakbulk_testkit::bad_path::BadPath;
use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};

pub(crate) type Client = WebSocketStream<TcpStream>;

/// What the server saw.
#[derive(Debug, PartialEq)]
pub(crate) enum Seen {
    Message(usize),
    Close(u16, String),
    End,
}

/// A server that echoes text, binary and the frames' fate. It lives as long as the test's runtime.
pub(crate) async fn echo() -> (SocketAddr, mpsc::UnboundedReceiver<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, tell.clone()));
        }
    });
    (address, seen)
}

async fn serve(stream: TcpStream, tell: mpsc::UnboundedSender<Seen>) {
    let Ok(mut socket) = accept_async(stream).await else {
        return;
    };
    while let Some(Ok(message)) = socket.next().await {
        match message {
            Message::Close(Some(close)) => {
                let _ = tell.send(Seen::Close(close.code.into(), close.reason.to_string()));
            }
            Message::Text(_) | Message::Binary(_) => {
                let _ = tell.send(Seen::Message(message.len()));
                if socket.send(message).await.is_err() {
                    break;
                }
            }
            _ => {}
        }
    }
    let _ = tell.send(Seen::End);
}

pub(crate) async fn connect(path: &BadPath) -> Result<Client, Error> {
    let stream = TcpStream::connect(path.address()).await?;
    let (client, _) = client_async("ws://path/", stream).await?;
    Ok(client)
}

/// Fails instead of hanging.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(20), what).await;
    waited.expect("it does not happen")
}

pub(crate) fn text(length: usize) -> Message {
    Message::text("x".repeat(length))
}

/// How long an echo of `length` bytes takes.
pub(crate) async fn round_trip(client: &mut Client, length: usize) -> Duration {
    let began = Instant::now();
    soon(client.send(text(length))).await.unwrap();
    assert_eq!(soon(client.next()).await.unwrap().unwrap().len(), length);
    began.elapsed()
}
