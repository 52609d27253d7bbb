//! The tasks that run a machine on relays: one receives events, one signs and publishes, one runs the
//! timers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use breakbulk_link::Sent;
use breakbulk_link::lock;
use breakbulk_net::fresh_seed;
use breakbulk_net::nostr::{self, Outcome, RelayOptions, Relays, fresh_token};
use breakbulk_net::now;
use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::{AbortHandle, spawn_blocking};

use super::config::Journal;
use super::envelope::{self, Draft, Opened};
use super::error::{OpenError, SendError};
use super::keys::Keys;
use crate::machine::{
    Arrival, Config, Encryption, Event, InboundMessage, Machine, Memory, Prepared, PublicKey,
    Publish, Role, Seal, SendId, Stats, sort_stored,
};

/// A tag with a random value that makes small events unique. An event's id is a hash of its content
/// and the second in which it was made: the same notification twice in a second would have one id,
/// and relays and receivers would drop the second as a duplicate.
const UNIQUE_TAG: &str = "once";

/// Events up to this size get the tag: far below any relay's limit. Larger frames are planned to the
/// byte, and do not repeat.
const UNIQUE_TAG_MAX: usize = 1000;

/// Published events that await a relay's confirmation at once, for all peers together.
const IN_FLIGHT_MAX: usize = 128;

/// Messages at least this large are parsed on a blocking thread.
const LARGE: usize = 64 << 10;

/// How long the timer task sleeps when there is no deadline; nothing depends on it.
const IDLE: Duration = Duration::from_secs(3600);

