//! Fills the send queues as far as the peers read: responses, changes, listings, announcements.

use std::ops::Bound;

use breakbulk_message::loro::{ChannelMsg, Transmission};
use bytes::Bytes;

use super::Hub;
use super::done::{Purpose, Recipient, Running};
use super::types::{ChannelId, DocId, Head, Output, TaskId, Work};
use super::version::{EMPTY_SNAPSHOT, covers, is_nothing};
use super::waiting::{Form, Queue, Want};

/// The most names in one listing or announcement; a longer one is sent as several messages.
const NAMES: usize = 4096;

/// The expected size of an export is at least this.
const ANSWER_MIN: usize = 4 << 10;

/// A connection may always queue this much, however many connections there are.
const WINDOW_MIN: usize = 16 << 10;

/// How many requests are looked at for one that fits while memory is short.
const STARVED_TRIES: usize = 64;

/// The response if it needs no export. As in the original, a peer that has nothing gets a snapshot, even of
/// an empty document: the original's client does not take `up-to-date` with a sync-request after it as the
/// end of the sync.
fn answer_without_export(head: &Head, want: &Want) -> Option<Transmission> {
    let version = head.version.clone();
    if want.form != Form::Change && is_nothing(&want.since) {
        let data = Bytes::from_static(EMPTY_SNAPSHOT);
        return (*head == Head::default()).then_some(Transmission::Snapshot { data, version });
    }
    covers(&want.since, &version).then_some(Transmission::UpToDate { version })
}

/// Whether an export was started.
enum Start {
    Begun,
    /// The channel's own queue is full.
    QueueFull,
    /// The queues of all channels together are full.
    MemoryFull,
}

impl Hub {
    /// Reports the length of a channel's send queue, after [`Output::WaitForRoom`].
    pub fn handle_queue(&mut self, channel: ChannelId, messages: usize, bytes: usize) {
        if let Some(found) = self.channels.get_mut(&channel) {
            found.waiting.queue = Queue { messages, bytes };
            found.waiting.reporting = false;
            found.waiting.all_sent();
            self.ready.insert(channel);
        }
    }

    /// Reports the bytes in the send queues of all channels, each message counted once.
    pub fn handle_outbound(&mut self, bytes: usize) {
        self.outbound = bytes;
        if !self.starved.is_empty() && self.outbound + self.reserved < self.limits.outbound_bytes {
            self.ready.append(&mut self.starved);
        }
    }

    /// Whether a channel waits because the send queues of all channels together are full.
    pub fn is_starved(&self) -> bool {
        self.is_starved
    }

    /// Sends what waits for the channel while its queue has room.
    pub(super) fn pump(&mut self, id: ChannelId) {
        self.start_changes(id);
        while self.has_room(id)
            && (self.answer_lookup(id)
                || self.list_documents(id)
                || self.ask_next(id)
                || self.send_missed_presence(id)
                || self.announce_next(id)
                || self.answer_next(id)
                || self.greet_next(id))
        {}
        // Settles frames whose requests wait for the peer to read: reading from a peer must not depend on its
        // reading, or two nodes that send each other much would wait for ever.
        let tokens = match self.channels.get_mut(&id) {
            Some(channel) if channel.waiting.changes.is_empty() => channel.waiting.release_tokens(),
            _ => Vec::new(),
        };
        for token in tokens {
            self.settle(id, token, Ok(()));
        }
    }

    /// A channel's part of the send queues: half of their total limit is divided among the channels, so that
    /// peers that do not read leave room for others.
    fn window(&self) -> usize {
        let share = self.limits.outbound_bytes / 2 / self.channels.len().max(1);
        share.max(WINDOW_MIN).min(self.limits.queue_bytes)
    }

    pub(super) fn has_room(&self, id: ChannelId) -> bool {
        let (messages, window) = (self.limits.queue_messages, self.window());
        self.channels.get(&id).is_some_and(|channel| {
            let queue = channel.waiting.queue;
            channel.peer.is_some() && queue.messages < messages && queue.bytes < window
        })
    }

    /// Counts a message in the queue of a channel. If the queue is more than half full, asks to be told when
    /// it is shorter.
    pub(super) fn count_queued(&mut self, id: ChannelId, bytes: usize) {
        let (messages, window) = (self.limits.queue_messages, self.window());
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let queue = &mut channel.waiting.queue;
        queue.messages += 1;
        queue.bytes = queue.bytes.saturating_add(bytes);
        let long = queue.messages * 2 > messages || queue.bytes > window / 2;
        if long && !std::mem::replace(&mut channel.waiting.reporting, true) {
            let (messages, bytes) = (messages / 4, window / 4);
            self.out.push_back(Output::WaitForRoom {
                channel: id,
                messages,
                bytes,
            });
        }
    }

