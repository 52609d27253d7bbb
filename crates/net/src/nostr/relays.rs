//! Connections to several relays. An event is published to all of them, and counts as published
//! once one has accepted it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Waker};
use std::time::Duration;

use breakbulk_link::Recent;
use breakbulk_link::lock;
use nostr_sdk::pool::relay::Error as RelayError;
use nostr_sdk::pool::{RelayLimits as PoolLimits, RelayNotification};
use nostr_sdk::{
    Client, ClientMessage, Event, Filter, Keys, Kind, Relay, RelayMessage, RelayStatus, RelayUrl,
    SubscribeOptions, SubscriptionId, Timestamp,
};
use tokio::sync::{broadcast, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::again::{RecentlyAccepted, Turn};
use super::event_filter::EventFilter;
use super::outcome::{Outcome, Verdict, verdict};
use super::stored::{Batch, Place, Stored, hand_over};
use super::{EVENT_MAX, fetch_limits};

/// How many events may wait for one relay; further events are not sent to it.
const PENDING_MAX: usize = 256;

/// The first and the longest pause after a relay asked to slow down.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// The longest message of a relay that is read.
const MESSAGE_MAX: u32 = 4 << 20;

/// The options of [`Relays`].
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// How long to wait until the first relay has accepted the subscription.
    pub connect: Duration,
    /// How long to try to publish an event, across reconnects.
    pub publish: Duration,
    /// The pause before reconnecting to a relay.
    pub reconnect: Duration,
    /// How many received events may wait for the application before reading from relays pauses.
    pub waiting: usize,
    /// How many event ids are remembered, so that an event that several relays deliver is returned
    /// once.
    pub remembered: usize,
    /// How far into the past to subscribe, for peers whose clocks are behind.
    pub back: Duration,
    /// How long to wait for a relay's limits (NIP-11); zero does not ask for them.
    pub limits: Duration,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(20),
            publish: Duration::from_secs(30),
            reconnect: Duration::from_secs(2),
            waiting: 256,
            remembered: 1 << 16,
            back: Duration::ZERO,
            limits: Duration::from_secs(3),
        }
    }
}

/// Why relays cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelaysError {
    /// No relay was given.
    #[error("no relay was given; name at least one as ws:// or wss://")]
    None,
    /// An address is not a relay URL.
    #[error("{url:?} is no address of a relay ({reason}); write it as ws:// or wss://")]
    Url {
        /// The address.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No relay accepted the subscription in time.
    #[error("none of {count} relays took the subscription within {} s; check the addresses", waited.as_secs())]
    Unreachable {
        /// How many were tried.
        count: usize,
        /// How long they were waited for.
        waited: Duration,
    },
}

/// Connections to one or more relays. Clones share them; dropping the last clone closes them.
#[derive(Clone, Debug)]
pub struct Relays(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    client: Client,
    relays: Vec<Arc<OneRelay>>,
    publish: Duration,
    limit: usize,
    watchers: Vec<AbortHandle>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        for watcher in &self.watchers {
            watcher.abort();
        }
        for relay in &self.relays {
            relay.relay.disconnect();
        }
    }
}

#[derive(Debug)]
struct OneRelay {
    relay: Relay,
    /// How many events wait for this relay.
    pending: AtomicUsize,
    /// Until when nothing is sent to it, and the length of the next pause.
    pause: Mutex<(Instant, Duration)>,
    /// The events that it accepted a short time ago.
    recent: Mutex<RecentlyAccepted>,
    stored: Arc<Stored>,
}

