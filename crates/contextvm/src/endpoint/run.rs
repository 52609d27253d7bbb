//! A machine with its tasks: one reads what the relays send, one signs and publishes, one has the clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use breakbulk_link::Sent;
use breakbulk_net::fresh_seed;
use breakbulk_net::nostr::{self, Outcome, RelayOptions, Relays, fresh_token};
use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::{AbortHandle, spawn_blocking};

use super::envelope::{self, Draft};
use super::error::{OpenError, SendError};
use super::keys::Keys;
use crate::machine::{
    Arrival, Config, Encryption, Event, InboundMessage, Machine, Memory, Prepared, PublicKey,
    Publish, Role, Seal, SendId, Stats,
};

/// An event is what it says and the second in which it says it: the same notification twice in a
/// second, or by a process that was started again, would be one event, and the second is dropped by
/// whoever has the first. So what is small enough to be said twice has a tag of its own.
const ONCE: &str = "once";

/// Far below what any relay takes; larger messages are planned to the byte, and repeat nothing.
const REPEATABLE: usize = 1000;

/// Events that are with the relays at once, for all peers together.
const FLYING: usize = 128;

/// A larger message is read where it holds up nobody.
const LARGE: usize = 64 << 10;

/// Without a deadline the clock looks up this often; nothing depends on it.
const IDLE: Duration = Duration::from_secs(3600);

/// Clones share it; the last one dropped ends it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    shared: Arc<Shared>,
    _tasks: Arc<Tasks>,
}

struct Shared {
    machine: Mutex<Machine>,
    keys: Keys,
    add_tokens: bool,
    memory: Arc<dyn Memory>,
    /// There may be something to publish.
    outbound: Notify,
    /// A deadline may have moved.
    clock: Notify,
    /// Something happened.
    news: Notify,
    /// Something of ours ended.
    settled: Notify,
    closed: AtomicBool,
}

struct Tasks(Vec<AbortHandle>, Arc<Shared>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.1.close();
        for task in &self.0 {
            task.abort();
        }
    }
}

/// What an endpoint is opened with.
pub(crate) struct Setup {
    pub(crate) role: Role,
    pub(crate) keys: Keys,
    pub(crate) relays: Vec<String>,
    pub(crate) config: Config,
    pub(crate) relay_options: RelayOptions,
    pub(crate) memory: Arc<dyn Memory>,
}

impl Endpoint {
    pub(crate) async fn open(setup: Setup) -> Result<Self, OpenError> {
        let Setup {
            role,
            keys,
            relays,
            config,
            relay_options,
            memory,
        } = setup;
        let kinds = listened_for(config.encryption);
        let opened = Relays::open(&relays, keys.as_nostr(), kinds, &relay_options);
        let (relays, events) = opened.await?;
        let learned = match role {
            Role::Client { server } => memory.recall(&server),
            Role::Server => None,
        };
        let add_tokens = config.add_tokens;
        let mut machine = Machine::new(role, config, learned, fresh_seed(), now());
        machine.set_event_max(relays.limit());
        let shared = Arc::new(Shared {
            machine: Mutex::new(machine),
            keys,
            add_tokens,
            memory,
            outbound: Notify::new(),
            clock: Notify::new(),
            news: Notify::new(),
            settled: Notify::new(),
            closed: AtomicBool::new(false),
        });
        let tasks = vec![
            tokio::spawn(read(shared.clone(), events)).abort_handle(),
            tokio::spawn(write(shared.clone(), relays)).abort_handle(),
            tokio::spawn(keep_time(shared.clone())).abort_handle(),
        ];
        Ok(Self {
            _tasks: Arc::new(Tasks(tasks, shared.clone())),
            shared,
        })
    }

    pub(crate) async fn send(&self, to: PublicKey, text: Bytes) -> Result<SendId, SendError> {
        let token = self.shared.add_tokens.then(fresh_token);
        let message = prepare(text, token).await?;
        self.room(&to, message.bytes.len()).await;
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(SendError::Closed);
        }
        let sent = self.shared.lock().send(now(), to, message);
        self.shared.touched();
        Ok(sent?)
    }

    /// Waits while too much is on its way to a peer already.
    async fn room(&self, to: &PublicKey, bytes: usize) {
        let room = || self.shared.lock().has_room(to, bytes);
        self.until(room).await;
    }

    /// The next message; all other events are dropped. For one caller at a time.
    pub(crate) async fn message(&self) -> Option<InboundMessage> {
        loop {
            if let Event::Message(message) = self.event().await? {
                return Some(message);
            }
        }
    }

    /// The next event; `None` once the endpoint is closed and all was told. For one caller at a time.
    pub(crate) async fn event(&self) -> Option<Event> {
        loop {
            let event = self.shared.lock().poll_event();
            match event {
                Some(Event::Learned { peer, learned }) => {
                    self.shared.memory.keep(&peer, learned);
                    return Some(Event::Learned { peer, learned });
                }
                Some(event) => return Some(event),
                None if self.shared.closed.load(Ordering::Acquire) => {
                    // Whoever else waits must see it too.
                    self.shared.news.notify_one();
                    return None;
                }
                None => self.shared.news.notified().await,
            }
        }
    }

    /// Waits until nothing of ours is on its way out any more.
    pub(crate) async fn drained(&self) {
        self.until(|| self.shared.lock().is_drained()).await;
    }

    /// Waits until something holds, or the endpoint is closed.
    async fn until(&self, holds: impl Fn() -> bool) {
        loop {
            let settled = self.shared.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if self.shared.closed.load(Ordering::Acquire) || holds() {
                return;
            }
            settled.await;
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.shared.lock().stats()
    }

    pub(crate) fn public_key(&self) -> PublicKey {
        self.shared.keys.public_key()
    }

    pub(crate) fn close(&self) {
        self.shared.close();
    }
}

