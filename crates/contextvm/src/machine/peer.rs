//! One peer: its link, and what is under way with it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use crate::machine::{EventId, PublicKey, Seal};
use breakbulk_link::{FrameId, FrameKind, Key, Link, Part, PeerLimits, PeerSupport, Sent, Wire};
use breakbulk_wire::Cep22;

use super::desk::Desk;
use super::outgoing::Out;
use super::requests::{Asked, Served};
use super::{Event, Publish, PublishId, SendId, Stats};
use crate::machine::config::{Encryption, Wraps};
use crate::machine::learned::Learned;
use crate::machine::tags::{self, Hello};

/// Transfers whose events are remembered, so that what is said of them names the right one.
const MARKS: usize = 128;

/// What the real peers take.
const LIMITS: PeerLimits = PeerLimits {
    frame: usize::MAX,
    message: 100 << 20,
    transfers: 64,
    timeout: Some(std::time::Duration::from_secs(300)),
    timeout_from_last: false,
};

/// Something that is with the relays.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub(crate) peer: PublicKey,
    /// A peer that made room and came back is another one.
    pub(crate) serial: u64,
    pub(crate) frame: FrameId,
    pub(crate) kind: FrameKind,
    pub(crate) tag: u64,
    pub(crate) introduces: bool,
}

/// How much we tried to learn of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learning {
    Never,
    Asking,
    Done,
}

pub(crate) struct Peer {
    pub(crate) key: PublicKey,
    pub(crate) serial: u64,
    pub(crate) link: Link,
    /// When it spoke last.
    pub(crate) last: Instant,
    /// It has sent a whole message: it is no stranger.
    pub(crate) proven: bool,
    /// It has sent anything at all.
    pub(super) heard: bool,
    /// How it spoke last, or how we speak to it.
    pub(super) seal: Seal,
    /// Whether anything between us is sealed.
    pub(super) sealed: bool,
    pub(super) learned: Option<Learned>,
    /// It answered without a word on what it can do: it knew us before, and so it can.
    pub(super) presumed: bool,
    pub(super) introduced: bool,
    pub(super) learning: Learning,
    /// Large requests that wait until something is known.
    pub(super) held: Vec<u64>,
    pub(super) outgoing: BTreeMap<u64, Out>,
    /// Our requests, by id.
    pub(super) asked: BTreeMap<String, Asked>,
    /// Which request a token belongs to.
    pub(super) tokens: BTreeMap<String, String>,
    /// Its requests, by id.
    pub(super) served: BTreeMap<String, Served>,
    /// Transfers whose frames came before their openings.
    pub(super) early: VecDeque<Key>,
    /// The event by which a transfer is spoken of.
    pub(super) marks: VecDeque<(Key, EventId)>,
    /// Large answers of ours that are out: the peer may still say that it could not use one.
    pub(super) delivered: VecDeque<(Key, SendId)>,
    /// Messages that begin anew once the end of their first attempt was told.
    pub(super) restarts: Vec<u64>,
    pub(super) ends_flying: usize,
    /// Messages in the ordered lane.
    pub(super) ordered: usize,
    pub(super) next_lane: u32,
    pub(super) next_tag: u64,
    /// Counts what was given to the link.
    pub(super) queued: u64,
}

impl Peer {
    pub(crate) fn new(
        key: PublicKey,
        serial: u64,
        learned: Option<Learned>,
        now: Instant,
        desk: &mut Desk,
    ) -> Self {
        let mut peer = Self {
            key,
            serial,
            link: desk.link(),
            last: now,
            proven: false,
            heard: false,
            seal: Seal::Plain,
            sealed: false,
            learned,
            presumed: false,
            introduced: false,
            learning: Learning::Never,
            held: Vec::new(),
            outgoing: BTreeMap::new(),
            asked: BTreeMap::new(),
            tokens: BTreeMap::new(),
            served: BTreeMap::new(),
            early: VecDeque::new(),
            marks: VecDeque::new(),
            delivered: VecDeque::new(),
            restarts: Vec::new(),
            ends_flying: 0,
            ordered: 0,
            next_lane: 0,
            next_tag: 0,
            queued: 0,
        };
        peer.refresh_seal(desk);
        peer.refresh_support(desk);
        peer
    }

    /// Whether it may make room for another: we owe it nothing, and it gets nothing from us.
    pub(crate) fn may_go(&self) -> bool {
        self.served.is_empty() && self.asked.is_empty() && self.outgoing.is_empty()
    }

    /// Messages that are not fully out, and their bytes.
    pub(crate) fn backlog(&self) -> (usize, usize) {
        let sizes = self.outgoing.values().map(|out| out.message.bytes.len());
        (self.outgoing.len(), sizes.sum())
    }

    /// Whether nothing is on its way to it.
    pub(crate) fn is_drained(&self) -> bool {
        self.outgoing.is_empty() && self.ends_flying == 0 && !self.link.has_replies()
    }

    /// Tells a peer that has to go of what it loses.
    pub(crate) fn say_goodbye(self, desk: &mut Desk) {
        for unfinished in self.link.unfinished() {
            let part = Part::Abort {
                key: unfinished.key,
                seq: unfinished.count.saturating_add(4),
                reason: "too many clients at once; try again later",
            };
            let mut frame = Vec::new();
            Cep22::default().write(part, &mut frame);
            let event = self.mark(unfinished.key);
            if let Ok(text) = String::from_utf8(frame) {
                desk.notice(self.key, text, event, self.seal);
            }
        }
    }

