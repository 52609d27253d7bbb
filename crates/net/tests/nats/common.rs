//! A NATS server of the test's own, and both ends of a session at it.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use breakbulk_link::{Closed, Frame};
use breakbulk_net::nats::{self, NatsListener, NatsOptions, NatsTransport};
use breakbulk_net::{Incoming, Sink, Source, Transport};
use tokio::net::TcpStream;

pub(crate) const MAX_PAYLOAD: usize = 64 << 10;

/// A running `nats-server`, which ends when this is dropped.
pub(crate) struct NatsServer {
    child: Child,
    port: u16,
    config: tempfile::NamedTempFile,
}

impl NatsServer {
    /// Starts a server with these further lines of configuration.
    pub(crate) async fn start(further: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let mut config = tempfile::NamedTempFile::new().unwrap();
        let mut server = Self {
            child: Command::new("true").spawn().unwrap(),
            port,
            config: {
                write!(config, "max_payload: {MAX_PAYLOAD}\n{further}\n").unwrap();
                config
            },
        };
        server.restart().await;
        server
    }

    /// Ends it and starts it again at the same port.
    pub(crate) async fn restart(&mut self) {
        self.stop();
        self.child = Command::new("nats-server")
            .args(["-a", "127.0.0.1", "-p", &self.port.to_string(), "-c"])
            .arg(self.config.path())
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server is installed (apt-get install nats-server)");
        let ready = async {
            while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), ready)
            .await
            .unwrap();
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The options for a subject at it.
    pub(crate) fn options(&self, subject: &str) -> NatsOptions {
        NatsOptions::new(format!("127.0.0.1:{}", self.port), subject)
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A listener, and both ends of a session.
pub(crate) async fn pair(options: &NatsOptions) -> (NatsListener, NatsTransport, NatsTransport) {
    let mut listener = NatsListener::bind(options, 8).await.unwrap();
    let (client, server) = tokio::join!(nats::connect(options), listener.accept());
    (listener, client.unwrap(), server.unwrap())
}

pub(crate) async fn frame(source: &mut impl Source) -> Frame {
    loop {
        match source.next().await {
            Incoming::Frame(frame) => return frame,
            Incoming::Alive => {}
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) async fn end(source: &mut impl Source) -> Closed {
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

/// Sends everything back until the other side ends.
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
