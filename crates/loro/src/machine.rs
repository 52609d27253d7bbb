//! The part that decides: who is there, who wants which document, what answers what.
//!
//! It has the poll shape of a link: feed it what came in, what became of its tasks, and the time; take
//! from it what to send and what to do to documents. It knows no socket, no clock, no CRDT and no disk:
//! documents are names and versions here. What a task changed is told only once it is kept, so nothing
//! leaves this machine that a crash could take back.

mod channel;
pub mod control;
mod done;
mod incoming;
mod local;
mod presence;
mod types;
mod version;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use breakbulk_message::loro::{ChannelMsg, EphemeralStore, PeerIdentity};

use super::limits::Limits;
use super::permissions::Permissions;
use channel::Channel;
use done::Running;
use presence::{Presence, Room};
pub use types::{
    ChannelId, DocId, Event, Finished, Head, Opening, Outcome, Output, Refused, TaskId, Work,
    WorkError,
};
pub use version::covers;
pub use version::is_nothing;

/// All that a sync peer does, without sockets, documents and clock.
pub struct Hub {
    me: PeerIdentity,
    limits: Limits,
    permissions: Arc<dyn Permissions>,
    docs: BTreeMap<DocId, Document>,
    channels: BTreeMap<ChannelId, Channel>,
    /// When a channel must have said who it is.
    strangers: BTreeSet<(Instant, ChannelId)>,
    tasks: BTreeMap<TaskId, Running>,
    presence: Presence,
    beat: Option<Instant>,
    out: VecDeque<Output>,
    next_channel: u64,
    next_task: u64,
}

/// What is known of a document.
#[derive(Debug, Default)]
struct Document {
    head: Head,
    /// Who is told of changes.
    subscribers: BTreeSet<ChannelId>,
    /// Tasks that are not done.
    tasks: usize,
    /// How often it is open on this side: it stays though it is empty.
    local: usize,
    /// The others were told that it exists.
    announced: bool,
}

impl Hub {
    /// A machine with these documents.
    pub fn new(
        me: PeerIdentity,
        limits: Limits,
        permissions: Arc<dyn Permissions>,
        kept: impl IntoIterator<Item = (DocId, Head)>,
    ) -> Self {
        let known = |(doc, head)| {
            let document = Document {
                head,
                announced: true,
                ..Document::default()
            };
            (doc, document)
        };
        Self {
            me,
            limits,
            permissions,
            docs: kept.into_iter().map(known).collect(),
            channels: BTreeMap::new(),
            strangers: BTreeSet::new(),
            tasks: BTreeMap::new(),
            presence: Presence::default(),
            beat: None,
            out: VecDeque::new(),
            next_channel: 0,
            next_task: 0,
        }
    }

    /// Who this side is.
    pub fn identity(&self) -> &PeerIdentity {
        &self.me
    }

    /// A connection begins.
    pub fn open(&mut self, now: Instant, opening: Opening) -> ChannelId {
        self.next_channel += 1;
        let id = ChannelId(self.next_channel);
        let deadline = now + self.limits.establish;
        self.strangers.insert((deadline, id));
        let greets = opening.greets;
        self.channels.insert(id, Channel::new(opening, deadline));
        if greets {
            let identity = self.me.clone();
            self.send(id, None, ChannelMsg::EstablishRequest { identity });
        }
        id
    }

    /// A connection is over; its subscriptions and its ephemeral stores are forgotten.
    pub fn close(&mut self, channel: ChannelId) {
        let Some(closed) = self.channels.remove(&channel) else {
            return;
        };
        self.strangers.remove(&(closed.deadline, channel));
        for doc in &closed.subscriptions {
            if let Some(document) = self.docs.get_mut(doc) {
                document.subscribers.remove(&channel);
            }
            self.forget_if_empty(doc);
        }
        for (doc, stores) in self.presence.drop_channel(channel) {
            self.tell_stores(&doc, 0, stores, None);
        }
        self.out.push_back(Output::Event(Event::Gone { channel }));
    }

