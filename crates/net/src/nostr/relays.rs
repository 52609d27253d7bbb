//! Several relays as one: the first that takes an event decides, the others are tried all the same.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use breakbulk_link::Recent;
use nostr_sdk::pool::relay::Error as RelayError;
use nostr_sdk::pool::{RelayLimits as PoolLimits, RelayNotification};
use nostr_sdk::{
    Client, Event, Filter, Keys, Kind, Relay, RelayMessage, RelayUrl, SubscribeOptions,
    SubscriptionId, Timestamp,
};
use tokio::sync::{broadcast, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::gate::Gate;
use super::outcome::{Outcome, Verdict, verdict};
use super::{EVENT_MAX, fetch_limits};

/// Events that wait for one relay; a relay that is further behind is passed over.
const BEHIND_MAX: usize = 256;

/// The first pause after a relay asked for one, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// A message of a relay's longer than this is not looked at.
const MESSAGE_MAX: u32 = 4 << 20;

/// How relays are used.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// How long to wait for the first relay.
    pub connect: Duration,
    /// How long an event is tried, across reconnects.
    pub publish: Duration,
    /// The pause before a lost connection is tried again.
    pub reconnect: Duration,
    /// Events that wait to be taken before the relays' readers are held up.
    pub waiting: usize,
    /// Ids that are remembered, so that each event counts once.
    pub remembered: usize,
    /// How far into the past to ask: for peers whose clocks are behind.
    pub back: Duration,
    /// How long to wait for what a relay says of its limits; zero: it is not asked.
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
    /// None was given.
    #[error("no relay was given; name at least one as ws:// or wss://")]
    None,
    /// An address that is none.
    #[error("{url:?} is no address of a relay ({reason}); write it as ws:// or wss://")]
    Url {
        /// The address.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// None of them answered.
    #[error("none of {count} relays took the subscription within {} s; check the addresses", waited.as_secs())]
    Unreachable {
        /// How many were tried.
        count: usize,
        /// How long.
        waited: Duration,
    },
}

/// Connections to one or more relays. Clones share them; the last one dropped ends them.
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
    behind: AtomicUsize,
    /// Until when nothing goes to it, and how long the next pause would be.
    pause: Mutex<(Instant, Duration)>,
}