impl Relays {
    /// Connects and subscribes to events of these kinds that are addressed to `keys`; returns once
    /// one relay has accepted the subscription. Events with valid signatures arrive in the channel, each
    /// once. Those that a relay had stored when it was connected, also after an outage, arrive together.
    pub async fn open(
        urls: &[String],
        keys: &Keys,
        kinds: impl IntoIterator<Item = u16>,
        options: &RelayOptions,
    ) -> Result<(Self, mpsc::Receiver<Batch>), RelaysError> {
        let urls = parse(urls)?;
        let (sender, events) = mpsc::channel(options.waiting.max(1));
        let kinds: BTreeSet<u16> = kinds.into_iter().collect();
        let since = Timestamp::now() - options.back.as_secs();
        let filter = Filter::new()
            .kinds(kinds.iter().map(|&kind| Kind::from_u16(kind)))
            .pubkey(keys.public_key())
            .since(since);
        let stored = Arc::new(Stored::default());
        let filter_policy = EventFilter {
            us: keys.public_key(),
            kinds,
            seen: Mutex::new(Recent::new(options.remembered)),
            stored: stored.clone(),
            events: sender.clone(),
        };
        let client = Client::builder()
            .signer(keys.clone())
            .admit_policy(filter_policy)
            .build();
        client.automatic_authentication(true);
        let id = SubscriptionId::generate();
        client
            .pool()
            .save_subscription(id.clone(), filter.clone())
            .await;
        let (ready, mut first) = mpsc::channel(1);
        let (mut relays, mut watchers) = (Vec::new(), Vec::new());
        for url in &urls {
            let relay = add(&client, url, options).await?;
            // Subscribed to before connecting, so that no notification is missed.
            let notifications = relay.notifications();
            let relay = Arc::new(OneRelay {
                relay,
                pending: AtomicUsize::new(0),
                pause: Mutex::new((Instant::now(), PAUSE.0)),
                recent: Mutex::default(),
                stored: stored.clone(),
            });
            let watch = Watch {
                one: relay.clone(),
                id: id.clone(),
                filter: filter.clone(),
                ready: ready.clone(),
                stored: stored.clone(),
                events: sender.clone(),
            }
            .run(notifications);
            watchers.push(tokio::spawn(watch).abort_handle());
            relay.relay.connect();
            relays.push(relay);
        }
        let mut shared = Shared {
            client,
            relays,
            publish: options.publish,
            limit: 0,
            watchers,
        };
        let (limit, subscribed) = tokio::join!(
            limit(&urls, options.limits),
            tokio::time::timeout(options.connect, first.recv())
        );
        if subscribed.is_err() {
            return Err(RelaysError::Unreachable {
                count: urls.len(),
                waited: options.connect,
            });
        }
        shared.limit = limit;
        Ok((Self(Arc::new(shared)), events))
    }

    /// The largest event, in bytes, that all relays accept; 65,536 is assumed for a relay that
    /// states no limit.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Publishes an event to all relays; completes when the first has accepted it, or all have refused.
    /// Pauses for a relay that limits the rate, and waits for one that is disconnected.
    ///
    /// Sending begins in this call, before the future is polled, so that events reach each relay in the
    /// order of the calls, unless a relay has to be tried again.
    pub fn publish(&self, event: Event) -> impl Future<Output = Outcome> + Send + use<> {
        let event = Arc::new(event);
        let deadline = Instant::now() + self.0.publish;
        let (sender, mut outcomes) = mpsc::channel(self.0.relays.len());
        for relay in &self.0.relays {
            let (relay, event, sender) = (relay.clone(), event.clone(), sender.clone());
            let mut publishing = Box::pin(async move {
                let outcome = relay.publish(&event, deadline).await;
                // The receiver is gone if another relay has accepted the event already.
                let _ = sender.send(outcome).await;
            });
            // Begins sending now; a task continues if it has to wait, and polls it with its own waker.
            let begun = publishing
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            if begun.is_pending() {
                tokio::spawn(publishing);
            }
        }
        drop(sender);
        async move {
            let mut worst = Outcome::Lost {
                reason: "no relay answered".to_owned(),
            };
            while let Some(outcome) = outcomes.recv().await {
                match (&outcome, &worst) {
                    (Outcome::Accepted, _) => return outcome,
                    (_, Outcome::TooLarge { .. }) => {}
                    _ => worst = outcome,
                }
            }
            worst
        }
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.0.client.shutdown().await;
    }
}

impl OneRelay {
    async fn publish(&self, event: &Arc<Event>, deadline: Instant) -> Outcome {
        if self.pending.fetch_add(1, Ordering::Relaxed) >= PENDING_MAX {
            self.pending.fetch_sub(1, Ordering::Relaxed);
            let reason = format!("{PENDING_MAX} events already wait for {}", self.relay.url());
            return Outcome::Lost { reason };
        }
        let outcome = timeout_at(deadline, self.publish_with_retries(event)).await;
        self.pending.fetch_sub(1, Ordering::Relaxed);
        if let Ok(Outcome::Accepted) = outcome {
            lock(&self.recent).accepted(Instant::now(), event);
        }
        outcome.unwrap_or_else(|_| Outcome::Lost {
            reason: format!("{} did not answer in time", self.relay.url()),
        })
    }