/// A machine and its tasks. Clones share them; dropping the last one closes the endpoint.
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
    journal: Option<Arc<dyn Journal>>,
    /// There may be something to publish.
    outbound: Notify,
    /// A deadline may have moved.
    clock: Notify,
    /// There may be an event for the application.
    events_ready: Notify,
    /// The queue may have shrunk.
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
    pub(crate) journal: Option<Arc<dyn Journal>>,
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
            journal,
        } = setup;
        let kinds = subscribed_kinds(role, config.encryption);
        let opened = Relays::open(&relays, keys.as_nostr(), kinds, &relay_options);
        let (relays, events) = opened.await?;
        let learned = match role {
            Role::Client { server } => memory.recall(&server),
            Role::Server => None,
        };
        let add_tokens = config.add_tokens;
        let mut machine = Machine::new(role, config, learned, fresh_seed(), now());
        machine.set_event_max(relays.limit());
        restore(&mut machine, role, journal.as_deref());
        let shared = Arc::new(Shared {
            machine: Mutex::new(machine),
            keys,
            add_tokens,
            memory,
            journal,
            outbound: Notify::new(),
            clock: Notify::new(),
            events_ready: Notify::new(),
            settled: Notify::new(),
            closed: AtomicBool::new(false),
        });
        let tasks = vec![
            tokio::spawn(read(shared.clone(), events)).abort_handle(),
            tokio::spawn(write(shared.clone(), relays)).abort_handle(),
            tokio::spawn(run_timers(shared.clone())).abort_handle(),
        ];
        Ok(Self {
            _tasks: Arc::new(Tasks(tasks, shared.clone())),
            shared,
        })
    }

    pub(crate) async fn send(&self, to: PublicKey, text: Bytes) -> Result<SendId, SendError> {
        let token = self.shared.add_tokens.then(fresh_token);
        let message = self.prepare(to, text, token).await?;
        self.wait_for_room(&to, message.bytes.len()).await;
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(SendError::Closed);
        }
        let sent = self.shared.lock().send(now(), to, message);
        self.shared.machine_changed();
        Ok(sent?)
    }

    async fn prepare(
        &self,
        to: PublicKey,
        text: Bytes,
        token: Option<String>,
    ) -> Result<Prepared, SendError> {
        let shared = self.shared.clone();
        let large = text.len() >= LARGE;
        let prepare = move || {
            let adds = |message: &Prepared| shared.lock().adds_token(&to, message);
            Prepared::outgoing_where(text, token.as_deref(), adds)
        };
        if !large {
            return Ok(prepare()?);
        }
        let prepared = spawn_blocking(prepare).await;
        prepared.map_err(|_| SendError::Closed)?.map_err(Into::into)
    }

    /// Waits until the queue to a peer has room.
    async fn wait_for_room(&self, to: &PublicKey, bytes: usize) {
        let has_room = || self.shared.lock().has_room(to, bytes);
        self.wait_until(has_room).await;
    }

    /// The next message; all other events are dropped. For one caller at a time.
    pub(crate) async fn message(&self) -> Option<InboundMessage> {
        loop {
            if let Event::Message(message) = self.event().await? {
                return Some(message);
            }
        }
    }

    /// The next event; `None` once the endpoint is closed and all were taken. For one caller at a time.
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
                    // Wake another waiting caller, which must see the end too.
                    self.shared.events_ready.notify_one();
                    return None;
                }
                None => self.shared.events_ready.notified().await,
            }
        }
    }

    /// Waits until no message is queued or in flight.
    pub(crate) async fn drained(&self) {
        self.wait_until(|| self.shared.lock().is_drained()).await;
    }

    /// Waits until a condition holds, or the endpoint is closed.
    async fn wait_until(&self, holds: impl Fn() -> bool) {
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

/// The kinds of events to subscribe to. A server gets those too that it refuses, so that their senders get
/// an error.
fn subscribed_kinds(role: Role, encryption: Encryption) -> Vec<u16> {
    let sealed = [Seal::Persistent, Seal::Ephemeral];
    let wraps = sealed
        .into_iter()
        .filter(|_| role == Role::Server || encryption != Encryption::Disabled);
    let seals = std::iter::once(Seal::Plain).chain(wraps);
    seals.map(Seal::kind).collect()
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Machine> {
        lock(&self.machine)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.outbound.notify_one();
        self.events_ready.notify_one();
        self.settled.notify_waiters();
    }

    /// Call after every change of the machine: wakes all tasks.
    fn machine_changed(self: &Arc<Self>) {
        self.run_plans_and_wake();
        self.outbound.notify_one();
    }

    /// The same without waking the publishing task, for that task itself.
    fn run_plans_and_wake(self: &Arc<Self>) {
        loop {
            let job = self.lock().poll_plan();
            let Some((peer, job)) = job else {
                break;
            };
            let shared = self.clone();
            tokio::spawn(async move {
                if let Ok(planned) = spawn_blocking(move || job.run()).await {
                    shared.lock().handle_planned(now(), peer, planned);
                    shared.machine_changed();
                }
            });
        }
        self.clock.notify_one();
        self.events_ready.notify_one();
        self.settled.notify_waiters();
    }
}

/// Tells a machine which events were heard before.
fn restore(machine: &mut Machine, role: Role, journal: Option<&dyn Journal>) {
    let now = unix_time();
    match journal.and_then(Journal::load) {
        Some(all) => {
            for heard in all {
                machine.restore(now, heard);
            }
        }
        // Without a journal a client accepts older events: its server's clock may be slow.
        None if role == Role::Server => machine.refuse_before(now),
        None => {}
    }
    if let Some(journal) = journal {
        journal.replace(machine.heard().collect());
    }
}

/// Our clock, in Unix seconds.
fn unix_time() -> u64 {
    nostr_sdk::Timestamp::now().as_secs()
}

async fn read(shared: Arc<Shared>, mut batches: mpsc::Receiver<nostr::Batch>) {
    while let Some(mut batch) = batches.recv().await {
        let mut arrivals = Vec::with_capacity(batch.events.len());
        for event in batch.events.drain(..) {
            let event_id = event.id;
            let opened = if event.kind.as_u16() == Seal::Plain.kind() {
                envelope::open(&shared.keys, event)
            } else {
                // Decrypting a large event would block the task.
                let keys = shared.keys.clone();
                match spawn_blocking(move || envelope::open(&keys, event)).await {
                    Ok(opened) => opened,
                    Err(_) => return,
                }
            };
            match opened {
                Ok(opened) => arrivals.push(arrival(opened)),
                Err(error) => tracing::debug!(%event_id, %error, "received event dropped"),
            }
        }
        if arrivals.len() > 1 {
            sort_stored(&mut arrivals);
        }
        for arrival in arrivals {
            handle(&shared, arrival);
            shared.machine_changed();
        }
    }
    shared.close();
}

fn arrival(opened: Opened) -> Arrival {
    Arrival {
        from: opened.author,
        id: opened.id,
        tags: opened.tags,
        content: opened.content.into(),
        seal: opened.seal,
        created_at: opened.created_at,
        received_at: unix_time(),
    }
}

fn handle(shared: &Shared, arrival: Arrival) {
    let mut machine = shared.lock();
    if !machine.knows(&arrival.from)
        && let Some(learned) = shared.memory.recall(&arrival.from)
    {
        machine.recall(now(), arrival.from, learned);
    }
    // Kept while the machine is locked, so that no task acts on an event before it is kept.
    if let Some(heard) = machine.handle_event(now(), arrival)
        && let Some(journal) = &shared.journal
        && journal.add(&heard)
    {
        journal.replace(machine.heard().collect());
    }
}

async fn write(shared: Arc<Shared>, relays: Relays) {
    let slots = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return;
        };
        let publish = shared.lock().poll_publish(now());
        // Making a frame may cause events, such as the failure of a message that does not fit.
        shared.run_plans_and_wake();
        let Some(publish) = publish else {
            drop(slot);
            shared.outbound.notified().await;
            continue;
        };
        let (id, peer) = (publish.id, publish.to);
        let Some(event) = signed(&shared, publish).await else {
            continue;
        };
        // `publish` is called in order, in this task; only the confirmation is awaited elsewhere.
        let publishing = relays.publish(event);
        let shared = shared.clone();
        tokio::spawn(async move {
            let outcome = match publishing.await {
                Outcome::Accepted => Sent::Ok,
                Outcome::TooLarge { reason } => {
                    tracing::info!(
                        %peer,
                        reason,
                        "a relay refused an event as too large; smaller pieces are tried once"
                    );
                    Sent::TooLarge
                }
                Outcome::Lost { reason } => {
                    tracing::warn!(%peer, reason, "no relay accepted an event");
                    Sent::Failed
                }
            };
            shared.lock().handle_sent(now(), id, outcome);
            shared.machine_changed();
            drop(slot);
        });
    }
}

/// Signs an event on a blocking thread, without holding the machine's lock.
async fn signed(shared: &Arc<Shared>, publish: Publish) -> Option<nostr::Event> {
    let (id, keys) = (publish.id, shared.keys.clone());
    let mut tags = publish.tags;
    if publish.content.len() <= UNIQUE_TAG_MAX {
        tags.push(vec![UNIQUE_TAG.to_owned(), fresh_token()]);
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
                tracing::error!(%error, "an event could not be signed or encrypted; its message fails");
            }
            shared.lock().handle_sent(now(), id, Sent::Failed);
            shared.machine_changed();
            None
        }
    }
}

async fn run_timers(shared: Arc<Shared>) {
    loop {
        let due = shared.lock().poll_timeout();
        let due = due.unwrap_or_else(|| now() + IDLE);
        tokio::select! {
            () = tokio::time::sleep_until(due.into()) => {
                shared.lock().handle_timeout(now());
                shared.machine_changed();
            }
            () = shared.clock.notified() => {}
        }
    }
}
