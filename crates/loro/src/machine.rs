//! The state machine of a sync peer: connections, subscriptions, and the response to each message.
//!
//! It is used like a link: the caller passes in messages, the results of tasks and the time, and polls
//! for messages to send and tasks to run on documents. It has no sockets, no clock, no CRDT and no disk:
//! here a document is a name and a version. A change is sent to peers only once its task is stored, so a
//! crash cannot undo what a peer has seen.

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
use presence::{Presence, StoreLimits};
pub use types::{
    ChannelId, DocId, Event, Finished, Head, Opening, Outcome, Output, Refused, TaskId, Work,
    WorkError,
};
pub use version::covers;
pub use version::is_nothing;

/// The state machine of a sync peer.
pub struct Hub {
    me: PeerIdentity,
    limits: Limits,
    permissions: Arc<dyn Permissions>,
    docs: BTreeMap<DocId, Document>,
    channels: BTreeMap<ChannelId, Channel>,
    /// Channels without an establish message, by the deadline for it.
    unestablished: BTreeSet<(Instant, ChannelId)>,
    tasks: BTreeMap<TaskId, Running>,
    presence: Presence,
    next_heartbeat: Option<Instant>,
    out: VecDeque<Output>,
    next_channel: u64,
    next_task: u64,
}

/// What the machine knows about a document.
#[derive(Debug, Default)]
struct Document {
    head: Head,
    /// Channels that get its changes.
    subscribers: BTreeSet<ChannelId>,
    /// Tasks that are not finished.
    tasks: usize,
    /// How often the application has it open: while it does, it stays even if empty.
    local: usize,
    /// Peers were told that it exists (`new-doc`).
    announced: bool,
}

impl Hub {
    /// A machine with these stored documents.
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
            unestablished: BTreeSet::new(),
            tasks: BTreeMap::new(),
            presence: Presence::default(),
            next_heartbeat: None,
            out: VecDeque::new(),
            next_channel: 0,
            next_task: 0,
        }
    }

    /// The identity of this node.
    pub fn identity(&self) -> &PeerIdentity {
        &self.me
    }

    /// Registers a new connection.
    pub fn open(&mut self, now: Instant, opening: Opening) -> ChannelId {
        self.next_channel += 1;
        let id = ChannelId(self.next_channel);
        let deadline = now + self.limits.establish;
        self.unestablished.insert((deadline, id));
        let sends_establish = opening.sends_establish;
        self.channels.insert(id, Channel::new(opening, deadline));
        if sends_establish {
            let identity = self.me.clone();
            self.send(id, None, ChannelMsg::EstablishRequest { identity });
        }
        id
    }

    /// Removes a connection with its subscriptions and its ephemeral stores.
    pub fn close(&mut self, channel: ChannelId) {
        let Some(closed) = self.channels.remove(&channel) else {
            return;
        };
        self.unestablished.remove(&(closed.deadline, channel));
        for doc in &closed.subscriptions {
            if let Some(document) = self.docs.get_mut(doc) {
                document.subscribers.remove(&channel);
            }
            self.forget_if_empty(doc);
        }
        for (doc, stores) in self.presence.drop_channel(channel) {
            self.broadcast_stores(&doc, 0, stores, None);
        }
        self.out.push_back(Output::Event(Event::Gone { channel }));
    }

    /// The next thing to do; poll until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let establish = self.unestablished.first().map(|(at, _)| *at);
        establish.into_iter().chain(self.next_heartbeat).min()
    }

    /// Closes channels that did not establish in time, and sends the heartbeat.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, channel)) = self.unestablished.first().copied()
            && at <= now
        {
            self.unestablished.remove(&(at, channel));
            let limit = self.limits.establish.as_secs_f64();
            self.cut_off(
                channel,
                1008,
                format!("no establish-request within {limit} s"),
            );
        }
        if self.next_heartbeat.is_some_and(|at| at <= now) {
            self.heartbeat(now);
        }
    }

    /// All documents.
    pub fn documents(&self) -> impl Iterator<Item = (&DocId, &Head)> {
        self.docs
            .iter()
            .map(|(doc, document)| (doc, &document.head))
    }

    /// The stored version and size of one document.
    pub fn head(&self, doc: &str) -> Option<&Head> {
        self.docs.get(doc).map(|document| &document.head)
    }

    /// The established channels and their peers' identities.
    pub fn peers(&self) -> impl Iterator<Item = (ChannelId, &PeerIdentity)> {
        self.channels.iter().filter_map(|(id, channel)| {
            let peer = channel.peer.as_ref()?;
            Some((*id, &peer.identity))
        })
    }

    /// The number of channels, established or not.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Counts an invalid message or frame of a peer. More than [`Limits::faults`] within a minute close
    /// the channel.
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

    /// The subscribers of a document that may see it, except for `but`.
    fn visible_subscribers(&self, doc: &DocId, but: Option<ChannelId>) -> Vec<ChannelId> {
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

    /// A sync-request with this node's version. `bidirectional`: the peer shall request in return.
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

    fn broadcast_stores(
        &mut self,
        doc: &DocId,
        hops_remaining: i64,
        stores: Vec<EphemeralStore>,
        but: Option<ChannelId>,
    ) {
        let to = self.visible_subscribers(doc, but);
        let doc_id = doc.to_string();
        let message = ChannelMsg::Ephemeral {
            doc_id,
            hops_remaining,
            stores,
        };
        self.send_all(to, Some(doc), message);
        self.event(Event::Ephemeral { doc: doc.clone() });
    }

    /// Sends this node's ephemeral stores again, and drops those of peers that were not refreshed.
    fn heartbeat(&mut self, now: Instant) {
        self.next_heartbeat = None;
        for (doc, stores) in self.presence.expire(now, self.limits.heartbeat * 4) {
            self.broadcast_stores(&doc, 0, stores, None);
        }
        for doc in self.presence.own_docs() {
            let stores = self.presence.of(&doc, true);
            let to = self.visible_subscribers(&doc, None);
            let message = ChannelMsg::Ephemeral {
                doc_id: doc.to_string(),
                hops_remaining: 1,
                stores,
            };
            self.send_all(to, Some(&doc), message);
        }
        self.schedule_heartbeat(now);
    }

    fn schedule_heartbeat(&mut self, now: Instant) {
        if self.next_heartbeat.is_none() && !self.presence.is_empty() {
            self.next_heartbeat = Some(now + self.limits.heartbeat);
        }
    }

    fn store_limits(&self) -> StoreLimits {
        StoreLimits {
            stores: self.limits.stores,
            bytes: self.limits.store_bytes,
        }
    }

    /// Removes a document without content that nobody uses: a peer's sync-request made it.
    fn forget_if_empty(&mut self, doc: &DocId) {
        let empty = |d: &Document| {
            d.local == 0 && d.tasks == 0 && d.subscribers.is_empty() && d.head == Head::default()
        };
        if self.docs.get(doc).is_some_and(empty) {
            self.docs.remove(doc);
        }
    }
}