    /// Sends the event until the relay accepts or refuses it. Sending it again is harmless: a relay
    /// recognizes an event by its id.
    async fn publish_with_retries(&self, event: &Event) -> Outcome {
        let mut turn = Turn::default();
        loop {
            self.wait_for_turn(event, &mut turn).await;
            let reason = match self.relay.send_event(event).await {
                Ok(_) => return self.accepted(),
                Err(RelayError::RelayMessage(text)) => match verdict(&text) {
                    Verdict::Accepted => return self.accepted(),
                    Verdict::TooLarge => return Outcome::TooLarge { reason: text },
                    Verdict::Refused => return Outcome::Lost { reason: text },
                    Verdict::Later => text,
                },
                Err(
                    error @ (RelayError::Banned
                    | RelayError::WriteDisabled
                    | RelayError::AuthenticationFailed),
                ) => {
                    let reason = error.to_string();
                    return Outcome::Lost { reason };
                }
                Err(error) => {
                    self.relay
                        .wait_for_connection(Duration::from_secs(60))
                        .await;
                    error.to_string()
                }
            };
            tracing::debug!(
                url = %self.relay.url(),
                event = %event.id,
                reason,
                "publishing an event failed, trying again"
            );
            self.back_off();
        }
    }

    /// Waits until the relay takes events, and until those that an outage may have lost were sent again.
    async fn wait_for_turn(&self, event: &Event, turn: &mut Turn) {
        loop {
            let settled = match event.kind.is_ephemeral() {
                true => {
                    let attempt = self.stored.attempts(self.relay.url());
                    turn.settled(Instant::now(), &lock(&self.recent), attempt)
                }
                // The relay stores it.
                false => None,
            };
            let until = settled.into_iter().chain([self.pause().0]).max();
            match until.filter(|until| *until > Instant::now()) {
                Some(until) => sleep_until(until).await,
                None => return,
            }
        }
    }

    /// Sends the events again that may have been lost in the outage before the last reconnect.
    fn publish_again(&self) {
        let events = lock(&self.recent).again(Instant::now());
        if events.is_empty() {
            return;
        }
        tracing::info!(url = %self.relay.url(), events = events.len(), "sent recent events again after an outage of the relay");
        for event in events {
            if let Err(error) = self
                .relay
                .send_msg(ClientMessage::event(Event::clone(&event)))
            {
                tracing::debug!(url = %self.relay.url(), %error, "sending an event again failed");
                return;
            }
        }
    }

    fn accepted(&self) -> Outcome {
        self.pause().1 = PAUSE.0;
        Outcome::Accepted
    }

    /// Starts a pause that all events for this relay share: separate retries would hit it all at once.
    fn back_off(&self) {
        let now = Instant::now();
        let mut pause = self.pause();
        if pause.0 <= now {
            *pause = (now + pause.1, (pause.1 * 2).min(PAUSE.1));
        }
    }

    fn pause(&self) -> MutexGuard<'_, (Instant, Duration)> {
        lock(&self.pause)
    }
}

fn parse(urls: &[String]) -> Result<Vec<RelayUrl>, RelaysError> {
    if urls.is_empty() {
        return Err(RelaysError::None);
    }
    let parsed = urls.iter().map(|url| {
        RelayUrl::parse(url).map_err(|error| RelaysError::Url {
            url: url.clone(),
            reason: error.to_string(),
        })
    });
    let mut parsed: Vec<RelayUrl> = parsed.collect::<Result<_, _>>()?;
    parsed.sort();
    parsed.dedup();
    Ok(parsed)
}

async fn add(
    client: &Client,
    url: &RelayUrl,
    options: &RelayOptions,
) -> Result<Relay, RelaysError> {
    let bad_url = |reason: String| RelaysError::Url {
        url: url.to_string(),
        reason,
    };
    let mut limits = PoolLimits::default();
    limits.messages.max_size = Some(MESSAGE_MAX);
    let settings = nostr_sdk::RelayOptions::new()
        .retry_interval(options.reconnect)
        .limits(limits);
    let pool = client.pool();
    let added = pool.add_relay(url.clone(), settings).await;
    added.map_err(|error| bad_url(error.to_string()))?;
    let relay = pool.relay(url.clone()).await;
    relay.map_err(|error| bad_url(error.to_string()))
}