    /// Gives out changes of the peer as tasks, a few at a time.
    fn start_changes(&mut self, id: ChannelId) {
        let most = self.limits.tasks.max(1);
        while let Some(channel) = self.channels.get_mut(&id)
            && channel.waiting.tasks.len() < most
            && let Some((doc, work, running)) = channel.waiting.give_out()
        {
            let task = self.start(&doc, work, running);
            if let Some(channel) = self.channels.get_mut(&id) {
                channel.waiting.tasks.insert(task);
            }
        }
    }

    /// Gives out a task. Its document counts it already.
    pub(super) fn start(&mut self, doc: &DocId, work: Work, running: Running) -> TaskId {
        self.next_task += 1;
        let id = TaskId(self.next_task);
        if let Some(document) = self.docs.get_mut(doc) {
            document.joinable = matches!(work, Work::Answer { .. }).then_some(id);
        }
        let origin = running.origin;
        self.tasks.insert(id, running);
        let doc = doc.clone();
        self.out.push_back(Output::Task {
            id,
            doc,
            work,
            origin,
        });
        id
    }

    fn answer_lookup(&mut self, id: ChannelId) -> bool {
        let Some(docs) = self.waiting(id, |waiting| waiting.take_lookup()) else {
            return false;
        };
        let known = docs
            .into_iter()
            .filter(|doc| self.docs.contains_key(doc) && self.may_see(id, doc));
        let doc_ids = known.map(|doc| doc.to_string()).collect();
        self.send(id, None, ChannelMsg::DirectoryResponse { doc_ids });
        true
    }

    fn list_documents(&mut self, id: ChannelId) -> bool {
        let Some(channel) = self.channels.get_mut(&id) else {
            return false;
        };
        let Some(after) = channel.waiting.listing.take() else {
            return false;
        };
        let (doc_ids, last) = self.names_after(id, &after);
        // The first part of a listing is sent even if it is empty, a further part is not.
        if after.is_none() || !doc_ids.is_empty() {
            self.send(id, None, ChannelMsg::DirectoryResponse { doc_ids });
        }
        if let Some(channel) = self.channels.get_mut(&id)
            && last.is_some()
        {
            channel.waiting.listing = Some(last);
        }
        true
    }

    /// The next documents that the peer may see, and the last of them if there may be more.
    fn names_after(&self, id: ChannelId, after: &Option<DocId>) -> (Vec<String>, Option<DocId>) {
        let mut names = Vec::new();
        for doc in self.docs_after(after) {
            if self.may_see(id, doc) {
                names.push(doc.to_string());
            }
            if names.len() == NAMES {
                return (names, Some(doc.clone()));
            }
        }
        (names, None)
    }

    fn docs_after(&self, after: &Option<DocId>) -> impl Iterator<Item = &DocId> {
        let start = after.clone().map_or(Bound::Unbounded, Bound::Excluded);
        self.docs
            .range((start, Bound::Unbounded))
            .map(|(doc, _)| doc)
    }

    fn ask_next(&mut self, id: ChannelId) -> bool {
        let Some((doc, bidirectional)) = self.waiting(id, |waiting| waiting.take_ask()) else {
            return false;
        };
        if self.may_see(id, &doc) {
            let request = self.sync_request(&doc, bidirectional);
            self.send(id, Some(&doc), request);
        }
        true
    }

