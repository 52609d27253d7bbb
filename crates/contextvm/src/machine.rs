//! The state machine of a client or a server: one link per public key, open requests and their
//! responses, which keys are allowed, and which peers are evicted when the table is full.
//!
//! It is used like a link: the caller passes in received events, the outcome of each publication and
//! the time, and polls for events to publish and for what happened. It has no sockets, no clock and no
//! secret key.

mod cancel;
mod config;
mod failure;
mod heard;
mod ids;
mod incoming;
mod learned;
mod outgoing;
mod peer;
mod prepared;
mod requests;
mod seal;
mod shared;
mod stored;
mod tags;
mod types;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use breakbulk_link::{PlanJob, Planned, Random, Sent};

pub use config::{Config, EVENT_MAX, Encryption, Limits, Timeouts, Wraps};
pub use failure::Failure;
pub use heard::Heard;
use heard::{HeardEvents, Verdict};
pub use ids::{EventId, NotHex, PublicKey};
pub use learned::{Forgetful, Learned, Memory};
use peer::{InFlight, Peer};
pub use prepared::{Kind, NotJsonRpc, Prepared};
#[cfg(feature = "net")]
pub(crate) use seal::MESSAGE_KIND;
pub use seal::Seal;
use shared::Shared;
pub use stored::sort_stored;
pub use types::{
    Arrival, Event, InboundMessage, Publish, PublishId, Refused, Role, SendId, Stats, Way,
};

/// How often at most the log and a peer are told that an event is refused, for each reason: anybody can
/// send any number of them.
const TELL_REFUSED: Duration = Duration::from_secs(1);

/// The state machine of a client or a server.
///
/// A caller on another runtime must do what the endpoints of the feature `net` do (`endpoint/run.rs`):
///
/// - Sign each [`Publish`], encrypt it as its [`Seal`] says, call [`Machine::handle_signed`] with the id
///   of the inner event before it is published, and [`Machine::handle_sent`] with the outcome. Without
///   the first no response matches its request; without the second nothing more goes out.
/// - Add a tag with a random value to small events (`once`, up to 1,000 bytes of text). An event's id is
///   a hash of its content and the second it was made in: without the tag two equal notifications in one
///   second have one id, and relays drop the second one.
/// - Give each request a fresh, unguessable progress token ([`Prepared::outgoing`]), unless it has none of
///   its own and [`Machine::adds_token`] says no. The machine does not read [`Config::add_tokens`], and a
///   request without a token cannot be sent in chunks, nor its response.
/// - Serve [`Machine::poll_plan`] after every call, [`Machine::poll_publish`] among them, or set
///   [`Config::plan_elsewhere`] to `None`. Otherwise a message of that size or more waits for ever.
/// - Verify the id and the signature of every received event, the inner one of a gift wrap too, and pass
///   only events that are addressed to this side's key. The machine believes [`Arrival::from`].
/// - Bring events that a relay had stored into their order ([`sort_stored`]): relays send them newest first, and the
///   end of a transfer before its pieces fails it.
/// - Keep what [`Machine::handle_event`] returns before anything else is done, and give it to
///   [`Machine::restore`] after a restart, or call [`Machine::refuse_before`] with the time of the start.
///   Otherwise a relay can repeat what it recorded in the last minutes before the restart.
pub struct Machine {
    role: Role,
    shared: Shared,
    peers: BTreeMap<PublicKey, Peer>,
    heard: HeardEvents,
    /// When an event was last refused aloud, by the reason.
    told: BTreeMap<&'static str, Instant>,
    in_flight: BTreeMap<PublishId, InFlight>,
    /// Peers whose links may have a frame to send, served round-robin.
    ready: VecDeque<PublicKey>,
    is_ready: BTreeSet<PublicKey>,
    /// Peers whose links may have a [`PlanJob`].
    to_plan: BTreeSet<PublicKey>,
    next_publish: u64,
    next_peer: u64,
    ignored: u64,
    evicted: u64,
}