impl Relays {
    /// Connects and subscribes to events of these kinds that are addressed to `keys`; returns once one
    /// relay has taken the subscription. Events whose signatures are good arrive by the channel, each once.
    pub async fn open(
        urls: &[String],
        keys: &Keys,
        kinds: impl IntoIterator<Item = u16>,
        options: &RelayOptions,
    ) -> Result<(Self, mpsc::Receiver<Event>), RelaysError> {
        let urls = parse(urls)?;
        let (taken, events) = mpsc::channel(options.waiting.max(1));
        let kinds: BTreeSet<u16> = kinds.into_iter().collect();
        let since = Timestamp::now() - options.back.as_secs();
        let filter = Filter::new()
            .kinds(kinds.iter().map(|&kind| Kind::from_u16(kind)))
            .pubkey(keys.public_key())
            .since(since);
        let gate = Gate {
            us: keys.public_key(),
            kinds,
            seen: Mutex::new(Recent::new(options.remembered)),
            taken,
        };
        let client = Client::builder()
            .signer(keys.clone())
            .admit_policy(gate)
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
            // Before it connects: a relay may be faster than the task.
            let news = relay.notifications();
            let watch = watch(
                relay.clone(),
                news,
                id.clone(),
                filter.clone(),
                ready.clone(),
            );
            watchers.push(tokio::spawn(watch).abort_handle());
            relay.connect();
            relays.push(Arc::new(OneRelay {
                relay,
                behind: AtomicUsize::new(0),
                pause: Mutex::new((Instant::now(), PAUSE.0)),
            }));
        }
        let mut shared = Shared {
            client,
            relays,
            publish: options.publish,
            limit: 0,
            watchers,
        };
        let (limit, heard) = tokio::join!(
            limit(&urls, options.limits),
            tokio::time::timeout(options.connect, first.recv())
        );
        if heard.is_err() {
            return Err(RelaysError::Unreachable {
                count: urls.len(),
                waited: options.connect,
            });
        }
        shared.limit = limit;
        Ok((Self(Arc::new(shared)), events))
    }

    /// Bytes of the largest event that all relays say they take, and 65,536 for those that
    /// do not say.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Publishes to all; returns when the first has it, or none took it. A relay that asks for a
    /// pause gets it, one that is away is waited for.
    ///
    /// It is begun here and now, so that what is published first is first at each relay, unless that
    /// wants it once more.
    pub fn publish(&self, event: Event) -> impl Future<Output = Outcome> + Send + use<> {
        let event = Arc::new(event);
        let deadline = Instant::now() + self.0.publish;
        let (tell, mut told) = mpsc::channel(self.0.relays.len());
        for relay in &self.0.relays {
            let (relay, event, tell) = (relay.clone(), event.clone(), tell.clone());
            let mut publishing = Box::pin(async move {
                let outcome = relay.publish(&event, deadline).await;
                // Nobody waits any more for the slower ones.
                let _ = tell.send(outcome).await;
            });
            // The task that goes on with it is woken anew.
            let begun = publishing
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            if begun.is_pending() {
                tokio::spawn(publishing);
            }
        }
        drop(tell);
        async move {
            let mut worst = Outcome::Lost {
                reason: "no relay answered".to_owned(),
            };
            while let Some(outcome) = told.recv().await {
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
    async fn publish(&self, event: &Event, deadline: Instant) -> Outcome {
        if self.behind.fetch_add(1, Ordering::Relaxed) >= BEHIND_MAX {
            self.behind.fetch_sub(1, Ordering::Relaxed);
            let reason = format!("{BEHIND_MAX} events wait for {}", self.relay.url());
            return Outcome::Lost { reason };
        }
        let outcome = timeout_at(deadline, self.insist(event)).await;
        self.behind.fetch_sub(1, Ordering::Relaxed);
        outcome.unwrap_or_else(|_| Outcome::Lost {
            reason: format!("{} did not answer in time", self.relay.url()),
        })
    }

    /// Tries until there is a word on it. The same event again is no second event.
    async fn insist(&self, event: &Event) -> Outcome {
        loop {
            let until = self.pause().0;
            if until > Instant::now() {
                sleep_until(until).await;
            }
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
            tracing::debug!(url = %self.relay.url(), reason, "an event is tried again");
            self.back_off();
        }
    }

    fn accepted(&self) -> Outcome {
        self.pause().1 = PAUSE.0;
        Outcome::Accepted
    }

    /// One pause for all that wait for this relay: many together would hit it again at once.
    fn back_off(&self) {
        let now = Instant::now();
        let mut pause = self.pause();
        if pause.0 <= now {
            *pause = (now + pause.1, (pause.1 * 2).min(PAUSE.1));
        }
    }

    fn pause(&self) -> MutexGuard<'_, (Instant, Duration)> {
        self.pause.lock().unwrap_or_else(PoisonError::into_inner)
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
    let wrong = |reason: String| RelaysError::Url {
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
    added.map_err(|error| wrong(error.to_string()))?;
    let relay = pool.relay(url.clone()).await;
    relay.map_err(|error| wrong(error.to_string()))
}

/// Tells when the subscription stands, and makes it again where the relay ended it.
async fn watch(
    relay: Relay,
    mut news: broadcast::Receiver<RelayNotification>,
    id: SubscriptionId,
    filter: Filter,
    ready: mpsc::Sender<()>,
) {
    let mut pause = PAUSE.0;
    loop {
        let message = match news.recv().await {
            Ok(RelayNotification::Message { message }) => message,
            Ok(RelayNotification::Shutdown) | Err(broadcast::error::RecvError::Closed) => return,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => continue,
        };
        match message {
            RelayMessage::EndOfStoredEvents(which) if *which == id => {
                pause = PAUSE.0;
                // Only the first word is waited for.
                let _ = ready.try_send(());
            }
            RelayMessage::Closed {
                subscription_id,
                message,
            } if *subscription_id == id => {
                // Authentication is under way, and it subscribes again.
                if message.starts_with("auth-required") {
                    continue;
                }
                tracing::warn!(url = %relay.url(), %message, "the relay ended the subscription");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
                let options = SubscribeOptions::default();
                let again = relay.subscribe_with_id(id.clone(), filter.clone(), options);
                if let Err(error) = again.await {
                    tracing::warn!(url = %relay.url(), %error, "no subscription");
                }
            }
            _ => {}
        }
    }
}

/// The smallest limit of all relays.
async fn limit(urls: &[RelayUrl], patience: Duration) -> usize {
    if patience.is_zero() {
        return EVENT_MAX;
    }
    let mut asked = JoinSet::new();
    for url in urls {
        let url = url.clone();
        asked.spawn(async move { fetch_limits(&url, patience).await });
    }
    let mut least = usize::MAX;
    while let Some(limits) = asked.join_next().await {
        let event = limits.ok().flatten().and_then(|limits| limits.event());
        least = least.min(event.unwrap_or(EVENT_MAX));
    }
    least
}
