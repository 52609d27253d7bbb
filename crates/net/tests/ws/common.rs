//! Two ends of a WebSocket, and peers that speak raw bytes.

use std::time::Duration;

use breakbulk_net::ws::{
    Accepted, ConnectOptions, ListenOptions, Listener, WebSocket, WsSink, WsSource, connect,
};
use breakbulk_net::{Incoming, Source, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Waits for something; panics with its name if it takes too long.
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work)
        .await
        .unwrap_or_else(|_| panic!("{what} takes for ever"))
}

/// A listener at a free port, and its address as a client writes it.
pub(crate) async fn listen(options: ListenOptions) -> (Listener, String) {
    let listener = Listener::bind("127.0.0.1:0", options).await.unwrap();
    let url = format!("ws://{}", listener.local_addr());
    (listener, url)
}

/// A client's and a server's end.
pub(crate) async fn pair(client: &ConnectOptions, server: ListenOptions) -> (WebSocket, Accepted) {
    let (mut listener, url) = listen(server).await;
    let (client, server) = soon("the handshake", async {
        tokio::join!(connect(&url, client), listener.accept())
    })
    .await;
    (client.unwrap(), server.unwrap())
}

/// Both ends of a WebSocket, split, with the client's or the server's end first.
pub(crate) async fn ends(from_client: bool) -> ((WsSource, WsSink), (WsSource, WsSink)) {
    let (client, server) = pair(&ConnectOptions::default(), ListenOptions::default()).await;
    let (client, server) = (client.split(), server.websocket.split());
    if from_client {
        (client, server)
    } else {
        (server, client)
    }
}

/// The next incoming event that is not just a sign of life.
pub(crate) async fn next_frame(source: &mut WsSource) -> Incoming {
    loop {
        match next(source).await {
            Incoming::Alive => {}
            other => return other,
        }
    }
}

/// What comes in next.
pub(crate) async fn next(source: &mut WsSource) -> Incoming {
    soon("the next frame", source.next()).await
}

/// A WebSocket of ours to a client that speaks raw bytes.
pub(crate) async fn raw_client(options: ListenOptions) -> (WebSocket, TcpStream) {
    let (mut listener, _) = listen(options).await;
    let mut stream = TcpStream::connect(listener.local_addr()).await.unwrap();
    ask(&mut stream, "/", "").await;
    let accepted = soon("the handshake", listener.accept()).await.unwrap();
    let head = head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    (accepted.websocket, stream)
}

/// A WebSocket of ours to a server that speaks raw bytes.
pub(crate) async fn raw_server(options: &ConnectOptions) -> (WebSocket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = head(&mut stream).await;
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {}\r\n\r\n",
            accept_key(&request)
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream
    };
    let (websocket, stream) = soon("the handshake", async {
        tokio::join!(connect(&url, options), serve)
    })
    .await;
    (websocket.unwrap(), stream)
}

/// The `Sec-WebSocket-Accept` that answers the key in a request.
pub(crate) fn accept_key(request: &str) -> String {
    let key = request
        .lines()
        .find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "))
        .expect("a request with a key");
    tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes())
}

/// Asks for a WebSocket, with further headers that each end in CR LF.
pub(crate) async fn ask(stream: &mut TcpStream, path: &str, headers: &str) {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: keep-alive, Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
}

/// Reads to the empty line, and not a byte further.
pub(crate) async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon("a head", stream.read_u8()).await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// One WebSocket frame as it lies on the wire, unmasked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RawFrame {
    pub(crate) first: u8,
    pub(crate) masked: bool,
    pub(crate) payload: Vec<u8>,
}

pub(crate) async fn raw_frame(stream: &mut TcpStream) -> RawFrame {
    soon("a raw frame", async {
        let first = stream.read_u8().await.unwrap();
        let second = stream.read_u8().await.unwrap();
        let length = match second & 0x7f {
            126 => u64::from(stream.read_u16().await.unwrap()),
            127 => stream.read_u64().await.unwrap(),
            short => u64::from(short),
        };
        let masked = second & 0x80 != 0;
        let mut mask = [0; 4];
        if masked {
            stream.read_exact(&mut mask).await.unwrap();
        }
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await.unwrap();
        for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
        RawFrame {
            first,
            masked,
            payload,
        }
    })
    .await
}