/// The kinds of events that may be for us. Bare ones are among them even where they are refused: then
/// their sender is told.
fn listened_for(encryption: Encryption) -> Vec<u16> {
    let sealed = [Seal::Persistent, Seal::Ephemeral];
    let wraps = sealed
        .into_iter()
        .filter(|_| encryption != Encryption::Disabled);
    let seals = std::iter::once(Seal::Plain).chain(wraps);
    seals.map(Seal::kind).collect()
}

async fn prepare(text: Bytes, token: Option<String>) -> Result<Prepared, SendError> {
    if text.len() < LARGE {
        return Ok(Prepared::outgoing(text, token.as_deref())?);
    }
    let prepared = spawn_blocking(move || Prepared::outgoing(text, token.as_deref())).await;
    prepared.map_err(|_| SendError::Closed)?.map_err(Into::into)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.outbound.notify_one();
        self.news.notify_one();
        self.settled.notify_waiters();
    }

    /// After anything was done to the machine.
    fn touched(self: &Arc<Self>) {
        self.look_around();
        self.outbound.notify_one();
    }

    /// The same where what may be published was taken already.
    fn look_around(self: &Arc<Self>) {
        loop {
            let job = self.lock().poll_plan();
            let Some((peer, job)) = job else {
                break;
            };
            let shared = self.clone();
            tokio::spawn(async move {
                if let Ok(planned) = spawn_blocking(move || job.run()).await {
                    shared.lock().handle_planned(now(), peer, planned);
                    shared.touched();
                }
            });
        }
        self.clock.notify_one();
        self.news.notify_one();
        self.settled.notify_waiters();
    }
}

async fn read(shared: Arc<Shared>, mut events: mpsc::Receiver<nostr::Event>) {
    while let Some(event) = events.recv().await {
        let opened = if event.kind.as_u16() == Seal::Plain.kind() {
            envelope::open(&shared.keys, event)
        } else {
            // Decrypting a large one takes a while.
            let keys = shared.keys.clone();
            match spawn_blocking(move || envelope::open(&keys, event)).await {
                Ok(opened) => opened,
                Err(_) => return,
            }
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                tracing::debug!(%error, "an event was dropped");
                continue;
            }
        };
        let arrival = Arrival {
            from: opened.author,
            id: opened.id,
            tags: opened.tags,
            content: opened.content.into(),
            seal: opened.seal,
        };
        {
            let mut machine = shared.lock();
            if !machine.knows(&arrival.from)
                && let Some(learned) = shared.memory.recall(&arrival.from)
            {
                machine.recall(now(), arrival.from, learned);
            }
            machine.handle_event(now(), arrival);
        }
        shared.touched();
    }
    shared.close();
}

async fn write(shared: Arc<Shared>, relays: Relays) {
    let places = Arc::new(Semaphore::new(FLYING));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let publish = shared.lock().poll_publish(now());
        // Making a frame may bring news, such as a message that does not fit.
        shared.look_around();
        let Some(publish) = publish else {
            drop(place);
            shared.outbound.notified().await;
            continue;
        };
        let id = publish.id;
        let Some(event) = signed(&shared, publish).await else {
            continue;
        };
        // In this task, one after the other: messages keep their order.
        let publishing = relays.publish(event);
        let shared = shared.clone();
        tokio::spawn(async move {
            let outcome = match publishing.await {
                Outcome::Accepted => Sent::Ok,
                Outcome::TooLarge { reason } => {
                    tracing::info!(reason, "a relay found an event too large");
                    Sent::TooLarge
                }
                Outcome::Lost { reason } => {
                    tracing::warn!(reason, "an event was not published");
                    Sent::Failed
                }
            };
            shared.lock().handle_sent(now(), id, outcome);
            shared.touched();
            drop(place);
        });
    }
}

/// Signs off the machine's lock: many events at once are work for another thread.
async fn signed(shared: &Arc<Shared>, publish: Publish) -> Option<nostr::Event> {
    let (id, keys) = (publish.id, shared.keys.clone());
    let mut tags = publish.tags;
    if publish.content.len() <= REPEATABLE {
        tags.push(vec![ONCE.to_owned(), fresh_token()]);
    }
    let draft = Draft {
        to: publish.to,
        content: publish.content,
        tags,
        seal: publish.seal,
    };
    let signed = spawn_blocking(move || envelope::sign(&keys, draft)).await;
    match signed {
        Ok(Ok(signed)) => {
            shared.lock().handle_signed(id, signed.inner);
            Some(signed.event)
        }
        other => {
            if let Ok(Err(error)) = other {
                tracing::error!(%error, "an event could not be made");
            }
            shared.lock().handle_sent(now(), id, Sent::Failed);
            shared.touched();
            None
        }
    }
}

async fn keep_time(shared: Arc<Shared>) {
    loop {
        let due = shared.lock().poll_timeout();
        let due = due.unwrap_or_else(|| now() + IDLE);
        tokio::select! {
            () = tokio::time::sleep_until(due.into()) => {
                shared.lock().handle_timeout(now());
                shared.touched();
            }
            () = shared.clock.notified() => {}
        }
    }
}

/// The time, which a test may have paused.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