    /// What the tags of an event say.
    pub(super) fn hear(&mut self, tags: &[Vec<String>], desk: &mut Desk) {
        let Some(hello) = Hello::read(tags) else {
            return;
        };
        self.learn(Learned::from_hello(hello), desk);
    }

    pub(super) fn learn(&mut self, more: Learned, desk: &mut Desk) {
        let learned = self.learned.unwrap_or_default().and(more);
        if self.learned == Some(learned) {
            return;
        }
        self.learned = Some(learned);
        desk.tell(Event::Learned {
            peer: self.key,
            learned,
        });
        self.refresh_support(desk);
        self.refresh_seal(desk);
    }

    /// A client seals by what it knows of its server; a server answers as it is asked.
    fn refresh_seal(&mut self, desk: &Desk) {
        if !desk.is_server() {
            self.seal = self.own_seal(desk);
            self.sealed |= self.seal != Seal::Plain;
        }
        self.refresh_cap(desk);
    }

    fn own_seal(&self, desk: &Desk) -> Seal {
        let learned = self.learned;
        let plain = match desk.config.encryption {
            Encryption::Disabled => true,
            Encryption::Required => false,
            Encryption::Optional => learned.is_some_and(|learned| !learned.encryption),
        };
        match desk.config.wraps {
            _ if plain => Seal::Plain,
            Wraps::Ephemeral => Seal::Ephemeral,
            Wraps::Any if learned.is_some_and(|learned| learned.ephemeral) => Seal::Ephemeral,
            Wraps::Any | Wraps::Persistent => Seal::Persistent,
        }
    }

    /// Only a client waits for leave; a server cuts for those who said that they can.
    pub(super) fn refresh_support(&mut self, desk: &Desk) {
        let support = match self.learned {
            Some(learned) if learned.oversized => PeerSupport::Yes(LIMITS),
            _ if self.presumed => PeerSupport::Yes(LIMITS),
            Some(_) => PeerSupport::No,
            None if desk.is_server() => PeerSupport::No,
            None => PeerSupport::Unknown,
        };
        self.link.set_peer(support);
    }

    /// The cap for the larger of the two forms that may be needed: what fits sealed fits bare too.
    pub(crate) fn refresh_cap(&mut self, desk: &Desk) {
        self.link.set_cap(desk.cap(self.sealed));
    }

    /// The next frame, as it is to be published.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        id: PublishId,
        desk: &mut Desk,
    ) -> Option<(Publish, InFlight)> {
        let mut frame = Vec::new();
        let transmit = loop {
            let queued = self.queued;
            let transmit = self.link.poll_transmit(now, &mut frame);
            self.settle(now, None, desk);
            match transmit {
                Some(transmit) => break transmit,
                // In the place of what did not fit there may be something that does.
                None if self.queued != queued => {}
                None => return None,
            }
        };
        let (seal, answers) = match self.outgoing.get_mut(&transmit.tag) {
            Some(out) if transmit.transfer.is_some() => {
                out.opened |= transmit.kind == FrameKind::Open;
                (out.seal, out.answers)
            }
            // A client's word on a transfer needs no reference: the token names it.
            _ if !desk.is_server() => (self.seal, None),
            _ => {
                let event = transmit.answers.as_ref().and_then(|key| self.mark(key));
                (self.seal, event)
            }
        };
        // A client's first event may be late: until the server has spoken each says who we are.
        let unheard = !desk.is_server()
            && !self.heard
            && matches!(transmit.kind, FrameKind::Whole | FrameKind::Open);
        let introduces = !self.introduced || unheard;
        self.introduced = true;
        self.ends_flying += usize::from(transmit.kind == FrameKind::Abort);
        let hello = introduces || transmit.kind == FrameKind::Accept;
        let publish = Publish {
            id,
            to: self.key,
            // The wire writes text alone.
            content: String::from_utf8(frame).unwrap_or_default(),
            tags: tags::compose(&self.key, answers, hello.then_some(&desk.config)),
            seal,
        };
        let flying = InFlight {
            peer: self.key,
            serial: self.serial,
            frame: transmit.frame,
            kind: transmit.kind,
            tag: transmit.tag,
            introduces,
        };
        Some((publish, flying))
    }

    pub(crate) fn sent(&mut self, now: Instant, flying: &InFlight, outcome: Sent, desk: &mut Desk) {
        if outcome != Sent::Ok && flying.introduces {
            self.introduced = false;
        }
        self.link.handle_sent(now, flying.frame, outcome);
        if outcome == Sent::Ok {
            self.touch_sending(now, flying.tag);
        }
        if flying.kind == FrameKind::Abort {
            self.ends_flying -= 1;
        }
        self.settle(now, None, desk);
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let requests = self.asked.values().filter_map(Asked::deadline).min();
        let link = self.link.poll_timeout().map(|(at, _)| at);
        requests.into_iter().chain(link).min()
    }

    pub(crate) fn count(&self, stats: &mut Stats) {
        stats.outgoing += self.outgoing.len();
        stats.asked += self.asked.len();
        stats.served += self.served.len();
        stats.transfers += self.link.open_transfers();
    }

    /// Notes by which event a transfer is spoken of.
    pub(super) fn set_mark(&mut self, key: Key, event: EventId) {
        self.marks.push_back((key, event));
        if self.marks.len() > MARKS {
            self.marks.pop_front();
        }
    }

    pub(super) fn mark(&self, key: &Key) -> Option<EventId> {
        let mark = self.marks.iter().rev().find(|(marked, _)| marked == key);
        mark.map(|(_, event)| *event)
    }
}
