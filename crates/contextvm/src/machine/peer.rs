//! One peer: its link, its open requests and messages, and what is known about it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use crate::machine::{EventId, PublicKey, Seal};
use breakbulk_link::{FrameId, FrameKind, Key, Link, PeerLimits, PeerSupport, Sent};

use super::outgoing::Out;
use super::requests::{Asked, Served};
use super::shared::Shared;
use super::{Event, Publish, PublishId, SendId, Stats};
use crate::machine::config::{Encryption, Wraps};
use crate::machine::learned::Learned;
use crate::machine::tags::{self, DiscoveryTags};

/// How many transfers are remembered with the event that opened them.
const TRANSFER_EVENTS: usize = 128;

/// The limits of the existing ContextVM implementations.
const LIMITS: PeerLimits = PeerLimits {
    frame: usize::MAX,
    message: 100 << 20,
    transfers: 64,
    timeout: Some(std::time::Duration::from_secs(300)),
    timeout_from_last: false,
};

/// A frame that was published and that no relay has confirmed yet.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub(crate) peer: PublicKey,
    /// Tells a peer from an earlier one with the same key that was evicted.
    pub(crate) serial: u64,
    pub(crate) frame: FrameId,
    pub(crate) kind: FrameKind,
    pub(crate) tag: u64,
    pub(crate) introduces: bool,
}

/// Whether an unknown server was asked, with a `ping`, for its discovery tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discovery {
    NotStarted,
    Pending,
    Done,
}

pub(crate) struct Peer {
    pub(crate) key: PublicKey,
    pub(crate) serial: u64,
    pub(crate) link: Link,
    /// When its last event came.
    pub(crate) last: Instant,
    /// It has sent a whole message: peers that have not are evicted first.
    pub(crate) sent_message: bool,
    /// It has sent an event.
    pub(super) sent_event: bool,
    /// The form of events sent to it: a server takes that of the last request, a client chooses.
    pub(super) seal: Seal,
    /// Whether any event to or from it was a gift wrap.
    pub(super) sealed: bool,
    pub(super) learned: Option<Learned>,
    /// It responded without discovery tags, which a server sends only to keys it does not know: its
    /// support for chunks is assumed.
    pub(super) presumed: bool,
    /// The discovery tags of this side were sent to it.
    pub(super) introduced: bool,
    pub(super) discovery: Discovery,
    /// Large requests that wait for the peer's discovery tags.
    pub(super) held: Vec<u64>,
    /// Responses that are not to be sent before a time.
    pub(super) delayed: BTreeSet<(Instant, u64)>,
    pub(super) outgoing: BTreeMap<u64, Out>,
    /// Requests sent to it, by id.
    pub(super) asked: BTreeMap<String, Asked>,
    /// The request id that a progress token belongs to.
    pub(super) tokens: BTreeMap<String, String>,
    /// Requests from it, by id.
    pub(super) served: BTreeMap<String, Served>,
    /// Cancelled requests to the peer and from it, the oldest first; some may have been answered since.
    pub(super) cancelled_asked: VecDeque<String>,
    pub(super) cancelled_served: VecDeque<String>,
    /// Transfers whose frames came before their `start`.
    pub(super) early: VecDeque<Key>,
    /// The event that opened a transfer: `accept` and `abort` refer to it.
    pub(super) transfer_events: VecDeque<(Key, EventId)>,
    /// Large responses that were sent in full: the peer may still abort one.
    pub(super) delivered: VecDeque<(Key, SendId)>,
    /// Messages to be sent again in smaller pieces, once the abort of the first attempt is out.
    pub(super) restarts: Vec<u64>,
    pub(super) aborts_in_flight: usize,
    /// The places of the messages in the ordered lane.
    pub(super) ordered: BTreeSet<u64>,
    pub(super) last_ordered: u64,
    /// Large messages that wait until all places up to one are free.
    pub(super) behind: Vec<(u64, u64)>,
    pub(super) next_lane: u32,
    pub(super) next_tag: u64,
    /// Counts changes that may have made a frame possible: messages given to the link, and failed messages
    /// that others waited behind.
    pub(super) queue_changes: u64,
}

