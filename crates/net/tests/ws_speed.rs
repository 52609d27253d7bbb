//! What the transport costs beside the library below it. A measurement, not a check:
//! `cargo test --release -p breakbulk-net --features tls --test ws_speed -- --ignored --nocapture`.

#![cfg(feature = "ws")]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::{Duration, Instant};

use breakbulk_link::Frame;
use breakbulk_net::ws::{ConnectOptions, ListenOptions, Listener, connect};
use breakbulk_net::{Incoming, Sink, Source, Transport};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::{WebSocketStream, accept_async_with_config, client_async_with_config};

/// How many frames of which size are sent.
#[derive(Clone, Copy)]
struct Load {
    size: usize,
    count: usize,
}

const LARGE: Load = Load {
    size: 900_000,
    count: 600,
};
const SMALL: Load = Load {
    size: 200,
    count: 200_000,
};

impl Load {
    fn rate(self, start: Instant) -> String {
        let seconds = start.elapsed().as_secs_f64();
        let megabytes = (self.size * self.count) as f64 / 1e6;
        let frames = self.count as f64 / 1e3;
        format!(
            "{:7.0} MB/s, {:7.1} thousand frames/s",
            megabytes / seconds,
            frames / seconds
        )
    }
}

async fn raw_pair(
    config: WebSocketConfig,
    unsent: Option<u32>,
) -> (WebSocketStream<TcpStream>, WebSocketStream<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tune = |stream: &TcpStream| {
        stream.set_nodelay(true).unwrap();
        if let Some(unsent) = unsent {
            SockRef::from(stream).set_tcp_notsent_lowat(unsent).unwrap();
        }
    };
    let client = async {
        let stream = TcpStream::connect(address).await.unwrap();
        tune(&stream);
        let url = format!("ws://{address}/");
        let (client, _) = client_async_with_config(url, stream, Some(config))
            .await
            .unwrap();
        client
    };
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        tune(&stream);
        accept_async_with_config(stream, Some(config))
            .await
            .unwrap()
    };
    tokio::join!(client, server)
}

async fn raw(config: WebSocketConfig, unsent: Option<u32>, to: Role, load: Load) -> String {
    let (client, server) = raw_pair(config, unsent).await;
    let (mut from, mut to) = match to {
        Role::Server => (client, server),
        Role::Client => (server, client),
    };
    let start = Instant::now();
    let sending = tokio::spawn(async move {
        for _ in 0..load.count {
            let text = String::from_utf8(vec![b'x'; load.size]).unwrap();
            from.send(Message::text(text)).await.unwrap();
        }
        from
    });
    for _ in 0..load.count {
        assert_eq!(to.next().await.unwrap().unwrap().len(), load.size);
    }
    let _from = sending.await.unwrap();
    load.rate(start)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn the_library_alone() {
    let defaults = WebSocketConfig::default();
    for to in [Role::Server, Role::Client] {
        println!(
            "to {to:?}, defaults:                {}",
            raw(defaults, None, to, LARGE).await
        );
        for read in [4, 8, 16, 32, 64, 128] {
            let config = defaults.read_buffer_size(read << 10).write_buffer_size(0);
            println!(
                "to {to:?}, reads of {read:3} KiB:        {}",
                raw(config, None, to, LARGE).await
            );
        }
        for unsent in [16, 32, 64, 128, 256] {
            let config = defaults.write_buffer_size(0);
            let rate = raw(config, Some(unsent << 10), to, LARGE).await;
            println!("to {to:?}, unsent {unsent:3} KiB at most:  {rate}");
        }
    }
}

async fn ours(to: Role, load: Load) -> String {
    let mut listener = Listener::bind("127.0.0.1:0", ListenOptions::default())
        .await
        .unwrap();
    let url = format!("ws://{}/", listener.local_addr());
    let options = ConnectOptions::default();
    let (client, server) = tokio::join!(connect(&url, &options), listener.accept());
    let (client, server) = (client.unwrap().split(), server.unwrap().websocket.split());
    let ((idle, mut sink), (mut source, _other)) = match to {
        Role::Server => (client, server),
        Role::Client => (server, client),
    };
    let start = Instant::now();
    let sending = tokio::spawn(async move {
        for _ in 0..load.count {
            let bytes = Bytes::from(vec![b'x'; load.size]);
            sink.send(Frame::Text(bytes)).await.unwrap();
        }
        (sink, idle)
    });
    for _ in 0..load.count {
        let frame = loop {
            match source.next().await {
                Incoming::Frame(frame) => break frame,
                Incoming::Life => {}
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(frame.bytes().len(), load.size);
    }
    let _from = sending.await.unwrap();
    load.rate(start)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn the_transport_beside_the_library() {
    for load in [LARGE, SMALL] {
        for to in [Role::Server, Role::Client] {
            // In turns, as other programs' work comes and goes.
            for _ in 0..4 {
                let library = raw(WebSocketConfig::default(), None, to, load).await;
                println!("{} to {to:?}, the library:    {library}", load.size);
                println!(
                    "{} to {to:?}, this transport: {}",
                    load.size,
                    ours(to, load).await
                );
            }
        }
    }
}

/// What a small frame would have to wait for, where the kernel is not told otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn bytes_that_wait_in_the_kernel_of_a_sender() {
    for unsent in [None, Some(16), Some(64), Some(128)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let from = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (_to, _) = listener.accept().await.unwrap();
        if let Some(unsent) = unsent {
            SockRef::from(&from)
                .set_tcp_notsent_lowat(unsent << 10)
                .unwrap();
        }
        let block = vec![0; 16 << 10];
        let mut taken = 0;
        // Until the kernel takes nothing for a while, with nobody reading.
        while let Ok(Ok(())) =
            tokio::time::timeout(Duration::from_millis(200), from.writable()).await
        {
            match from.try_write(&block) {
                Ok(written) => taken += written,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
        println!(
            "unsent {unsent:?} KiB: {} KiB taken with nobody reading",
            taken >> 10
        );
    }
}

/// The resident memory of idle connections, both ends in this process.
#[tokio::test]
#[ignore = "a measurement"]
async fn idle_connections() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<usize>()
            .unwrap()
    };
    let mut listener = Listener::bind("127.0.0.1:0", ListenOptions::default())
        .await
        .unwrap();
    let url = format!("ws://{}/", listener.local_addr());
    let mut open = Vec::new();
    let before = resident();
    for _ in 0..450 {
        let options = ConnectOptions::default();
        let (client, server) = tokio::join!(connect(&url, &options), listener.accept());
        let ((mut source, mut sink), (mut other, mut other_sink)) =
            (client.unwrap().split(), server.unwrap().websocket.split());
        other_sink
            .send(Frame::Text(Bytes::from_static(b"hello")))
            .await
            .unwrap();
        source.next().await;
        sink.send(Frame::Text(Bytes::from_static(b"hello")))
            .await
            .unwrap();
        other.next().await;
        open.push((source, sink, other, other_sink));
    }
    println!(
        "{} KiB for each end",
        (resident() - before) / 2 / open.len()
    );
}
