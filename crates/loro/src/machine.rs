//! The state machine of a sync peer: connections, subscriptions, and the response to each message.
//!
//! It is used like a link: the caller passes in messages, the results of tasks and the time, and polls
//! for messages to send and tasks to run on documents. It has no sockets, no clock, no CRDT and no disk:
//! here a document is a name and a version. A change is sent to peers only once its task is stored, so a
//! crash cannot undo what a peer has seen.
//!
//! Responses and changes are given out as far as a peer reads ([`Hub::handle_queue`]): what one message
//! may cause is bounded by [`Limits`], and a peer that does not read delays itself alone.

mod channel;
pub mod control;
mod done;
mod incoming;
mod local;
mod presence;
mod presence_told;
mod pump;
mod types;
mod version;
mod waiting;
mod weight;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use breakbulk_message::loro::{ChannelMsg, PeerIdentity};

use super::limits::Limits;
use super::permissions::Permissions;
use channel::Channel;
use done::{Purpose, Running};
use presence::Presence;
pub use types::{
    ChannelId, DocId, Event, Finished, Head, Opening, Outcome, Output, Refused, TaskId, Work,
    WorkError,
};
pub use version::{EMPTY_SNAPSHOT, covers, is_nothing};
use waiting::Waiting;

/// A peer that connected and did not establish within this time gets an establish-request: the original's
/// polling client does not notice that the server was restarted, and does not establish again by itself.
const GREET_AFTER: Duration = Duration::from_secs(1);

/// The state machine of a sync peer.
pub struct Hub {
    me: PeerIdentity,
    limits: Limits,
    permissions: Arc<dyn Permissions>,
    docs: BTreeMap<DocId, Document>,
    channels: BTreeMap<ChannelId, Channel>,
    /// Channels without an establish message, by the deadline for it.
    unestablished: BTreeSet<(Instant, ChannelId)>,
    /// Channels that get an establish-request of this node if their peer sends none until then.
    ungreeted: BTreeSet<(Instant, ChannelId)>,
    tasks: BTreeMap<TaskId, Running>,
    /// Documents whose changes by other nodes could not be taken over while the store failed.
    untaken: BTreeSet<DocId>,
    /// Channels that may have something to be sent and have room in their queue.
    ready: BTreeSet<ChannelId>,
    /// Channels that wait because the queues of all channels together are full.
    starved: BTreeSet<ChannelId>,
    /// Whether there were such channels when `poll_output` last had no output left.
    is_starved: bool,
    /// Documents that were new since the start, by the number of their announcement, with their author.
    news: BTreeMap<u64, (DocId, Option<ChannelId>)>,
    last_news: u64,
    /// Bytes in the queues of all channels.
    outbound: usize,
    /// Expected bytes of the exports under way.
    reserved: usize,
    /// Bytes charged for all that waits to be sent to the channels.
    waiting_bytes: usize,
    /// Subscriptions of all channels.
    subscriptions: usize,
    /// Documents without content that only subscribers keep.
    empty: usize,
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
    /// The number of its announcement.
    news: u64,
    /// An export that others who want the same may join.
    joinable: Option<TaskId>,
    /// It is counted as one without content.
    counted_empty: bool,
}

