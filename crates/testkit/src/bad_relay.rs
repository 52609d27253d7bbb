//! A relay in this process for tests and demos: it caps events, and before it stands a shim that
//! delays, doubles and reorders them.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use breakbulk_link::{Frame, Random};
use nostr_relay_builder::LocalRelay;
use nostr_relay_builder::builder::{
    PolicyResult, RateLimit, RelayBuilder, RelayBuilderNip42, WritePolicy,
};
use nostr_sdk::util::BoxedFuture;
use nostr_sdk::{Event, JsonUtil};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use breakbulk_net::ws::{self, ConnectOptions, ListenOptions, Listener, WebSocket};
use breakbulk_net::{Incoming, Sink, Source, Transport};

/// Frames that one connection may hold back.
const HELD: usize = 4096;

/// A second copy comes up to this much later.
const SECOND_COPY: Duration = Duration::from_millis(500);

/// What the relay and the shim before it do.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// A larger event is refused as too large.
    pub event_max: usize,
    /// An event takes up to this long until the relay has it and says so: events overtake each other,
    /// but none overtakes one that was confirmed.
    pub delay: Duration,
    /// An event takes up to this long from the relay to who listens, after it was confirmed.
    pub late: Duration,
    /// So many of a hundred events arrive twice.
    pub doubled: u64,
    /// Events per minute and connection before the relay says `rate-limited`.
    pub per_minute: u32,
    /// Whether clients must authenticate (NIP-42).
    pub auth: bool,
    /// Whether there is a shim in calm weather too, so that connections can be cut.
    pub shim: bool,
    /// What all chance follows from.
    pub seed: u64,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            event_max: 64 << 10,
            delay: Duration::ZERO,
            late: Duration::ZERO,
            doubled: 0,
            per_minute: 1_000_000,
            auth: false,
            shim: false,
            seed: 0,
        }
    }
}

/// A running relay; dropped, it stops.
pub struct BadRelay {
    relay: LocalRelay,
    url: String,
    counts: Arc<Counts>,
    shim: Option<AbortHandle>,
    /// Counts the cuts.
    cuts: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Counts {
    events: AtomicU64,
    largest: AtomicUsize,
    refused: AtomicU64,
}

/// The relay could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the relay could not be started: {0}")]
pub struct StartError(String);

impl BadRelay {
    /// Starts a relay at a free port of this machine.
    pub async fn start(weather: Weather) -> Result<Self, StartError> {
        let counts = Arc::new(Counts::default());
        let mut builder = RelayBuilder::default()
            .rate_limit(RateLimit {
                max_reqs: 500,
                notes_per_minute: weather.per_minute,
            })
            .write_policy(Scales {
                max: weather.event_max,
                counts: counts.clone(),
            });
        if weather.auth {
            builder = builder.nip42(RelayBuilderNip42::default());
        }
        let relay = LocalRelay::new(builder);
        relay
            .run()
            .await
            .map_err(|error| StartError(error.to_string()))?;
        let behind = relay.url().await.to_string();
        let calm = weather.delay.is_zero() && weather.late.is_zero() && weather.doubled == 0;
        let (cuts, cut) = watch::channel(0);
        let (url, shim) = if calm && !weather.shim {
            (behind, None)
        } else {
            let listener = Listener::bind("127.0.0.1:0", ListenOptions::default())
                .await
                .map_err(|error| StartError(error.to_string()))?;
            let url = format!("ws://{}", listener.local_addr());
            let shim = tokio::spawn(serve(listener, behind, weather, cut)).abort_handle();
            (url, Some(shim))
        };
        Ok(Self {
            relay,
            url,
            counts,
            shim,
            cuts,
        })
    }

    /// Where clients connect.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Events that were taken.
    pub fn events(&self) -> u64 {
        self.counts.events.load(Ordering::Relaxed)
    }

    /// Events that were refused for their size.
    pub fn refused(&self) -> u64 {
        self.counts.refused.load(Ordering::Relaxed)
    }

    /// Bytes of the largest event that came, taken or not.
    pub fn largest(&self) -> usize {
        self.counts.largest.load(Ordering::Relaxed)
    }

