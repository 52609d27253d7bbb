//! A Nostr relay in this process, for tests and demos: it limits the size of events, and a proxy in
//! front of it delays, duplicates and reorders them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use breakbulk_link::{Frame, Random, lock};
use nostr_relay_builder::LocalRelay;
use nostr_relay_builder::builder::{
    PolicyResult, RateLimit, RelayBuilder, RelayBuilderNip42, WritePolicy,
};
use nostr_sdk::util::BoxedFuture;
use nostr_sdk::{Event, JsonUtil};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use breakbulk_net::ws::{self, ConnectOptions, ListenOptions, Listener, WebSocket};
use breakbulk_net::{Incoming, Sink, Source, Transport};

/// How many delayed frames one connection may hold.
const HELD: usize = 4096;

/// How long the relay has, after a cut, to answer the events that it got.
const ANSWERS: Duration = Duration::from_secs(2);

/// A duplicate is delayed by up to this much.
const SECOND_COPY: Duration = Duration::from_millis(500);

/// What the relay and the proxy in front of it do.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// A larger event is refused as too large.
    pub event_max: usize,
    /// An event takes up to this long to reach the relay, which then confirms it: events overtake
    /// each other, but none overtakes one that was confirmed.
    pub delay: Duration,
    /// A confirmed event takes up to this long from the relay to a subscriber.
    pub late: Duration,
    /// The percentage of events that arrive twice.
    pub doubled: u64,
    /// Events per minute and connection before the relay answers `rate-limited`.
    pub per_minute: u32,
    /// Whether clients must authenticate (NIP-42).
    pub auth: bool,
    /// Whether there is a proxy even if nothing is delayed or duplicated, so that connections can
    /// be cut.
    pub shim: bool,
    /// The port of 127.0.0.1 that it listens at; a free one if absent. With a proxy it is not the port of
    /// the proxy.
    pub port: Option<u16>,
    /// The seed of all randomness.
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
            port: None,
            seed: 0,
        }
    }
}

/// A running relay. Dropping it stops it.
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
    /// A larger event is refused.
    event_max: AtomicUsize,
    /// Whether every event is refused.
    is_closed: AtomicBool,
}

/// The relay could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the relay could not be started: {0}")]
pub struct StartError(pub(crate) String);

/// How often another port is tried: a relay chooses one before it listens there.
const TRIES: usize = 10;

/// Starts a relay, at another port if somebody else was quicker.
async fn run(make: impl Fn() -> LocalRelay) -> Result<LocalRelay, StartError> {
    let mut failed = String::new();
    for _ in 0..TRIES {
        let relay = make();
        match relay.run().await {
            Ok(()) => return Ok(relay),
            Err(error) => failed = error.to_string(),
        }
    }
    Err(StartError(failed))
}

fn relay(weather: &Weather, counts: &Arc<Counts>) -> LocalRelay {
    let mut builder = RelayBuilder::default()
        .rate_limit(RateLimit {
            max_reqs: 500,
            notes_per_minute: weather.per_minute,
        })
        .write_policy(SizePolicy {
            counts: counts.clone(),
        });
    if let Some(port) = weather.port {
        builder = builder.port(port);
    }
    if weather.auth {
        builder = builder.nip42(RelayBuilderNip42::default());
    }
    LocalRelay::new(builder)
}