impl Machine {
    /// A machine whose randomness comes from `seed` alone. `learned`: what a client knows about its
    /// server from an earlier connection.
    pub fn new(
        role: Role,
        config: Config,
        learned: Option<Learned>,
        seed: [u8; 32],
        now: Instant,
    ) -> Self {
        let mut machine = Self {
            role,
            heard: HeardEvents::new(config.window.as_secs(), config.limits.remembered),
            told: BTreeMap::new(),
            shared: Shared::new(role, config, Random::new(seed)),
            peers: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            ready: VecDeque::new(),
            is_ready: BTreeSet::new(),
            to_plan: BTreeSet::new(),
            next_publish: 0,
            next_peer: 0,
            ignored: 0,
            evicted: 0,
        };
        if let Role::Client { server } = role {
            machine.add_peer(now, server, learned);
        }
        machine
    }

    /// Lowers the event size limit to what the relays announce; applies to messages not yet begun.
    pub fn set_event_max(&mut self, bytes: usize) {
        self.shared.config.event_max = self.shared.config.event_max.min(bytes);
        self.refresh_caps();
    }

    /// Queues a message for sending.
    pub fn send(
        &mut self,
        now: Instant,
        to: PublicKey,
        message: Prepared,
    ) -> Result<SendId, Refused> {
        let Some(peer) = self.peers.get_mut(&to) else {
            return Err(Refused::NoSuchPeer(to.to_hex()));
        };
        let id = self.shared.next_send();
        peer.send(now, message, id, &mut self.shared)?;
        self.mark_ready(to);
        Ok(id)
    }

    /// Whether a request to this peer is to get a progress token if it has none. A server that announced
    /// streams (CEP-41) opens one for a tool call with a token, and its tool sends its output there: a call
    /// that did not ask for it gets none, unless the call itself can only go in chunks.
    pub fn adds_token(&self, to: &PublicKey, message: &Prepared) -> bool {
        let learned = self.peers.get(to).and_then(|peer| peer.learned);
        let streams = learned.is_some_and(|learned| learned.streams);
        // In a gift wrap a text takes up to twice its bytes.
        let fits = message.bytes.len() <= self.shared.config.cut_above / 2;
        !(streams && message.calls_tool() && fits)
    }

    /// Whether the queue to this peer has room for a message of `bytes` bytes. An empty queue always has.
    pub fn has_room(&self, to: &PublicKey, bytes: usize) -> bool {
        let limits = &self.shared.config.limits;
        self.peers.get(to).is_none_or(|peer| {
            let (count, queued) = peer.backlog();
            count == 0
                || count < limits.queued && queued.saturating_add(bytes) <= limits.queued_bytes
        })
    }

    /// Handles an event from a relay. Returns what a store must keep, so that the event is not heard
    /// again after a restart; `None` if it was ignored.
    pub fn handle_event(&mut self, now: Instant, arrival: Arrival) -> Option<Heard> {
        if !self.is_allowed(&arrival.from) {
            self.ignored += 1;
            if self.role == Role::Server {
                let key = arrival.from;
                self.refuse(now, &arrival, &Failure::NotAllowed { key });
            }
            return None;
        }
        let heard = Heard {
            author: arrival.from,
            id: arrival.id,
            created_at: arrival.created_at,
        };
        match self.heard.insert(arrival.received_at, heard) {
            Verdict::New => self.handle_new(now, arrival),
            Verdict::Duplicate => {
                self.ignored += 1;
                return None;
            }
            Verdict::TooOld | Verdict::TooNew => {
                self.ignored += 1;
                let failure = Failure::WrongTime {
                    made: arrival.created_at,
                    ours: arrival.received_at,
                    window: self.shared.config.window,
                };
                self.refuse(now, &arrival, &failure);
                return None;
            }
        }
        Some(heard)
    }

    /// Takes an event that was heard before a restart. `received_at` is the time, in Unix seconds.
    pub fn restore(&mut self, received_at: u64, heard: Heard) {
        self.heard.restore(received_at, heard);
    }

    /// All that a store must keep, in the order in which [`restore`](Self::restore) takes it.
    pub fn heard(&self) -> impl Iterator<Item = Heard> {
        self.heard.all()
    }

    /// Refuses events that were made before this time, in Unix seconds: for a key whose heard events
    /// are not kept.
    pub fn refuse_before(&mut self, time: u64) {
        self.heard.refuse_before(time);
    }