/// The task that handles the notifications of one relay.
struct Watch {
    one: Arc<OneRelay>,
    id: SubscriptionId,
    filter: Filter,
    /// Notified when the relay has accepted the subscription.
    ready: mpsc::Sender<()>,
    stored: Arc<Stored>,
    events: mpsc::Sender<Batch>,
}

impl Watch {
    /// Hands over the relay's stored events, subscribes again if the relay ends the subscription, and sends
    /// recent events again after an outage.
    async fn run(self, mut notifications: broadcast::Receiver<RelayNotification>) {
        let url = self.one.relay.url();
        let (mut pause, mut began) = (PAUSE.0, self.stored.began());
        // When to subscribe again, if the relay ended the subscription.
        let mut again = None;
        // How often this task heard that the relay is being connected.
        let mut attempts = 0;
        loop {
            let due = lock(&self.one.recent).next();
            let end = self.stored.deadline(url);
            let notification = tokio::select! {
                notification = notifications.recv() => notification,
                () = until(due) => {
                    self.one.publish_again();
                    continue;
                }
                () = until(end) => {
                    self.hand_over(|place| self.stored.ended(url, place)).await;
                    continue;
                }
                () = until(again) => {
                    again = None;
                    self.subscribe().await;
                    continue;
                }
                // An error means that nothing is received any more.
                Ok(()) = began.changed() => continue,
            };
            let message = match notification {
                Ok(RelayNotification::Message { message }) => message,
                Ok(RelayNotification::RelayStatus {
                    status: RelayStatus::Connected,
                }) => {
                    lock(&self.one.recent).connected(Instant::now(), attempts);
                    continue;
                }
                Ok(RelayNotification::RelayStatus {
                    status: RelayStatus::Connecting,
                }) => {
                    attempts += 1;
                    continue;
                }
                Ok(RelayNotification::Shutdown) | Err(broadcast::error::RecvError::Closed) => {
                    return;
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    attempts = self.stored.attempts(url);
                    if self.one.relay.is_connected() {
                        lock(&self.one.recent).connected(Instant::now(), attempts);
                    }
                    continue;
                }
                Ok(_) => continue,
            };
            match message {
                RelayMessage::EndOfStoredEvents(which) if *which == self.id => {
                    // This task may hear late of the end on a connection that is gone.
                    if attempts != self.stored.attempts(url) {
                        continue;
                    }
                    pause = PAUSE.0;
                    self.hand_over(|place| self.stored.ended(url, place)).await;
                    // Only the first signal is waited for; the channel may be full.
                    let _ = self.ready.try_send(());
                }
                RelayMessage::Closed {
                    subscription_id,
                    message,
                } if *subscription_id == self.id => {
                    // The library authenticates and subscribes again by itself.
                    if message.starts_with("auth-required") {
                        continue;
                    }
                    tracing::warn!(
                        %url,
                        %message,
                        "the relay ended the subscription; subscribing again in {pause:?}"
                    );
                    self.hand_over(|place| self.stored.begin(url, place)).await;
                    again = Some(Instant::now() + pause);
                    pause = (pause * 2).min(PAUSE.1);
                }
                _ => {}
            }
        }
    }

    async fn hand_over(&self, end: impl Fn(Option<Place<'_>>) -> bool) {
        hand_over(&self.events, end).await;
    }

    async fn subscribe(&self) {
        let relay = &self.one.relay;
        let options = SubscribeOptions::default();
        let again = relay.subscribe_with_id(self.id.clone(), self.filter.clone(), options);
        if let Err(error) = again.await {
            tracing::warn!(
                url = %relay.url(),
                %error,
                "subscribing at the relay failed: no events arrive from it"
            );
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// The smallest event limit of all relays, in bytes.
async fn limit(urls: &[RelayUrl], timeout: Duration) -> usize {
    if timeout.is_zero() {
        return EVENT_MAX;
    }
    let mut asked = JoinSet::new();
    for url in urls {
        let url = url.clone();
        asked.spawn(async move { fetch_limits(&url, timeout).await });
    }
    let mut least = usize::MAX;
    while let Some(limits) = asked.join_next().await {
        let event = limits.ok().flatten().and_then(|limits| limits.event());
        least = least.min(event.unwrap_or(EVENT_MAX));
    }
    least
}
