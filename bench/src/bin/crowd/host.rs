//! The host: a process that serves until it is killed.

use std::io::Write;
use std::net::SocketAddr;
use std::str::FromStr;

use breakbulk::ahp::host::{Applied, Call, RpcError, State};
use breakbulk::ahp::log::{Limits, MemoryLog};
use breakbulk::ahp::{Application, Host, HostConfig};
use breakbulk::net::raise_open_files;
use breakbulk::net::ws::{ListenOptions, Listener};
use serde_json::value::RawValue;
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Runtime};

use super::Failure;

pub(crate) const CHANNEL: &str = "ahp-session:/crowd";

/// The most clients of one host.
const CLIENTS: usize = 100_000;

/// How the cores are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One process with one thread.
    One,
    /// One process with a thread for each core.
    Threads,
    /// A process with one thread for each core; the system spreads connections (`SO_REUSEPORT`).
    Processes,
}

impl Mode {
    pub(crate) const ALL: [(&'static str, Self); 3] = [
        ("one", Self::One),
        ("threads", Self::Threads),
        ("processes", Self::Processes),
    ];

    pub(crate) fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(_, mode)| *mode == self);
        named.map_or("", |(name, _)| name)
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, mode)| *mode)
            .ok_or_else(|| format!("{text:?} is none of one, threads, processes"))
    }
}

/// Answers every request with its parameters.
struct Echo;

impl Application for Echo {
    fn snapshot(&self, channel: &str) -> Option<State> {
        (channel == CHANNEL).then(State::none)
    }

    fn apply(&self, _: &Applied<'_>) {}

    async fn request(&self, _: &Host<Self>, call: Call) -> Result<Box<RawValue>, RpcError> {
        let params = call.params().to_owned();
        RawValue::from_string(params).map_err(|error| RpcError::new(-32603, error.to_string()))
    }
}

/// Prints where it listens, and serves.
pub(crate) fn run(mode: Mode, address: SocketAddr) -> Result<(), Failure> {
    raise_open_files();
    runtime(mode)?.block_on(serve(address))
}

fn runtime(mode: Mode) -> std::io::Result<Runtime> {
    match mode {
        Mode::One | Mode::Processes => Builder::new_current_thread().enable_all().build(),
        Mode::Threads => Builder::new_multi_thread().enable_all().build(),
    }
}

async fn serve(address: SocketAddr) -> Result<(), Failure> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    let socket = socket.listen(4096)?;
    println!("{}", socket.local_addr()?);
    std::io::stdout().flush()?;
    let options = ListenOptions {
        connections: CLIENTS,
        handshakes: 1024,
        ..ListenOptions::default()
    };
    let mut listener = Listener::new(socket, options)?;
    let config = HostConfig::default().with(|host| host.limits.clients = CLIENTS);
    let host = Host::new(Echo, MemoryLog::new(Limits::default()), config);
    loop {
        let accepted = listener.accept().await?;
        tokio::spawn(host.serve(accepted.websocket));
    }
}