    /// Cuts all connections through the shim; new ones are taken.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Begins to count anew.
    pub fn reset(&self) {
        self.counts.events.store(0, Ordering::Relaxed);
        self.counts.refused.store(0, Ordering::Relaxed);
        self.counts.largest.store(0, Ordering::Relaxed);
    }
}

impl Drop for BadRelay {
    fn drop(&mut self) {
        if let Some(shim) = &self.shim {
            shim.abort();
        }
        self.relay.shutdown();
    }
}

impl fmt::Debug for BadRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BadRelay({})", self.url)
    }
}

/// Weighs events.
#[derive(Debug)]
struct Scales {
    max: usize,
    counts: Arc<Counts>,
}

impl WritePolicy for Scales {
    fn admit_event<'a>(
        &'a self,
        event: &'a Event,
        _from: &'a SocketAddr,
    ) -> BoxedFuture<'a, PolicyResult> {
        let size = event.as_json().len();
        self.counts.largest.fetch_max(size, Ordering::Relaxed);
        let result = if size > self.max {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            PolicyResult::Reject(format!("event too large: {size} of {} bytes", self.max))
        } else {
            self.counts.events.fetch_add(1, Ordering::Relaxed);
            PolicyResult::Accept
        };
        Box::pin(async move { result })
    }
}

async fn serve(
    mut listener: Listener,
    behind: String,
    weather: Weather,
    cut: watch::Receiver<u64>,
) {
    let mut pumps = JoinSet::new();
    let mut number = weather.seed;
    while let Ok(accepted) = listener.accept().await {
        number = number.wrapping_add(1);
        let behind = behind.clone();
        let mut cut = cut.clone();
        cut.mark_unchanged();
        pumps.spawn(async move {
            if let Ok(relay) = ws::connect(&behind, &ConnectOptions::default()).await {
                let random = Arc::new(Mutex::new(Random::from_number(number)));
                tokio::select! {
                    () = pump(accepted.websocket, relay, weather, random) => {}
                    _ = cut.changed() => {}
                }
            }
        });
    }
}

/// Until either end is gone.
async fn pump(client: WebSocket, relay: WebSocket, weather: Weather, random: Arc<Mutex<Random>>) {
    let (from_client, to_client) = client.split();
    let (from_relay, to_relay) = relay.split();
    let up = Way {
        longest: weather.delay,
        doubled: 0,
        random: random.clone(),
    };
    let down = Way {
        longest: weather.late,
        doubled: weather.doubled,
        random,
    };
    tokio::select! {
        () = up.run(from_client, to_relay) => {}
        () = down.run(from_relay, to_client) => {}
    }
}

/// One direction.
struct Way {
    longest: Duration,
    doubled: u64,
    random: Arc<Mutex<Random>>,
}

impl Way {
    async fn run(&self, mut source: impl Source, mut sink: impl Sink) {
        let (send, mut due) = mpsc::channel::<Frame>(HELD);
        let mut held = JoinSet::new();
        loop {
            tokio::select! {
                incoming = source.next() => match incoming {
                    Incoming::Frame(frame) | Incoming::Posted(frame, _) => {
                        self.hold(frame, &send, &mut held);
                    }
                    Incoming::Alive => {}
                    Incoming::Closed(_) | Incoming::Broken(_) => return,
                },
                Some(frame) = due.recv() => {
                    if sink.send(frame).await.is_err() {
                        return;
                    }
                }
                Some(_) = held.join_next() => {}
            }
        }
    }

    fn hold(&self, frame: Frame, send: &mpsc::Sender<Frame>, held: &mut JoinSet<()>) {
        let is_event = frame.bytes().starts_with(br#"["EVENT""#);
        let copies = 1 + usize::from(is_event && self.below(100) < self.doubled);
        for copy in 0..copies {
            let longest = if copy == 0 { self.longest } else { SECOND_COPY };
            let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
            let pause = if is_event { self.below(longest) } else { 0 };
            if pause == 0 && copy == 0 {
                // Order is kept where nothing is to be changed.
                if send.try_send(frame.clone()).is_err() {
                    tracing::error!("the relay drops a frame: its channel is full or closed");
                }
                continue;
            }
            let (frame, send) = (frame.clone(), send.clone());
            held.spawn(async move {
                sleep(Duration::from_micros(pause)).await;
                let _ = send.send(frame).await;
            });
        }
    }

    fn below(&self, bound: u64) -> u64 {
        self.random
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .below(bound)
    }
}