    /// What is to be done; take all of it after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let stranger = self.strangers.first().map(|(at, _)| *at);
        stranger.into_iter().chain(self.beat).min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, channel)) = self.strangers.first().copied()
            && at <= now
        {
            self.strangers.remove(&(at, channel));
            let limit = self.limits.establish.as_secs_f64();
            self.cut_off(
                channel,
                1008,
                format!("no establish-request within {limit} s"),
            );
        }
        if self.beat.is_some_and(|at| at <= now) {
            self.heartbeat(now);
        }
    }

    /// The documents that there are.
    pub fn documents(&self) -> impl Iterator<Item = (&DocId, &Head)> {
        self.docs
            .iter()
            .map(|(doc, document)| (doc, &document.head))
    }

    /// One document as it is kept.
    pub fn head(&self, doc: &str) -> Option<&Head> {
        self.docs.get(doc).map(|document| &document.head)
    }

    /// The channels whose peers said who they are.
    pub fn peers(&self) -> impl Iterator<Item = (ChannelId, &PeerIdentity)> {
        self.channels.iter().filter_map(|(id, channel)| {
            let peer = channel.peer.as_ref()?;
            Some((*id, &peer.identity))
        })
    }

    /// How many channels there are, established or not.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// A frame could not be read, or something below went wrong that is the peer's fault. Repeated, it
    /// ends the channel.
    pub fn fault(&mut self, now: Instant, channel: ChannelId, reason: &str) {
        let Some(found) = self.channels.get_mut(&channel) else {
            return;
        };
        let count = found.count_fault(now);
        self.out.push_back(Output::Event(Event::Fault {
            channel,
            reason: reason.to_owned(),
        }));
        if count > self.limits.faults {
            let reason = format!("{count} bad messages within a minute; the last: {reason}");
            self.cut_off(channel, 1008, reason);
        }
    }

    /// Closes a channel from this side.
    pub fn cut_off(&mut self, channel: ChannelId, code: u16, reason: String) {
        if self.channels.contains_key(&channel) {
            self.close(channel);
            self.out.push_back(Output::Close {
                channel,
                code,
                reason,
            });
        }
    }

    fn send(&mut self, to: ChannelId, doc: Option<&DocId>, message: ChannelMsg) {
        self.send_all(vec![to], doc, message);
    }

    fn send_all(&mut self, to: Vec<ChannelId>, doc: Option<&DocId>, message: ChannelMsg) {
        if !to.is_empty() {
            let doc = doc.cloned();
            self.out.push_back(Output::Send { to, doc, message });
        }
    }

    fn event(&mut self, event: Event) {
        self.out.push_back(Output::Event(event));
    }

    fn task(&mut self, doc: &DocId, work: Work, running: Running) {
        self.next_task += 1;
        let id = TaskId(self.next_task);
        if let Some(document) = self.docs.get_mut(doc) {
            document.tasks += 1;
        }
        if let Some((channel, token)) = running.origin
            && let Some(channel) = self.channels.get_mut(&channel)
        {
            channel.begin(token);
        }
        self.tasks.insert(id, running);
        let doc = doc.clone();
        self.out.push_back(Output::Task { id, doc, work });
    }

    /// Whoever wants a document's changes and may see it, but the one they came from.
    fn audience(&self, doc: &DocId, but: Option<ChannelId>) -> Vec<ChannelId> {
        let Some(document) = self.docs.get(doc) else {
            return Vec::new();
        };
        let others = document.subscribers.iter().copied();
        others
            .filter(|id| Some(*id) != but && self.may_see(*id, doc))
            .collect()
    }

    fn may_see(&self, channel: ChannelId, doc: &str) -> bool {
        let peer = self.channels.get(&channel).and_then(|c| c.peer.as_ref());
        peer.is_some_and(|peer| self.permissions.see(peer, doc))
    }

    /// An own sync-request: what this side has, and whether the other shall ask back.
    fn sync_request(&self, doc: &DocId, bidirectional: bool) -> ChannelMsg {
        let document = self.docs.get(doc);
        ChannelMsg::SyncRequest {
            doc_id: doc.to_string(),
            requester_doc_version: document.map(|d| d.head.version.clone()).unwrap_or_default(),
            bidirectional: Some(bidirectional),
            ephemeral: self.stores_of(doc, true),
        }
    }

    fn stores_of(&self, doc: &DocId, own: bool) -> Option<Vec<EphemeralStore>> {
        let stores = self.presence.of(doc, own);
        (!stores.is_empty()).then_some(stores)
    }

    fn tell_stores(
        &mut self,
        doc: &DocId,
        hops_remaining: i64,
        stores: Vec<EphemeralStore>,
        but: Option<ChannelId>,
    ) {
        let to = self.audience(doc, but);
        let doc_id = doc.to_string();
        let message = ChannelMsg::Ephemeral {
            doc_id,
            hops_remaining,
            stores,
        };
        self.send_all(to, Some(doc), message);
        self.event(Event::Ephemeral { doc: doc.clone() });
    }

    /// Own stores are told again; others' that were not told again are forgotten.
    fn heartbeat(&mut self, now: Instant) {
        self.beat = None;
        for (doc, stores) in self.presence.expire(now, self.limits.heartbeat * 4) {
            self.tell_stores(&doc, 0, stores, None);
        }
        for doc in self.presence.own_docs() {
            let stores = self.presence.of(&doc, true);
            let to = self.audience(&doc, None);
            let message = ChannelMsg::Ephemeral {
                doc_id: doc.to_string(),
                hops_remaining: 1,
                stores,
            };
            self.send_all(to, Some(&doc), message);
        }
        self.arm(now);
    }

    fn arm(&mut self, now: Instant) {
        if self.beat.is_none() && !self.presence.is_empty() {
            self.beat = Some(now + self.limits.heartbeat);
        }
    }

    fn room(&self) -> Room {
        Room {
            stores: self.limits.stores,
            bytes: self.limits.store_bytes,
        }
    }

    /// A document that only a peer's question made is dropped with the last who asked.
    fn forget_if_empty(&mut self, doc: &DocId) {
        let empty = |d: &Document| {
            d.local == 0 && d.tasks == 0 && d.subscribers.is_empty() && d.head == Head::default()
        };
        if self.docs.get(doc).is_some_and(empty) {
            self.docs.remove(doc);
        }
    }
}
