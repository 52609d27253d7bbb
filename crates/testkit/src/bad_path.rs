//! A bad network path: a proxy that enforces caps, delays, limits the rate, holds and cuts
//! connections, as a managed relay would.
//!
//! It follows the WebSocket frames in the byte stream without unmasking, re-encoding or buffering
//! them, so forwarded frames have the same bytes.
//!
//! ```no_run
//! use breakbulk_testkit::bad_path::{BadPath, Cut, Way, Weather};
//!
//! # async fn example(server: std::net::SocketAddr) -> std::io::Result<()> {
//! let weather = Weather::both_ways(Way { message_cap: Some(128 * 1024), ..Way::default() });
//! let path = BadPath::start(server, weather).await?;
//! path.cut_after(Cut::frames(3));
//! // Connect a client to path.address(), then:
//! path.until(|counts| counts.cuts == 1).await;
//! # Ok(())
//! # }
//! ```

mod close;
mod connection;
mod counts;
mod delay_line;
mod frames;
mod meter;
mod pump;
mod sockets;
mod weather;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use breakbulk_link::lock;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

pub use counts::{Counts, Passed};
pub use weather::{After, Cut, Direction, How, Over, Refusal, Way, Weather};

use connection::ConnectionGuard;
use meter::Meter;

/// A free port of this machine.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How long accepting pauses after an error, so that a lack of file descriptors does not cause a
/// busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A running proxy. It derefs to its [`Control`]; dropping it ends the proxy and all its connections.
#[derive(Debug)]
pub struct BadPath {
    control: Control,
    accepting: JoinHandle<()>,
}

impl BadPath {
    /// Starts a proxy for WebSockets to `target` (an address or `host:port`), on a free port of
    /// 127.0.0.1.
    pub async fn start(target: impl ToString, weather: Weather) -> io::Result<Self> {
        Self::open(ANY_PORT, target.to_string(), weather, true)
    }

    /// The same at an address of the caller's choice.
    pub async fn start_at(
        address: SocketAddr,
        target: impl ToString,
        weather: Weather,
    ) -> io::Result<Self> {
        Self::open(address, target.to_string(), weather, true)
    }

    /// Starts a proxy for any TCP stream, including TLS: it knows no frames, so it has no caps and
    /// no frame counts.
    pub async fn start_tcp(target: impl ToString, weather: Weather) -> io::Result<Self> {
        Self::open(ANY_PORT, target.to_string(), weather, false)
    }

    /// A handle that does not keep the proxy running.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    fn open(
        address: SocketAddr,
        target: String,
        weather: Weather,
        websocket: bool,
    ) -> io::Result<Self> {
        let listener = sockets::listen(address, &weather)?;
        let shared = Arc::new(Shared {
            address: listener.local_addr()?,
            target,
            websocket,
            settings: watch::Sender::new(Settings {
                weather,
                hold: false,
                refuse: false,
            }),
            counts: watch::Sender::new(Counts::default()),
            meter: Mutex::new(Meter::default()),
            open: Mutex::new(BTreeMap::new()),
        });
        Ok(Self {
            accepting: tokio::spawn(accept(listener, shared.clone())),
            control: Control { shared },
        })
    }
}

impl Deref for BadPath {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}

impl Drop for BadPath {
    fn drop(&mut self) {
        // The task owns the tasks of the connections, so they end with it.
        self.accepting.abort();
    }
}

/// Changes the settings of a running proxy, and reads its counts.
#[derive(Debug, Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

impl Control {
    /// The address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// The current conditions.
    pub fn weather(&self) -> Weather {
        self.shared.settings.borrow().weather
    }

    /// Changes the conditions, also for open connections: caps from the next frame on, pace and
    /// delay from the next bytes on.
    pub fn change(&self, change: impl FnOnce(&mut Weather)) {
        self.shared
            .settings
            .send_modify(|settings| change(&mut settings.weather));
    }

    /// Stops forwarding without closing anything. New connections are accepted and held, too.
    pub fn hold(&self) {
        self.shared.settings.send_modify(|s| s.hold = true);
    }

    /// Forwards again after [`hold`](Self::hold).
    pub fn resume(&self) {
        self.shared.settings.send_modify(|s| s.hold = false);
    }

    /// Resets every new connection; open ones go on. The port stays open, so a client's connection
    /// fails in the handshake.
    pub fn refuse(&self) {
        self.shared.settings.send_modify(|s| s.refuse = true);
    }

    /// Accepts new connections again after [`refuse`](Self::refuse).
    pub fn admit(&self) {
        self.shared.settings.send_modify(|s| s.refuse = false);
    }

    /// Cuts all open connections now, and returns how many there were.
    pub fn cut(&self, how: How) -> usize {
        let open = std::mem::take(&mut *lock(&self.shared.open));
        open.into_values()
            .filter_map(|connection| connection.send(how).ok())
            .count()
    }

    /// Cuts one connection now, by its number from [`connections`](Self::connections).
    pub fn cut_one(&self, number: u64, how: How) -> bool {
        let connection = lock(&self.shared.open).remove(&number);
        connection.is_some_and(|connection| connection.send(how).is_ok())
    }

    /// Schedules a cut, replacing the one scheduled before.
    pub fn cut_after(&self, cut: Cut) {
        lock(&self.shared.meter).set(Some(cut));
        // Wakes idle connections: the cut may be due already.
        self.shared.settings.send_modify(|_| {});
    }

    /// Cancels the scheduled cut.
    pub fn cut_no_more(&self) {
        lock(&self.shared.meter).set(None);
    }

    /// The numbers of the open connections; the first one accepted has number 1.
    pub fn connections(&self) -> Vec<u64> {
        lock(&self.shared.open).keys().copied().collect()
    }

    /// What the proxy has done so far.
    pub fn counts(&self) -> Counts {
        *self.shared.counts.borrow()
    }

    /// Waits until the counts satisfy `enough`, and returns them. Changes may be seen late, so use
    /// a condition that stays true.
    pub async fn until(&self, enough: impl FnMut(&Counts) -> bool) -> Counts {
        let mut counts = self.shared.counts.subscribe();
        match counts.wait_for(enough).await {
            Ok(counts) => *counts,
            // Cannot happen: this handle holds the shared state, which owns the sender.
            Err(_) => self.counts(),
        }
    }
}

/// What all connections of a proxy share.
#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    target: String,
    websocket: bool,
    settings: watch::Sender<Settings>,
    counts: watch::Sender<Counts>,
    meter: Mutex<Meter>,
    /// How to cut each open connection.
    open: Mutex<BTreeMap<u64, oneshot::Sender<How>>>,
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    weather: Weather,
    hold: bool,
    refuse: bool,
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut settings = shared.settings.subscribe();
    let mut paced = settings.borrow_and_update().weather.from_client.pace;
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => admit(client, &shared, &mut running),
                Err(error) => {
                    tracing::debug!(%error, "a connection to the relay could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            _ = settings.changed() => {
                let pace = settings.borrow_and_update().weather.from_client.pace;
                sockets::before_opening(&listener, std::mem::replace(&mut paced, pace), pace);
            }
            Some(_) = running.join_next() => {}
        }
    }
}

fn admit(client: TcpStream, shared: &Arc<Shared>, running: &mut JoinSet<()>) {
    let settings = *shared.settings.borrow();
    if settings.refuse || running.len() >= settings.weather.connections {
        sockets::reset(client);
        shared.counts.send_modify(|counts| counts.refused += 1);
        return;
    }
    let (guard, cut) = ConnectionGuard::new(shared.clone());
    running.spawn(connection::serve(guard, client, cut));
}