    /// Sends the names of new documents that the peer may see and does not subscribe to.
    fn announce_next(&mut self, id: ChannelId) -> bool {
        let Some(channel) = self.channels.get(&id) else {
            return false;
        };
        if channel.opening.dialed || channel.waiting.announced >= self.last_news {
            return false;
        }
        let (mut doc_ids, mut reached) = (Vec::new(), self.last_news);
        let start = (Bound::Excluded(channel.waiting.announced), Bound::Unbounded);
        for (number, (doc, author)) in self.news.range(start) {
            if *author != Some(id) && !channel.subscriptions.contains(doc) && self.may_see(id, doc)
            {
                doc_ids.push(doc.to_string());
            }
            if doc_ids.len() == NAMES {
                reached = *number;
                break;
            }
        }
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.waiting.announced = reached;
        }
        if !doc_ids.is_empty() {
            self.send(id, None, ChannelMsg::NewDoc { doc_ids });
        }
        true
    }

    /// Sends the sync-request of the next document of the greeting.
    fn greet_next(&mut self, id: ChannelId) -> bool {
        let Some(channel) = self.channels.get_mut(&id) else {
            return false;
        };
        let Some(after) = channel.waiting.greeting.take() else {
            return false;
        };
        let next = self.docs_after(&after).find(|doc| self.may_see(id, doc));
        let Some(doc) = next.cloned() else {
            return false;
        };
        let request = self.sync_request(&doc, true);
        self.send(id, Some(&doc), request);
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.waiting.greeting = Some(Some(doc));
        }
        true
    }

    /// Answers the oldest request that can be answered now, or starts its export.
    fn answer_next(&mut self, id: ChannelId) -> bool {
        let (mut from, mut tried) = (0, 0);
        loop {
            let Some(channel) = self.channels.get(&id) else {
                return false;
            };
            let Some((number, doc, want)) = channel.waiting.next_want(from) else {
                return false;
            };
            if !channel.waiting.is_due(want) {
                return false;
            }
            if channel.waiting.answers.contains_key(doc) {
                from = number + 1;
                continue;
            }
            let document = self.docs.get(doc).filter(|_| self.may_see(id, doc));
            let Some(document) = document else {
                let taken = self.waiting(id, |waiting| waiting.take_want(number));
                self.answer_unavailable(id, taken);
                return true;
            };
            if document.tasks == 0
                && let Some(transmission) = answer_without_export(&document.head, want)
            {
                let taken = self.waiting(id, |waiting| waiting.take_want(number));
                self.answer_at_once(id, taken, transmission);
                return true;
            }
            match self.start_answer(id, number) {
                Start::Begun => return true,
                Start::QueueFull => return false,
                // A smaller document may fit.
                Start::MemoryFull => {
                    from = number + 1;
                    tried += 1;
                    if tried == STARVED_TRIES {
                        return false;
                    }
                }
            }
        }
    }

    fn answer_unavailable(&mut self, id: ChannelId, taken: Option<(DocId, Want)>) {
        let Some((doc, want)) = taken else {
            return;
        };
        if matches!(want.form, Form::Response { .. }) {
            // The same response for a missing and for a hidden document, so that names do not leak.
            let response = ChannelMsg::SyncResponse {
                doc_id: doc.to_string(),
                transmission: Transmission::Unavailable,
                ephemeral: None,
            };
            self.send(id, Some(&doc), response);
        }
        if let Some(token) = want.token {
            self.settle(id, token, Ok(()));
        }
    }

    fn answer_at_once(
        &mut self,
        id: ChannelId,
        taken: Option<(DocId, Want)>,
        transmission: Transmission,
    ) {
        let Some((doc, want)) = taken else {
            return;
        };
        // A subscriber that is up to date needs no update.
        if matches!(want.form, Form::Response { .. }) {
            self.answer(vec![id], &doc, transmission, want.form);
        }
        if let Some(token) = want.token {
            self.settle(id, token, Ok(()));
        }
    }

    /// Starts the export of a wanted document, or joins one that is under way.
    fn start_answer(&mut self, id: ChannelId, number: u64) -> Start {
        let window = self.window();
        let Some(channel) = self.channels.get(&id) else {
            return Start::QueueFull;
        };
        let waiting = &channel.waiting;
        let Some((_, doc, want)) = waiting.next_want(number) else {
            return Start::QueueFull;
        };
        let Some(document) = self.docs.get(doc) else {
            return Start::QueueFull;
        };
        let bytes = usize::try_from(document.head.size).unwrap_or(usize::MAX);
        let bytes = bytes.max(ANSWER_MIN);
        let queued = waiting.queue.bytes.saturating_add(waiting.answer_bytes());
        let within_window = queued.saturating_add(bytes) <= window;
        // A large document is exported alone.
        if waiting.answers.len() >= self.limits.answers.max(1)
            || (!waiting.answers.is_empty() && !within_window)
        {
            return Start::QueueFull;
        }
        let joined = document.joinable.filter(|task| {
            let running = self.tasks.get(task).map(|running| &running.purpose);
            matches!(running, Some(Purpose::Answer { since, .. }) if *since == want.since)
        });
        let all = self.outbound.saturating_add(self.reserved);
        // An export larger than all queues may start while no other large one is queued.
        let limit = self.limits.outbound_bytes;
        let fits = all.saturating_add(bytes) <= limit || all <= limit / 2;
        if joined.is_none() && !within_window && !fits {
            self.starved.insert(id);
            return Start::MemoryFull;
        }
        let Some((doc, want)) = self.waiting(id, |waiting| waiting.take_want(number)) else {
            return Start::QueueFull;
        };
        let recipient = Recipient {
            channel: id,
            form: want.form,
            token: want.token,
        };
        let task = match joined {
            Some(task) => task,
            None => {
                self.reserved += bytes;
                if let Some(document) = self.docs.get_mut(&doc) {
                    document.tasks += 1;
                }
                let since = want.since.clone();
                let purpose = Purpose::Answer {
                    to: Vec::new(),
                    since: want.since,
                    bytes,
                };
                let running = Running {
                    doc: doc.clone(),
                    origin: None,
                    purpose,
                };
                self.start(&doc, Work::Answer { since }, running)
            }
        };
        if let Some(Running {
            purpose: Purpose::Answer { to, .. },
            ..
        }) = self.tasks.get_mut(&task)
        {
            to.push(recipient);
        }
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.waiting.answers.insert(doc, (task, bytes));
        }
        Start::Begun
    }
}
