//! Measures the memory that an idle connection takes in a host.

use std::io::Write;
use std::process::Stdio;

use breakbulk::ahp::host::{Applied, State};
use breakbulk::ahp::log::{Limits, MemoryLog};
use breakbulk::ahp::{Application, Host, HostConfig};
use breakbulk::link::Frame;
use breakbulk::message::ahp::{Chunking, PROTOCOL_VERSIONS, initialize};
use breakbulk::net::ws::{ConnectOptions, connect};
use breakbulk::net::{Incoming, Sink, Source, Transport};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::payload::{config, listen};

const CONNECTIONS: usize = 1000;

/// Connections before the first measurement, so that one-time allocations are not counted.
const WARM: usize = 20;

const CHANNEL: &str = "ahp-session:/idle";

struct Empty;

impl Application for Empty {
    fn snapshot(&self, channel: &str) -> Option<State> {
        (channel == CHANNEL).then(State::none)
    }

    fn apply(&self, _: &Applied<'_>) {}
}

/// Runs a host in a process of its own: prints its address, and serves until it is killed.
pub(crate) async fn host() -> Result<(), Box<dyn std::error::Error>> {
    let config = HostConfig::default().with(|host| {
        host.connection = config();
        host.limits.clients = 4096;
    });
    let host = Host::new(Empty, MemoryLog::new(Limits::default()), config);
    let (mut listener, url) = listen().await?;
    println!("{url}");
    std::io::stdout().flush()?;
    loop {
        let accepted = listener.accept().await?;
        tokio::spawn(host.serve(accepted.websocket));
    }
}

pub(crate) async fn measure() -> Result<(String, Value), Box<dyn std::error::Error>> {
    let mut child = tokio::process::Command::new(std::env::current_exe()?)
        .arg("idle-host")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let pid = child.id().ok_or("no process")?;
    let stdout = child.stdout.take().ok_or("no output")?;
    let url = BufReader::new(stdout).lines().next_line().await?;
    let url = url.ok_or("the host said nothing")?;
    let mut held = Vec::new();
    let mut before = 0;
    for number in 0..WARM + CONNECTIONS {
        if number == WARM {
            before = resident(pid)?;
        }
        held.push(client(&url, number).await?);
    }
    let each = resident(pid)?.saturating_sub(before) / CONNECTIONS;
    let text = format!(
        "{CONNECTIONS} idle connections, each initialized with one subscription: {each} bytes of the host's resident memory per connection\n"
    );
    Ok((
        text,
        json!({ "connections": CONNECTIONS, "bytesPerConnection": each }),
    ))
}

/// A client that initializes and then sends nothing.
async fn client(url: &str, number: usize) -> Result<impl Sized, Box<dyn std::error::Error>> {
    let socket = connect(url, &ConnectOptions::default()).await?;
    let (mut source, mut sink) = socket.split();
    let id = format!("idle-{number}");
    let chunking = Chunking::default();
    let hello = initialize(1, &id, &[CHANNEL], &PROTOCOL_VERSIONS, Some(&chunking));
    sink.send(Frame::Text(hello.into())).await?;
    loop {
        match source.next().await {
            Incoming::Frame(_) => return Ok((source, sink)),
            Incoming::Alive => {}
            other => return Err(format!("{other:?}").into()),
        }
    }
}

/// The resident memory of a process, in bytes.
fn resident(pid: u32) -> Result<usize, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    let kilobytes: usize = kilobytes.ok_or("no VmRSS")?.parse()?;
    Ok(kilobytes * 1024)
}
