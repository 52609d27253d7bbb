//! The part that decides: one link per public key, what answers what, who may speak, who is too much.
//!
//! It has the poll shape of a link: feed it what arrives, what became of what it published, and the
//! time; take from it what to publish and what happened. It knows no socket, no clock, no secret key.

mod config;
mod desk;
mod failure;
mod ids;
mod incoming;
mod learned;
mod outgoing;
mod peer;
mod prepared;
mod requests;
mod seal;
mod tags;
mod types;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use breakbulk_link::{PlanJob, Planned, Random, Recent, Sent};

pub use config::{Config, EVENT_MAX, Encryption, Limits, Timeouts, Wraps};
use desk::Desk;
pub use failure::Failure;
pub use ids::{EventId, NotHex, PublicKey};
pub use learned::{Forgetful, Learned, Memory};
use peer::{InFlight, Peer};
pub use prepared::{Kind, NotJsonRpc, Prepared};
#[cfg(feature = "net")]
pub(crate) use seal::MESSAGE_KIND;
pub use seal::Seal;
pub use types::{
    Arrival, Event, InboundMessage, Publish, PublishId, Refused, Role, SendId, Stats, Way,
};

/// All that a client or a server does, without sockets, keys and clock.
pub struct Machine {
    role: Role,
    desk: Desk,
    peers: BTreeMap<PublicKey, Peer>,
    seen: Recent<EventId>,
    flying: BTreeMap<PublishId, InFlight>,
    /// Peers whose links may have a frame, in turns.
    ready: VecDeque<PublicKey>,
    is_ready: BTreeSet<PublicKey>,
    /// Peers whose links may have something to plan.
    to_plan: BTreeSet<PublicKey>,
    next_publish: u64,
    next_peer: u64,
    ignored: u64,
    evicted: u64,
}

impl Machine {
    /// A machine whose randomness comes from `seed` alone. `learned`: what a client knows of its
    /// server from earlier days.
    pub fn new(
        role: Role,
        config: Config,
        learned: Option<Learned>,
        seed: [u8; 32],
        now: Instant,
    ) -> Self {
        let mut machine = Self {
            role,
            seen: Recent::new(config.limits.remembered),
            desk: Desk::new(role, config, Random::new(seed)),
            peers: BTreeMap::new(),
            flying: BTreeMap::new(),
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

    /// What the relays take in one event, where they say it; counts for all that is not under way.
    pub fn set_event_max(&mut self, bytes: usize) {
        self.desk.config.event_max = self.desk.config.event_max.min(bytes);
        self.refresh_caps();
    }

    /// Takes a message for sending.
    pub fn send(
        &mut self,
        now: Instant,
        to: PublicKey,
        message: Prepared,
    ) -> Result<SendId, Refused> {
        let Some(peer) = self.peers.get_mut(&to) else {
            return Err(Refused::NoSuchPeer(to.to_hex()));
        };
        let id = self.desk.next_send();
        peer.send(now, message, id, &mut self.desk)?;
        self.after(to);
        Ok(id)
    }

    /// Whether a message of so many bytes need not wait for others to this peer.
    pub fn has_room(&self, to: &PublicKey, bytes: usize) -> bool {
        let limits = &self.desk.config.limits;
        self.peers.get(to).is_none_or(|peer| {
            let (count, queued) = peer.backlog();
            count == 0
                || count < limits.queued && queued.saturating_add(bytes) <= limits.queued_bytes
        })
    }

    /// An event came in.
    pub fn handle_event(&mut self, now: Instant, arrival: Arrival) {
        if !self.may_speak(&arrival.from) || !self.seen.insert(arrival.id) {
            self.ignored += 1;
            return;
        }
        let required = self.desk.config.encryption == Encryption::Required;
        if required && arrival.seal == Seal::Plain {
            self.ignored += 1;
            if self.role == Role::Server {
                self.desk.turn_away(&arrival, &Failure::NotEncrypted);
            }
            return;
        }
        let from = arrival.from;
        if !self.peers.contains_key(&from) {
            if !self.make_room() {
                self.desk.turn_away(&arrival, &Failure::Busy);
                return;
            }
            self.add_peer(now, from, None);
        }
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.receive(now, arrival, &mut self.desk);
        }
        self.after(from);
    }

    /// A server's knowledge of a peer from earlier days; counts where the peer has not said anything.
    pub fn recall(&mut self, now: Instant, peer: PublicKey, learned: Learned) {
        if self.role == Role::Server && !self.peers.contains_key(&peer) {
            if !self.may_speak(&peer) || !self.make_room() {
                return;
            }
            self.add_peer(now, peer, Some(learned));
        }
    }

    /// Whether nothing of ours is on its way out.
    pub fn is_drained(&self) -> bool {
        self.desk.notices.is_empty() && self.peers.values().all(Peer::is_drained)
    }

    /// Whether this peer is held.
    pub fn knows(&self, peer: &PublicKey) -> bool {
        self.peers.contains_key(peer)
    }

    /// What is to be published next, where there is something that may go out now.
    pub fn poll_publish(&mut self, now: Instant) -> Option<Publish> {
        let id = PublishId(self.next_publish + 1);
        if let Some(notice) = self.desk.notices.pop_front() {
            self.next_publish += 1;
            return Some(Publish { id, ..notice });
        }
        while let Some(key) = self.ready.pop_front() {
            self.is_ready.remove(&key);
            // A message whose turn has come may have to be looked at first.
            self.to_plan.insert(key);
            let Some(peer) = self.peers.get_mut(&key) else {
                continue;
            };
            let made = peer.transmit(now, id, &mut self.desk);
            if let Some((publish, flying)) = made {
                self.next_publish += 1;
                self.flying.insert(id, flying);
                self.after(key);
                return Some(publish);
            }
        }
        None
    }

    /// The inner id of what is about to be published: answers refer to it.
    pub fn handle_signed(&mut self, publish: PublishId, event: EventId) {
        if let Some(flying) = self.flying.get(&publish)
            && let Some(peer) = self.peers.get_mut(&flying.peer)
            && peer.serial == flying.serial
        {
            peer.signed(flying, event);
        }
    }

    /// What became of what was published.
    pub fn handle_sent(&mut self, now: Instant, publish: PublishId, outcome: Sent) {
        let Some(flying) = self.flying.remove(&publish) else {
            return;
        };
        let key = flying.peer;
        if let Some(peer) = self.peers.get_mut(&key)
            && peer.serial == flying.serial
        {
            peer.sent(now, &flying, outcome, &mut self.desk);
            self.after(key);
        }
    }

    /// Work on a large message that may be done elsewhere; its outcome comes back with
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

    /// The outcome of a [`PlanJob`].
    pub fn handle_planned(&mut self, now: Instant, key: PublicKey, planned: Planned) {
        if let Some(peer) = self.peers.get_mut(&key) {
            peer.link.handle_planned(planned);
            peer.settle(now, None, &mut self.desk);
            self.after(key);
        }
    }

    /// What happened; take all of it after every other call.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.desk.events.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.peers.values().filter_map(Peer::next_timeout).min()
    }