impl BadRelay {
    /// Starts a relay on a free port of this machine.
    pub async fn start(weather: Weather) -> Result<Self, StartError> {
        let counts = Arc::new(Counts::default());
        counts.event_max.store(weather.event_max, Ordering::Relaxed);
        let relay = run(|| relay(&weather, &counts)).await?;
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

    /// The address that clients connect to.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How many events were accepted.
    pub fn events(&self) -> u64 {
        self.counts.events.load(Ordering::Relaxed)
    }

    /// How many events were refused because of their size.
    pub fn refused(&self) -> u64 {
        self.counts.refused.load(Ordering::Relaxed)
    }

    /// The size of the largest event that came in, accepted or not.
    pub fn largest(&self) -> usize {
        self.counts.largest.load(Ordering::Relaxed)
    }

    /// Refuses larger events than this from now on.
    pub fn limit(&self, event_max: usize) {
        self.counts.event_max.store(event_max, Ordering::Relaxed);
    }

    /// Refuses every event from now on, or no longer: as a relay that accepts listed authors alone.
    pub fn refuse_all(&self, refuse: bool) {
        self.counts.is_closed.store(refuse, Ordering::Relaxed);
    }

    /// Cuts all connections through the proxy. New ones are accepted, and served once the relay has worked on all
    /// events of the old ones: otherwise what comes of those would depend on how busy the machine is.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Sets all counts to zero.
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

/// Refuses events that are too large, and counts events.
#[derive(Debug)]
struct SizePolicy {
    counts: Arc<Counts>,
}

impl WritePolicy for SizePolicy {
    fn admit_event<'a>(
        &'a self,
        event: &'a Event,
        _from: &'a SocketAddr,
    ) -> BoxedFuture<'a, PolicyResult> {
        let size = event.as_json().len();
        self.counts.largest.fetch_max(size, Ordering::Relaxed);
        let max = self.counts.event_max.load(Ordering::Relaxed);
        let result = if self.counts.is_closed.load(Ordering::Relaxed) {
            PolicyResult::Reject("not for you".to_owned())
        } else if size > max {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            PolicyResult::Reject(format!("event too large: {size} bytes, limit {max}"))
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
    let open = Arc::new(watch::Sender::new(BTreeMap::new()));
    while let Ok(accepted) = listener.accept().await {
        number = number.wrapping_add(1);
        let behind = behind.clone();
        let mut cut = cut.clone();
        let place = Open::new(&open, *cut.borrow_and_update());
        pumps.spawn(async move {
            place.wait_for_older().await;
            if let Ok(relay) = ws::connect(&behind, &ConnectOptions::default()).await {
                let random = Arc::new(Mutex::new(Random::from_number(number)));
                pump(accepted.websocket, relay, weather, random, cut).await;
            }
        });
    }
}

/// A connection through the proxy, which was opened after so many cuts. All that are open count in a table.
struct Open {
    cuts: u64,
    all: Arc<watch::Sender<BTreeMap<u64, usize>>>,
}

impl Open {
    fn new(all: &Arc<watch::Sender<BTreeMap<u64, usize>>>, cuts: u64) -> Self {
        all.send_modify(|all| *all.entry(cuts).or_default() += 1);
        Self {
            cuts,
            all: all.clone(),
        }
    }

    /// Waits for the connections of before the last cut.
    async fn wait_for_older(&self) {
        let mut all = self.all.subscribe();
        let none = |all: &BTreeMap<u64, usize>| all.range(..self.cuts).next().is_none();
        // The sender is kept, so that this cannot fail.
        let _ = all.wait_for(none).await;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.all.send_modify(|all| {
            let count = all.entry(self.cuts).or_default();
            *count -= 1;
            if *count == 0 {
                all.remove(&self.cuts);
            }
        });
    }
}

/// Forwards both directions until either side ends, or until it is cut and the relay has answered what it got.
async fn pump(
    client: WebSocket,
    relay: WebSocket,
    weather: Weather,
    random: Arc<Mutex<Random>>,
    mut cut: watch::Receiver<u64>,
) {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_relay, mut to_relay) = relay.split();
    let up = Way {
        longest: weather.delay,
        doubled: 0,
        random: random.clone(),
        events: AtomicU64::new(0),
        answers: AtomicU64::new(0),
    };
    let down = Way {
        longest: weather.late,
        doubled: weather.doubled,
        random,
        events: AtomicU64::new(0),
        answers: AtomicU64::new(0),
    };
    tokio::select! {
        () = up.run(&mut from_client, &mut to_relay) => return,
        () = down.run(&mut from_relay, &mut to_client) => return,
        _ = cut.changed() => {}
    }
    drop((from_client, to_client));
    let answered = async {
        while down.answers.load(Ordering::Relaxed) < up.events.load(Ordering::Relaxed) {
            match from_relay.next().await {
                Incoming::Frame(frame) | Incoming::Posted(frame, _) => down.count_answer(&frame),
                Incoming::Alive => {}
                Incoming::Closed(_) | Incoming::Broken(_) => return,
            }
        }
    };
    let _ = timeout(ANSWERS, answered).await;
}

/// One direction of the proxy.
struct Way {
    longest: Duration,
    doubled: u64,
    random: Arc<Mutex<Random>>,
    /// Events that were forwarded.
    events: AtomicU64,
    /// Answers to events that came.
    answers: AtomicU64,
}

impl Way {
    async fn run(&self, source: &mut impl Source, sink: &mut impl Sink) {
        let (send, mut due) = mpsc::channel::<Frame>(HELD);
        let mut held = JoinSet::new();
        loop {
            tokio::select! {
                incoming = source.next() => match incoming {
                    Incoming::Frame(frame) | Incoming::Posted(frame, _) => {
                        self.count_answer(&frame);
                        self.hold(frame, &send, &mut held);
                    }
                    Incoming::Alive => {}
                    Incoming::Closed(_) | Incoming::Broken(_) => return,
                },
                Some(frame) = due.recv() => {
                    if is_event(&frame) {
                        self.events.fetch_add(1, Ordering::Relaxed);
                    }
                    if sink.send(frame).await.is_err() {
                        return;
                    }
                }
                Some(_) = held.join_next() => {}
            }
        }
    }

    fn count_answer(&self, frame: &Frame) {
        let is_answer = frame.bytes().starts_with(br#"["OK""#);
        self.answers
            .fetch_add(u64::from(is_answer), Ordering::Relaxed);
    }

    fn hold(&self, frame: Frame, send: &mpsc::Sender<Frame>, held: &mut JoinSet<()>) {
        let is_event = is_event(&frame);
        let copies = 1 + usize::from(is_event && self.below(100) < self.doubled);
        for copy in 0..copies {
            let longest = if copy == 0 { self.longest } else { SECOND_COPY };
            let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
            let pause = if is_event { self.below(longest) } else { 0 };
            if pause == 0 && copy == 0 {
                // Frames without a delay keep their order.
                if send.try_send(frame.clone()).is_err() {
                    tracing::error!(
                        limit = HELD,
                        "the relay dropped a frame: its queue is full or closed"
                    );
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
        lock(&self.random).below(bound)
    }
}

fn is_event(frame: &Frame) -> bool {
    frame.bytes().starts_with(br#"["EVENT""#)
}