    /// Tells the log, and the author of a request, that an event is refused; not for each of many.
    fn refuse(&mut self, now: Instant, arrival: &Arrival, failure: &Failure) {
        let told = self.told.get(failure.reason());
        if told.is_some_and(|told| now.saturating_duration_since(*told) < TELL_REFUSED) {
            return;
        }
        self.told.insert(failure.reason(), now);
        tracing::warn!(peer = %arrival.from, event = %arrival.id, "event refused: {failure}");
        if self.role == Role::Server {
            self.shared.refuse_request(arrival, failure);
        }
    }

    fn handle_new(&mut self, now: Instant, arrival: Arrival) {
        let sealed = arrival.seal != Seal::Plain;
        let refused = match self.shared.config.encryption {
            Encryption::Required if !sealed => Some(Failure::NotEncrypted),
            Encryption::Disabled if sealed => Some(Failure::Encrypted),
            _ => None,
        };
        if let Some(failure) = refused {
            self.ignored += 1;
            return self.refuse(now, &arrival, &failure);
        }
        let from = arrival.from;
        if !self.peers.contains_key(&from) {
            if !self.make_room(now, &from) {
                self.shared.refuse_request(&arrival, &Failure::Busy);
                return;
            }
            self.add_peer(now, from, None);
        }
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.receive(now, arrival, &mut self.shared);
        }
        self.mark_ready(from);
    }

    /// Gives a server what it learned about a peer in an earlier run. Ignored once the peer has sent
    /// an event.
    pub fn recall(&mut self, now: Instant, peer: PublicKey, learned: Learned) {
        if self.role == Role::Server && !self.peers.contains_key(&peer) {
            if !self.is_allowed(&peer) || !self.make_room(now, &peer) {
                return;
            }
            self.add_peer(now, peer, Some(learned));
        }
    }

    /// Whether no message is queued or in flight.
    pub fn is_drained(&self) -> bool {
        self.shared.notices.is_empty() && self.peers.values().all(Peer::is_drained)
    }

    /// Whether this peer is in the table.
    pub fn knows(&self, peer: &PublicKey) -> bool {
        self.peers.contains_key(peer)
    }

    /// The next event to publish, if any may go out now.
    pub fn poll_publish(&mut self, now: Instant) -> Option<Publish> {
        let id = PublishId(self.next_publish + 1);
        if let Some(notice) = self.shared.notices.pop_front() {
            self.next_publish += 1;
            return Some(Publish { id, ..notice });
        }
        while let Some(key) = self.ready.pop_front() {
            self.is_ready.remove(&key);
            // A message that is now first in its lane may have to be planned before it is cut.
            self.to_plan.insert(key);
            let Some(peer) = self.peers.get_mut(&key) else {
                continue;
            };
            let made = peer.transmit(now, id, &mut self.shared);
            if let Some((publish, in_flight)) = made {
                self.next_publish += 1;
                self.in_flight.insert(id, in_flight);
                self.mark_ready(key);
                return Some(publish);
            }
        }
        None
    }

    /// Records the id of a signed event, the inner one of a gift wrap: responses refer to it.
    pub fn handle_signed(&mut self, publish: PublishId, event: EventId) {
        if let Some(in_flight) = self.in_flight.get(&publish)
            && let Some(peer) = self.peers.get_mut(&in_flight.peer)
            && peer.serial == in_flight.serial
        {
            peer.signed(in_flight, event);
        }
    }

    /// Records the outcome of a publication.
    pub fn handle_sent(&mut self, now: Instant, publish: PublishId, outcome: Sent) {
        let Some(in_flight) = self.in_flight.remove(&publish) else {
            return;
        };
        let key = in_flight.peer;
        if let Some(peer) = self.peers.get_mut(&key)
            && peer.serial == in_flight.serial
        {
            peer.sent(now, &in_flight, outcome, &mut self.shared);
            self.mark_ready(key);
        }
    }

    /// Planning work for a large message, which may run on another thread; pass its result to
    /// [`handle_planned`](Self::handle_planned).
    pub fn poll_plan(&mut self) -> Option<(PublicKey, PlanJob)> {
        while let Some(key) = self.to_plan.pop_first() {
            if let Some(peer) = self.peers.get_mut(&key)
                && let Some(job) = peer.link.poll_plan()
            {
                self.to_plan.insert(key);
                return Some((key, job));
            }
        }
        None
    }

    /// Takes the result of a [`PlanJob`].
    pub fn handle_planned(&mut self, now: Instant, key: PublicKey, planned: Planned) {
        if let Some(peer) = self.peers.get_mut(&key) {
            peer.link.handle_planned(planned);
            peer.handle_link_events(now, None, &mut self.shared);
            self.mark_ready(key);
        }
    }

    /// The next thing that happened; poll until `None` after every other call.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.peers.values().filter_map(Peer::next_timeout).min()
    }

    /// Ends the requests and transfers whose deadlines have passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due = |peer: &Peer| peer.next_timeout().is_some_and(|at| at <= now);
        let due: Vec<PublicKey> = self
            .peers
            .iter()
            .filter(|(_, peer)| due(peer))
            .map(|(key, _)| *key)
            .collect();
        for key in due {
            if let Some(peer) = self.peers.get_mut(&key) {
                peer.timeout(now, &mut self.shared);
            }
            self.mark_ready(key);
        }
    }

    /// Figures for tests and logs.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            peers: self.peers.len(),
            memory: self.shared.budget.used(),
            ignored: self.ignored,
            evicted: self.evicted,
            lost: self.shared.lost,
            ..Stats::default()
        };
        for peer in self.peers.values() {
            peer.count(&mut stats);
        }
        stats
    }

    /// How long an incoming transfer may take.
    pub fn transfer_timeout(&self) -> Duration {
        self.shared.config.timeouts.transfer
    }

    fn is_allowed(&self, key: &PublicKey) -> bool {
        match self.role {
            Role::Client { server } => *key == server,
            Role::Server => match &self.shared.config.allowed {
                Some(allowed) => allowed.contains(key),
                None => true,
            },
        }
    }

    /// Whether this key has a share of the table that strangers cannot take.
    fn is_known(&self, key: &PublicKey) -> bool {
        let config = &self.shared.config;
        config.allowed.is_some() || config.known.contains(key)
    }

    fn add_peer(&mut self, now: Instant, key: PublicKey, learned: Option<Learned>) {
        self.next_peer += 1;
        let peer = Peer::new(key, self.next_peer, learned, now, &mut self.shared);
        self.peers.insert(key, peer);
    }

    /// Evicts an idle peer if the table is full for this newcomer: first those that are not known, then
    /// those that never sent a whole message, then the one idle longest. False: every peer that it could
    /// replace has open requests or messages.
    fn make_room(&mut self, now: Instant, newcomer: &PublicKey) -> bool {
        let most = self.shared.config.limits.peers.max(1);
        // A quarter is kept for known keys.
        let crowded = !self.is_known(newcomer) && {
            let strangers = self.peers.keys().filter(|key| !self.is_known(key));
            strangers.count() >= most - most / 4
        };
        if self.peers.len() < most && !crowded {
            return true;
        }
        let idle = self
            .peers
            .values()
            .filter(|peer| peer.is_evictable() && !(crowded && self.is_known(&peer.key)));
        let Some(key) = idle
            .min_by_key(|peer| (self.is_known(&peer.key), peer.sent_message, peer.last))
            .map(|peer| peer.key)
        else {
            return false;
        };
        if let Some(peer) = self.peers.remove(&key) {
            peer.abort_unfinished(now, &mut self.shared);
        }
        self.evicted += 1;
        self.shared.push_event(Event::Gone { peer: key });
        true
    }

    /// Schedules a peer whose state changed, and applies a changed cap to all links.
    fn mark_ready(&mut self, key: PublicKey) {
        if self.is_ready.insert(key) {
            self.ready.push_back(key);
        }
        self.to_plan.insert(key);
        if std::mem::take(&mut self.shared.caps_changed) {
            self.refresh_caps();
        }
    }

    fn refresh_caps(&mut self) {
        for peer in self.peers.values_mut() {
            peer.refresh_cap(&self.shared);
        }
    }
}