    /// Time has passed.
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
                peer.timeout(now, &mut self.desk);
            }
            self.after(key);
        }
    }

    /// Figures for tests and logs.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            peers: self.peers.len(),
            memory: self.desk.budget.used(),
            ignored: self.ignored,
            evicted: self.evicted,
            ..Stats::default()
        };
        for peer in self.peers.values() {
            peer.count(&mut stats);
        }
        stats
    }

    /// How long a transfer that comes in may take.
    pub fn transfer_timeout(&self) -> Duration {
        self.desk.config.timeouts.transfer
    }

    fn may_speak(&self, key: &PublicKey) -> bool {
        match self.role {
            Role::Client { server } => *key == server,
            Role::Server => match &self.desk.config.allowed {
                Some(allowed) => allowed.contains(key),
                None => true,
            },
        }
    }

    fn add_peer(&mut self, now: Instant, key: PublicKey, learned: Option<Learned>) {
        self.next_peer += 1;
        let peer = Peer::new(key, self.next_peer, learned, now, &mut self.desk);
        self.peers.insert(key, peer);
    }

    /// Lets somebody go who has nothing at stake, strangers first. False: all of them have.
    fn make_room(&mut self) -> bool {
        if self.peers.len() < self.desk.config.limits.peers.max(1) {
            return true;
        }
        let idle = self.peers.values().filter(|peer| peer.may_go());
        let Some(key) = idle
            .min_by_key(|peer| (peer.proven, peer.last))
            .map(|peer| peer.key)
        else {
            return false;
        };
        if let Some(peer) = self.peers.remove(&key) {
            peer.say_goodbye(&mut self.desk);
        }
        self.evicted += 1;
        self.desk.tell(Event::Gone { peer: key });
        true
    }

    /// After something was done to a peer: it may have something to publish, and caps may be new.
    fn after(&mut self, key: PublicKey) {
        if self.is_ready.insert(key) {
            self.ready.push_back(key);
        }
        self.to_plan.insert(key);
        if std::mem::take(&mut self.desk.caps_changed) {
            self.refresh_caps();
        }
    }

    fn refresh_caps(&mut self) {
        for peer in self.peers.values_mut() {
            peer.refresh_cap(&self.desk);
        }
    }
}