impl Document {
    fn is_empty(&self) -> bool {
        self.local == 0 && self.head == Head::default()
    }
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
            ungreeted: BTreeSet::new(),
            tasks: BTreeMap::new(),
            untaken: BTreeSet::new(),
            ready: BTreeSet::new(),
            starved: BTreeSet::new(),
            is_starved: false,
            news: BTreeMap::new(),
            last_news: 0,
            outbound: 0,
            reserved: 0,
            waiting_bytes: 0,
            subscriptions: 0,
            empty: 0,
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
        let greet_at = match opening.sends_establish {
            true => now,
            false => now + GREET_AFTER,
        };
        let sends_establish = opening.sends_establish;
        let mut channel = Channel::new(opening, deadline);
        channel.greet_at = Some(greet_at);
        self.channels.insert(id, channel);
        self.ungreeted.insert((greet_at, id));
        if sends_establish {
            self.greet(id);
        }
        id
    }

    /// Sends this node's establish-request, unless it was sent or the peer has established.
    fn greet(&mut self, id: ChannelId) {
        if self.forget_greeting(id) {
            let identity = self.me.clone();
            self.send(id, None, ChannelMsg::EstablishRequest { identity });
        }
    }

    /// Returns whether the channel was still to be greeted.
    fn forget_greeting(&mut self, id: ChannelId) -> bool {
        let channel = self.channels.get_mut(&id);
        let Some(at) = channel.and_then(|channel| channel.greet_at.take()) else {
            return false;
        };
        self.ungreeted.remove(&(at, id))
    }

    /// Removes a connection with its subscriptions, its ephemeral stores and its exports. Changes that it
    /// sent and that are being imported are stored: its peer may have left after sending them.
    pub fn close(&mut self, channel: ChannelId) {
        self.remove(channel, false);
    }

    fn remove(&mut self, channel: ChannelId, cancels_changes: bool) {
        self.forget_greeting(channel);
        let Some(closed) = self.channels.remove(&channel) else {
            return;
        };
        self.unestablished.remove(&(closed.deadline, channel));
        self.ready.remove(&channel);
        self.starved.remove(&channel);
        self.waiting_bytes -= closed.waiting.bytes;
        self.subscriptions -= closed.subscriptions.len();
        self.cancel(channel, closed.waiting, cancels_changes);
        for doc in &closed.subscriptions {
            if let Some(document) = self.docs.get_mut(doc) {
                document.subscribers.remove(&channel);
            }
            self.forget_if_empty(doc);
        }
        self.drop_presence(channel, closed.peer.as_ref());
        self.out.push_back(Output::Event(Event::Gone { channel }));
    }

    /// Cancels the exports of a closed channel that no other channel waits for, and its changes.
    fn cancel(&mut self, channel: ChannelId, waiting: Waiting, cancels_changes: bool) {
        for (doc, ..) in waiting.changes {
            if let Some(document) = self.docs.get_mut(&doc) {
                document.tasks -= 1;
            }
            self.forget_if_empty(&doc);
        }
        let mut cancelled = Vec::new();
        for (doc, (id, _)) in waiting.answers {
            let Some(Running {
                purpose: Purpose::Answer { to, .. },
                ..
            }) = self.tasks.get_mut(&id)
            else {
                continue;
            };
            to.retain(|recipient| recipient.channel != channel);
            if to.is_empty() {
                cancelled.push(id);
                if let Some(document) = self.docs.get_mut(&doc) {
                    document.joinable = None;
                }
            }
        }
        if cancels_changes {
            cancelled.extend(waiting.tasks);
        }
        let cancelled = cancelled.into_iter().map(|id| Output::Cancel { id });
        self.out.extend(cancelled);
    }

    /// The next thing to do; poll until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.out.pop_front() {
                return Some(output);
            }
            let Some(channel) = self.ready.pop_first() else {
                self.is_starved = !self.starved.is_empty();
                return None;
            };
            self.pump(channel);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let establish = self.unestablished.first().map(|(at, _)| *at);
        let greet = self.ungreeted.first().map(|(at, _)| *at);
        let timers = establish.into_iter().chain(greet);
        timers.chain(self.next_heartbeat).min()
    }

    /// Closes channels that did not establish in time, and sends the heartbeat.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, channel)) = self.ungreeted.first().copied()
            && at <= now
        {
            self.greet(channel);
            self.ungreeted.remove(&(at, channel));
        }
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
            self.remove(channel, true);
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
        if to.is_empty() {
            return;
        }
        let bytes = weight::weight(&message);
        self.outbound = self.outbound.saturating_add(bytes);
        for channel in &to {
            self.count_queued(*channel, bytes);
        }
        let doc = doc.cloned();
        self.out.push_back(Output::Send { to, doc, message });
    }

    fn event(&mut self, event: Event) {
        self.out.push_back(Output::Event(event));
    }

    /// Gives out a task of this node.
    fn own_task(&mut self, doc: &DocId, work: Work, purpose: Purpose) {
        if let Some(document) = self.docs.get_mut(doc) {
            document.tasks += 1;
        }
        let running = Running {
            doc: doc.clone(),
            origin: None,
            purpose,
        };
        self.start(doc, work, running);
    }

    /// Queues a task on the changes of a peer, behind the earlier ones of its channel.
    fn peer_task(&mut self, origin: (ChannelId, u64), doc: &DocId, work: Work, purpose: Purpose) {
        let (id, token) = origin;
        let (Some(channel), Some(document)) = (self.channels.get_mut(&id), self.docs.get_mut(doc))
        else {
            return;
        };
        document.tasks += 1;
        channel.begin(token);
        let running = Running {
            doc: doc.clone(),
            origin: Some(origin),
            purpose,
        };
        channel
            .waiting
            .changes
            .push_back((doc.clone(), work, running));
        self.ready.insert(id);
    }

    /// Changes what waits for a channel, and updates the sum over all channels.
    fn waiting<R: Default>(&mut self, id: ChannelId, work: impl FnOnce(&mut Waiting) -> R) -> R {
        let Some(channel) = self.channels.get_mut(&id) else {
            return R::default();
        };
        let before = channel.waiting.bytes;
        let result = work(&mut channel.waiting);
        self.waiting_bytes = self.waiting_bytes - before + channel.waiting.bytes;
        result
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

    /// Removes a document without content that nobody uses: a peer's sync-request made it.
    fn forget_if_empty(&mut self, doc: &DocId) {
        let unused = |d: &Document| d.is_empty() && d.tasks == 0 && d.subscribers.is_empty();
        if self.docs.get(doc).is_some_and(unused) {
            self.remove_document(doc);
        }
    }

    fn remove_document(&mut self, doc: &DocId) -> Option<Document> {
        let document = self.docs.remove(doc)?;
        self.empty -= usize::from(document.counted_empty);
        self.news.remove(&document.news);
        Some(document)
    }

    /// Counts the documents without content, after a change of this one.
    fn count_empty(&mut self, doc: &DocId) {
        if let Some(document) = self.docs.get_mut(doc) {
            let empty = document.is_empty();
            self.empty += usize::from(empty);
            self.empty -= usize::from(std::mem::replace(&mut document.counted_empty, empty));
        }
    }
}