impl Peer {
    pub(crate) fn new(
        key: PublicKey,
        serial: u64,
        learned: Option<Learned>,
        now: Instant,
        shared: &mut Shared,
    ) -> Self {
        let mut peer = Self {
            key,
            serial,
            link: shared.link(),
            last: now,
            sent_message: false,
            sent_event: false,
            seal: Seal::Plain,
            sealed: false,
            learned,
            presumed: false,
            introduced: false,
            discovery: Discovery::NotStarted,
            held: Vec::new(),
            delayed: BTreeSet::new(),
            outgoing: BTreeMap::new(),
            asked: BTreeMap::new(),
            tokens: BTreeMap::new(),
            served: BTreeMap::new(),
            cancelled_asked: VecDeque::new(),
            cancelled_served: VecDeque::new(),
            early: VecDeque::new(),
            transfer_events: VecDeque::new(),
            delivered: VecDeque::new(),
            restarts: Vec::new(),
            aborts_in_flight: 0,
            ordered: BTreeSet::new(),
            last_ordered: 0,
            behind: Vec::new(),
            next_lane: 0,
            next_tag: 0,
            queue_changes: 0,
        };
        peer.refresh_seal(shared);
        peer.refresh_support(shared);
        peer
    }

    /// Whether it may be evicted: no request is open in either direction, and nothing is queued.
    pub(crate) fn is_evictable(&self) -> bool {
        self.open_served() == 0 && self.open_asked() == 0 && self.outgoing.is_empty()
    }

    /// Requests from it that wait for a response, without those that it cancelled.
    pub(super) fn open_served(&self) -> usize {
        let open = self.served.values().filter(|served| !served.cancelled);
        open.count()
    }

    /// Requests to it that wait for a response, without those that were cancelled.
    fn open_asked(&self) -> usize {
        self.asked.values().filter(|asked| !asked.cancelled).count()
    }

    /// The number of messages that are not sent in full, and their bytes.
    pub(crate) fn backlog(&self) -> (usize, usize) {
        let sizes = self.outgoing.values().map(|out| out.message.bytes.len());
        (self.outgoing.len(), sizes.sum())
    }

    /// Whether nothing is queued or in flight to it.
    pub(crate) fn is_drained(&self) -> bool {
        self.outgoing.is_empty() && self.aborts_in_flight == 0 && !self.link.has_replies()
    }

    /// Aborts the unfinished transfers of a peer that is evicted.
    pub(crate) fn abort_unfinished(mut self, now: Instant, shared: &mut Shared) {
        let unfinished = self.link.unfinished();
        let keys: Vec<Key> = unfinished.map(|transfer| transfer.key.clone()).collect();
        for key in &keys {
            let reason = "too many clients at once; try again later";
            self.link.abort(key, reason);
        }
        // An evicted peer has no messages queued: its link makes only the frames of replies.
        let mut frame = Vec::new();
        while let Some(transmit) = self.link.poll_transmit(now, &mut frame) {
            let text = String::from_utf8(std::mem::take(&mut frame));
            if let (FrameKind::Abort, Ok(text)) = (transmit.kind, text) {
                let event = transmit.answers.and_then(|key| self.event_of(&key));
                shared.queue_notice(self.key, text, event, self.seal);
            }
        }
    }

    /// Learns from the discovery tags of an event.
    pub(super) fn learn_from_tags(&mut self, tags: &[Vec<String>], shared: &mut Shared) {
        let Some(discovery) = DiscoveryTags::read(tags) else {
            return;
        };
        self.learn(Learned::from_tags(discovery), shared);
    }

    pub(super) fn learn(&mut self, more: Learned, shared: &mut Shared) {
        let learned = self.learned.unwrap_or_default().and(more);
        if self.learned == Some(learned) {
            return;
        }
        self.learned = Some(learned);
        shared.push_event(Event::Learned {
            peer: self.key,
            learned,
        });
        self.refresh_support(shared);
        self.refresh_seal(shared);
    }

    /// A client chooses the form by what it knows about its server; a server responds in the form of
    /// the request.
    fn refresh_seal(&mut self, shared: &Shared) {
        if !shared.is_server() {
            self.seal = self.own_seal(shared);
            self.sealed |= self.seal != Seal::Plain;
        }
        self.refresh_cap(shared);
    }

    fn own_seal(&self, shared: &Shared) -> Seal {
        let learned = self.learned;
        let plain = match shared.config.encryption {
            Encryption::Disabled => true,
            Encryption::Required => false,
            Encryption::Optional => learned.is_some_and(|learned| !learned.encryption),
        };
        match shared.config.wraps {
            _ if plain => Seal::Plain,
            Wraps::Ephemeral => Seal::Ephemeral,
            Wraps::Any if learned.is_some_and(|learned| learned.ephemeral) => Seal::Ephemeral,
            Wraps::Any | Wraps::Persistent => Seal::Persistent,
        }
    }

