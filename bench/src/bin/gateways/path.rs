//! The paths that are compared, and the server behind them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path as File;
use std::process::Stdio;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::Failure;

/// How long a program may take to listen.
const START: Duration = Duration::from_secs(10);

/// The part of a request that the answer replaces, and its replacement.
pub(crate) const REQUEST: &str = r#","method":"echo","params":{"text":""#;
const ANSWER: &str = r#","result":{"text":""#;

/// A path to the server.
pub(crate) struct Path {
    pub(crate) name: String,
    pub(crate) url: String,
    /// The programs of the path; they are killed when it is dropped.
    _programs: Vec<Child>,
}

impl Path {
    /// Client and server without anything in between.
    pub(crate) fn direct(server: SocketAddr) -> Self {
        Self {
            name: "direct".to_owned(),
            url: format!("ws://{server}/"),
            _programs: Vec::new(),
        }
    }

    /// Two `socat` in a row.
    pub(crate) async fn socat(server: SocketAddr) -> Result<Self, Failure> {
        let (far, at_far) = socat(server).await?;
        let (near, at_near) = socat(at_far).await?;
        Ok(Self {
            name: "socat".to_owned(),
            url: format!("ws://{at_near}/"),
            _programs: vec![near, far],
        })
    }

    /// Two gateways with a tunnel between them.
    pub(crate) async fn gateways(
        name: &str,
        program: &File,
        options: &[&str],
        server: SocketAddr,
    ) -> Result<Self, Failure> {
        let (far, tunnel) =
            gateway(program, options, "ws://0", &format!("whole+ws://{server}/")).await?;
        let (near, url) = gateway(program, options, "whole+ws://0", &tunnel).await?;
        Ok(Self {
            name: name.to_owned(),
            url: url.trim_start_matches("whole+").to_owned(),
            _programs: vec![near, far],
        })
    }
}

/// A `socat` to a server, and the address at which it listens.
async fn socat(to: SocketAddr) -> Result<(Child, SocketAddr), Failure> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let at = port.local_addr()?;
    drop(port);
    let listen = format!(
        "TCP-LISTEN:{},bind=127.0.0.1,reuseaddr,fork,nodelay",
        at.port()
    );
    let program = Command::new("socat")
        .args([listen, format!("TCP:{to},nodelay")])
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("socat: {error}; install Debian's package socat"))?;
    let listens = async {
        while TcpStream::connect(at).await.is_err() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(START, listens).await?;
    Ok((program, at))
}

/// A gateway, and the address at which it listens.
async fn gateway(
    program: &File,
    options: &[&str],
    listen: &str,
    to: &str,
) -> Result<(Child, String), Failure> {
    let mut child = Command::new(program)
        .args(["gateway", "--listen", listen, "--to", to])
        .args(options)
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stderr = child.stderr.take().ok_or("no standard error")?;
    let mut lines = BufReader::new(stderr).lines();
    let listens = async {
        while let Some(line) = lines.next_line().await? {
            if let Some(address) = line.strip_prefix("listening on ") {
                return Ok(address.to_owned());
            }
        }
        Err::<_, Failure>("the gateway ended before it listened".into())
    };
    let address = timeout(START, listens).await??;
    // Its log is read on, so that it does not fill the pipe.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok((child, address))
}

/// Lets the WebSocket of a client or of the server accept messages of any size.
pub(crate) fn any_size() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(None)
        .max_frame_size(None)
}

/// A server that answers each request with its text.
pub(crate) async fn serve() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let at = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    Ok(at)
}

async fn answer(stream: TcpStream) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let mut socket = tokio_tungstenite::accept_async_with_config(stream, Some(any_size())).await?;
    while let Some(message) = socket.next().await {
        let Message::Text(text) = message? else {
            continue;
        };
        let (head, tail) = text.split_once(REQUEST).ok_or("not a request")?;
        let answer = [head, ANSWER, tail].concat();
        socket.send(Message::text(answer)).await?;
    }
    Ok(())
}