    /// A client waits for `accept` from a server whose support is unknown; a server sends chunks only
    /// to clients that announced support.
    pub(super) fn refresh_support(&mut self, shared: &Shared) {
        let support = match self.learned {
            Some(learned) if learned.oversized => PeerSupport::Yes(LIMITS),
            _ if self.presumed => PeerSupport::Yes(LIMITS),
            Some(_) => PeerSupport::No,
            None if shared.is_server() => PeerSupport::No,
            None => PeerSupport::Unknown,
        };
        self.link.set_peer(support);
    }

    /// Sets the cap for the larger of the two forms: what fits into a gift wrap fits a plain event too.
    pub(crate) fn refresh_cap(&mut self, shared: &Shared) {
        self.link.set_cap(shared.cap(self.sealed));
    }

    /// The next frame, as an event to publish.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        id: PublishId,
        shared: &mut Shared,
    ) -> Option<(Publish, InFlight)> {
        let mut frame = Vec::new();
        let transmit = loop {
            let changes = self.queue_changes;
            let transmit = self.link.poll_transmit(now, &mut frame);
            self.handle_link_events(now, None, shared);
            match transmit {
                Some(transmit) => break transmit,
                // A message that did not fit may have been queued again in smaller pieces, or others wait
                // behind it.
                None if self.queue_changes != changes => {}
                None => return None,
            }
        };
        let (seal, answers) = match self.outgoing.get_mut(&transmit.tag) {
            Some(out) if transmit.transfer.is_some() => {
                out.opened |= transmit.kind == FrameKind::Open;
                (out.seal, out.answers)
            }
            // A client's control frame needs no reference to an event: the token names the transfer.
            _ if !shared.is_server() => (self.seal, None),
            _ => {
                let event = transmit.answers.as_ref().and_then(|key| self.event_of(key));
                (self.seal, event)
            }
        };
        // Relays may deliver a client's first event late: until the server has responded, each
        // event carries the discovery tags.
        let unacknowledged = !shared.is_server()
            && !self.sent_event
            && matches!(transmit.kind, FrameKind::Whole | FrameKind::Open);
        let introduces = !self.introduced || unacknowledged;
        self.introduced = true;
        self.aborts_in_flight += usize::from(transmit.kind == FrameKind::Abort);
        let discovery = introduces || transmit.kind == FrameKind::Accept;
        let publish = Publish {
            id,
            to: self.key,
            // This wire writes only text.
            content: String::from_utf8(frame).unwrap_or_default(),
            tags: tags::compose(&self.key, answers, discovery.then_some(&shared.config)),
            seal,
        };
        let in_flight = InFlight {
            peer: self.key,
            serial: self.serial,
            frame: transmit.frame,
            kind: transmit.kind,
            tag: transmit.tag,
            introduces,
        };
        Some((publish, in_flight))
    }

    pub(crate) fn sent(
        &mut self,
        now: Instant,
        in_flight: &InFlight,
        outcome: Sent,
        shared: &mut Shared,
    ) {
        if outcome != Sent::Ok && in_flight.introduces {
            self.introduced = false;
        }
        self.link.handle_sent(now, in_flight.frame, outcome);
        if outcome == Sent::Ok {
            self.touch_sending(now, in_flight.tag);
        }
        if in_flight.kind == FrameKind::Abort {
            self.aborts_in_flight -= 1;
        }
        self.handle_link_events(now, None, shared);
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let deadline = |asked: &Asked| asked.deadline(self.sent_event);
        let requests = self.asked.values().filter_map(deadline).min();
        let link = self.link.poll_timeout().map(|(at, _)| at);
        let delayed = self.delayed.first().map(|(at, _)| *at);
        requests.into_iter().chain(link).chain(delayed).min()
    }

    pub(crate) fn count(&self, stats: &mut Stats) {
        stats.outgoing += self.outgoing.len();
        stats.asked += self.open_asked();
        stats.served += self.open_served();
        stats.transfers += self.link.open_transfers();
    }

    /// Remembers the event that opened a transfer.
    pub(super) fn remember_event(&mut self, key: Key, event: EventId) {
        self.transfer_events.push_back((key, event));
        if self.transfer_events.len() > TRANSFER_EVENTS {
            self.transfer_events.pop_front();
        }
    }

    pub(super) fn event_of(&self, key: &Key) -> Option<EventId> {
        let mark = self
            .transfer_events
            .iter()
            .rev()
            .find(|(marked, _)| marked == key);
        mark.map(|(_, event)| *event)
    }
}
