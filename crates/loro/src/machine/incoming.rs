//! Messages from peers, and the responses to them.

use std::time::Instant;

use breakbulk_message::loro::{
    ChannelMsg, DeleteStatus, PeerIdentity, Transmission, VersionVector,
};

use super::done::{Purpose, Running};
use super::types::{ChannelId, DocId, Event, Output, Refused, Work};
use super::version::EMPTY_SNAPSHOT;
use super::waiting::{Form, Want};
use super::{Document, Hub};
use crate::permissions::Peer;

/// The longest peer id or name; both are stored and logged.
const NAME_MAX: usize = 256;

/// A response of at least this size is not made again while it is on its way.
pub(super) const LARGE: usize = 256 << 10;

type Handled = Result<(), Refused>;

impl Hub {
    /// Handles the messages of one frame. `token` identifies the frame in [`Output::Settle`], which comes
    /// once all its changes are stored.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        channel: ChannelId,
        token: u64,
        messages: Vec<ChannelMsg>,
    ) {
        let Some(found) = self.channels.get_mut(&channel) else {
            return;
        };
        found.begin(token);
        let mut outcome = Ok(());
        let mut left = self.limits.batch;
        for message in messages {
            if let Err(refused) = self.handle_message(now, (channel, token), message, &mut left) {
                // A shortage of memory or room on this side is no fault of the peer.
                if refused.status != 503 {
                    self.fault(now, channel, &refused.error);
                }
                outcome = outcome.and(Err(refused));
            }
        }
        // A peer that takes the channel for established knew this node before it was restarted.
        let found = self.channels.get(&channel);
        if outcome.is_err() && found.is_some_and(|found| found.peer.is_none()) {
            self.greet(channel);
        }
        self.settle(channel, token, outcome);
        self.ready.insert(channel);
    }

    pub(super) fn settle(&mut self, channel: ChannelId, token: u64, outcome: Handled) {
        let found = self.channels.get_mut(&channel);
        if let Some(outcome) = found.and_then(|found| found.end(token, outcome)) {
            self.out.push_back(Output::Settle {
                channel,
                token,
                outcome,
            });
        }
    }

    fn handle_message(
        &mut self,
        now: Instant,
        origin: (ChannelId, u64),
        message: ChannelMsg,
        left: &mut usize,
    ) -> Handled {
        let channel = origin.0;
        self.count_message(left)?;
        match message {
            ChannelMsg::EstablishRequest { identity } => {
                let response = ChannelMsg::EstablishResponse {
                    identity: self.me.clone(),
                };
                self.establish(channel, identity, |hub| hub.send(channel, None, response))
            }
            ChannelMsg::EstablishResponse { identity } => self.establish(channel, identity, |_| {}),
            ChannelMsg::Batch { messages } => {
                for message in messages {
                    self.handle_message(now, origin, message, left)?;
                }
                Ok(())
            }
            ChannelMsg::SyncRequest {
                doc_id,
                requester_doc_version,
                bidirectional,
                ephemeral,
            } => {
                let peer = self.peer(channel)?;
                let doc = self.check_doc_id(doc_id)?;
                self.check_version(&requester_doc_version)?;
                let asks_back = bidirectional == Some(true);
                self.handle_sync_request(origin, &peer, &doc, requester_doc_version, asks_back)?;
                // As in the original, other peers get a newcomer's stores at once.
                self.apply_stores(now, channel, &doc, 1, ephemeral.unwrap_or_default())
            }
            ChannelMsg::SyncResponse {
                doc_id,
                transmission,
                ephemeral,
            } => {
                let doc = self.handle_sync_response(origin, doc_id, transmission)?;
                self.apply_stores(now, channel, &doc, 0, ephemeral.unwrap_or_default())
            }
            ChannelMsg::Update {
                doc_id,
                transmission,
            } => {
                let peer = self.peer(channel)?;
                let doc = self.check_doc_id(doc_id)?;
                self.ensure_document(channel, &peer, &doc)?;
                let outcome = self.import(origin, &peer, &doc, transmission, None);
                // If it brought no content, or was refused.
                self.forget_if_empty(&doc);
                outcome
            }
            ChannelMsg::DirectoryRequest { doc_ids } => {
                self.handle_directory_request(channel, doc_ids)
            }
            ChannelMsg::DirectoryResponse { doc_ids } => {
                self.peer(channel)?;
                let docs = self.check_doc_ids(doc_ids)?;
                self.event(Event::Directory { channel, docs });
                Ok(())
            }
            ChannelMsg::NewDoc { doc_ids } => self.handle_new_docs(channel, doc_ids),
            ChannelMsg::DeleteRequest { doc_id } => self.handle_delete_request(origin, doc_id),
            ChannelMsg::DeleteResponse { doc_id, status } => {
                self.handle_delete_response(channel, doc_id, status)
            }
            ChannelMsg::Ephemeral {
                doc_id,
                hops_remaining,
                stores,
            } => {
                self.peer(channel)?;
                let doc = self.check_doc_id(doc_id)?;
                self.apply_stores(now, channel, &doc, hops_remaining, stores)
            }
        }
    }

    /// Counts a message against the limit of one frame.
    fn count_message(&self, left: &mut usize) -> Handled {
        let limit = self.limits.batch;
        let too_many = || Refused::new(413, format!("more than {limit} messages in one frame"));
        *left = left.checked_sub(1).ok_or_else(too_many)?;
        Ok(())
    }

    fn handle_delete_response(
        &mut self,
        channel: ChannelId,
        doc_id: String,
        status: DeleteStatus,
    ) -> Handled {
        self.peer(channel)?;
        let doc = self.check_doc_id(doc_id)?;
        let deleted = status == DeleteStatus::Deleted;
        self.event(Event::DeleteAnswered { doc, deleted });
        Ok(())
    }

    /// Imports what the peer sent of a document, and returns the document's id.
    fn handle_sync_response(
        &mut self,
        origin: (ChannelId, u64),
        doc_id: String,
        transmission: Transmission,
    ) -> Result<DocId, Refused> {
        let peer = self.peer(origin.0)?;
        let doc = self.check_doc_id(doc_id)?;
        let version = match &transmission {
            Transmission::UpToDate { version }
            | Transmission::Snapshot { version, .. }
            | Transmission::Update { version, .. } => Some(version.clone()),
            Transmission::Unavailable => None,
        };
        if let Some(version) = &version {
            self.check_version(version)?;
        }
        let outcome = self.import(origin, &peer, &doc, transmission, version);
        self.forget_if_empty(&doc);
        outcome?;
        Ok(doc)
    }

    /// Records the peer's identity, calls `answer`, then begins the greeting: a sync-request for every
    /// document that the peer may see.
    fn establish(
        &mut self,
        channel: ChannelId,
        identity: PeerIdentity,
        answer: impl FnOnce(&mut Self),
    ) -> Handled {
        let limit = NAME_MAX;
        let name = identity.name.as_ref().map_or(0, String::len);
        if identity.peer_id.len() > limit || name > limit {
            let text = format!("a peer's id or name of more than {limit} bytes");
            return Err(Refused::new(400, text));
        }
        let Some(found) = self.channels.get_mut(&channel) else {
            return Ok(());
        };
        if let Some(peer) = &found.peer {
            if peer.identity.peer_id != identity.peer_id {
                return Err(Refused::new(
                    400,
                    "the peer changed its id within the connection",
                ));
            }
            answer(self);
            return Ok(());
        }
        let peer = Peer {
            identity: identity.clone(),
            claim: found.opening.claim.clone(),
            subject: found.opening.subject.clone(),
            dialed: found.opening.dialed,
        };
        found.peer = Some(peer);
        let deadline = found.deadline;
        self.forget_greeting(channel);
        self.unestablished.remove(&(deadline, channel));
        answer(self);
        self.event(Event::Established { channel, identity });
        let last_news = self.last_news;
        if let Some(found) = self.channels.get_mut(&channel) {
            found.waiting.greeting = Some(None);
            found.waiting.announced = last_news;
        }
        self.ready.insert(channel);
        Ok(())
    }

    /// Subscribes the peer to a document and responds with what the peer lacks.
    fn handle_sync_request(
        &mut self,
        origin: (ChannelId, u64),
        peer: &Peer,
        doc: &DocId,
        since: VersionVector,
        asks_back: bool,
    ) -> Handled {
        let (channel, token) = origin;
        self.check_waiting(channel)?;
        let known = self.ensure_document(channel, peer, doc).is_ok();
        let asks_back = known && asks_back && self.permissions.change(peer, doc);
        if known
            && self.permissions.see(peer, doc)
            && let Err(refused) = self.subscribe(channel, doc)
        {
            self.forget_if_empty(doc);
            return Err(refused);
        }
        if self.is_being_answered(channel, doc, &since, asks_back) {
            return Ok(());
        }
        let want = Want {
            since,
            form: Form::Response { asks_back },
            after: self.channels.get(&channel).map_or(0, |c| c.waiting.sent()),
            token: Some(token),
        };
        if let Some(found) = self.channels.get_mut(&channel) {
            found.begin(token);
        }
        let replaced = self.waiting(channel, |waiting| waiting.want(doc, want));
        if let Some(token) = replaced {
            self.settle(channel, token, Ok(()));
        }
        Ok(())
    }

    /// Whether a large response to an earlier request with the same version is being exported or sent: it is
    /// the response to this one too. Later changes follow it as updates.
    fn is_being_answered(
        &mut self,
        id: ChannelId,
        doc: &DocId,
        since: &VersionVector,
        asks_back: bool,
    ) -> bool {
        let Some(channel) = self.channels.get(&id) else {
            return false;
        };
        let waiting = &channel.waiting;
        // The response must contain the changes that the peer sent before its request.
        let mut changes = waiting.changes.iter().map(|(doc, ..)| doc);
        let tasks = waiting.tasks.iter().filter_map(|id| self.tasks.get(id));
        if changes.any(|of| of == doc) || tasks.map(|task| &task.doc).any(|of| of == doc) {
            return false;
        }
        if waiting.is_sending(doc, since) {
            if asks_back {
                self.ask_channel(id, doc, false);
            }
            return true;
        }
        let Some((task, bytes)) = waiting.answers.get(doc) else {
            return false;
        };
        // Small requests are answered one by one, as by the original.
        if *bytes < LARGE {
            return false;
        }
        let Some(Running {
            purpose: Purpose::Answer {
                to, since: asked, ..
            },
            ..
        }) = self.tasks.get_mut(task)
        else {
            return false;
        };
        let own = to.iter_mut().find(|recipient| recipient.channel == id);
        match own.map(|recipient| &mut recipient.form) {
            Some(Form::Response { asks_back: asks }) if asked == since => {
                *asks |= asks_back;
                true
            }
            _ => false,
        }
    }

    /// Sends an export to these channels: a sync-response, in one batch with a sync-request if the peers
    /// asked for one, or an update.
    pub(super) fn answer(
        &mut self,
        to: Vec<ChannelId>,
        doc: &DocId,
        transmission: Transmission,
        form: Form,
    ) {
        if to.is_empty() {
            return;
        }
        let doc_id = doc.to_string();
        let message = match form {
            Form::Change => ChannelMsg::Update {
                doc_id,
                transmission,
            },
            Form::Response { asks_back } => {
                let response = ChannelMsg::SyncResponse {
                    doc_id,
                    transmission,
                    ephemeral: self.stores_of(doc, false),
                };
                match asks_back {
                    true => ChannelMsg::Batch {
                        messages: vec![response, self.sync_request(doc, false)],
                    },
                    false => response,
                }
            }
        };
        self.send_all(to, Some(doc), message);
    }

    fn import(
        &mut self,
        origin: (ChannelId, u64),
        peer: &Peer,
        doc: &DocId,
        transmission: Transmission,
        answered: Option<VersionVector>,
    ) -> Handled {
        let (channel, _) = origin;
        let announced = match self.channels.get_mut(&channel) {
            Some(found) => found.requested.remove(doc),
            None => false,
        };
        let content = matches!(
            transmission,
            Transmission::Snapshot { .. } | Transmission::Update { .. }
        );
        if announced && content {
            self.ensure_document(channel, peer, doc)?;
        }
        if !self.docs.contains_key(doc) {
            if announced || transmission == Transmission::Unavailable {
                let doc = doc.clone();
                self.event(Event::Answered {
                    channel,
                    doc,
                    version: None,
                });
                return Ok(());
            }
            let text = format!("document {doc:?} was sent without a request for it");
            return Err(Refused::new(400, text));
        }
        let (data, snapshot) = match transmission {
            // The snapshot of an empty document brings no changes.
            Transmission::Snapshot { data, .. } if data[..] != *EMPTY_SNAPSHOT => (data, true),
            Transmission::Update { data, .. } => (data, false),
            Transmission::Snapshot { .. }
            | Transmission::UpToDate { .. }
            | Transmission::Unavailable => {
                let doc = doc.clone();
                self.event(Event::Answered {
                    channel,
                    doc,
                    version: answered,
                });
                return Ok(());
            }
        };
        if !self.permissions.change(peer, doc) {
            let text = format!("no right to change document {doc:?}");
            return Err(Refused::new(403, text).of(doc));
        }
        let quota = self.permissions.quota(peer).bytes;
        if let Some(found) = self.channels.get_mut(&channel) {
            let sent = found.sent.saturating_add(data.len() as u64);
            if sent > quota {
                let text = format!("{sent} bytes of changes by one connection, {quota} allowed");
                return Err(Refused::new(413, text).of(doc));
            }
            found.sent = sent;
        }
        let purpose = Purpose::Import { answered };
        self.peer_task(origin, doc, Work::Import { data, snapshot }, purpose);
        Ok(())
    }

    fn handle_directory_request(
        &mut self,
        channel: ChannelId,
        doc_ids: Option<Vec<String>>,
    ) -> Handled {
        self.peer(channel)?;
        self.check_waiting(channel)?;
        match doc_ids {
            Some(wanted) => {
                let docs = self.check_doc_ids(wanted)?;
                self.waiting(channel, |waiting| waiting.look_up(docs));
            }
            // A listing that is being sent begins again.
            None => self.waiting(channel, |waiting| waiting.listing = Some(None)),
        }
        Ok(())
    }

    /// Handles the names of documents that the peer has: requests those that it may create here. They
    /// exist here once their content comes.
    fn handle_new_docs(&mut self, channel: ChannelId, doc_ids: Vec<String>) -> Handled {
        let peer = self.peer(channel)?;
        for doc in self.check_doc_ids(doc_ids)? {
            let known = self.docs.contains_key(&doc);
            if !self.permissions.see(&peer, &doc)
                || !known && self.check_creation(channel, &peer, &doc).is_err()
            {
                continue;
            }
            self.check_waiting(channel)?;
            if let Some(found) = self.channels.get_mut(&channel)
                && !known
            {
                found.requested.insert(doc.clone());
            }
            self.ask_channel(channel, &doc, true);
        }
        Ok(())
    }

    fn handle_delete_request(&mut self, origin: (ChannelId, u64), doc_id: String) -> Handled {
        let peer = self.peer(origin.0)?;
        let doc = self.check_doc_id(doc_id)?;
        let shown = self.docs.contains_key(&doc) && self.permissions.see(&peer, &doc);
        if shown && self.permissions.delete(&peer, &doc) {
            self.peer_task(origin, &doc, Work::Delete, Purpose::Delete);
            return Ok(());
        }
        let doc_id = doc.to_string();
        let status = DeleteStatus::Ignored;
        let response = ChannelMsg::DeleteResponse { doc_id, status };
        self.send(origin.0, Some(&doc), response);
        Ok(())
    }

    fn subscribe(&mut self, channel: ChannelId, doc: &DocId) -> Handled {
        let (limit, all) = (self.limits.subscriptions, self.limits.all_subscriptions);
        let (Some(found), Some(document)) =
            (self.channels.get_mut(&channel), self.docs.get_mut(doc))
        else {
            return Ok(());
        };
        if found.subscriptions.contains(doc) {
            return Ok(());
        }
        let own = found.subscriptions.len();
        if own >= limit {
            let text = format!("more than {limit} documents by one connection");
            return Err(Refused::new(429, text));
        }
        if self.subscriptions >= all && own >= self.limits.subscription_share {
            let text = format!("more than {all} subscriptions by all connections together");
            return Err(Refused::new(503, text));
        }
        found.subscriptions.insert(doc.clone());
        document.subscribers.insert(channel);
        self.subscriptions += 1;
        Ok(())
    }

    /// Makes the document if it does not exist and the peer may create it.
    fn ensure_document(&mut self, channel: ChannelId, peer: &Peer, doc: &DocId) -> Handled {
        if self.docs.contains_key(doc) {
            return Ok(());
        }
        self.check_creation(channel, peer, doc)?;
        if let Some(found) = self.channels.get_mut(&channel) {
            found.created += 1;
        }
        self.docs.insert(doc.clone(), Document::default());
        self.count_empty(doc);
        Ok(())
    }

    /// Whether the peer may create this document, which does not exist.
    fn check_creation(&self, channel: ChannelId, peer: &Peer, doc: &DocId) -> Handled {
        let stored = self.docs.len() - self.empty;
        let limit = self.limits.documents;
        if stored >= limit {
            return Err(Refused::new(429, format!("more than {limit} documents")));
        }
        let quota = self.permissions.quota(peer).documents;
        let allowed = self.permissions.create(peer, doc) && self.permissions.see(peer, doc);
        let found = self.channels.get(&channel);
        let own = found.map_or(usize::MAX, |found| found.created + found.requested.len());
        if !allowed || own >= quota {
            let text = match allowed {
                true => format!("document {doc:?} is over the limit of {quota} by one connection"),
                false => format!("no right to create document {doc:?}"),
            };
            return Err(Refused::new(403, text).of(doc));
        }
        let limit = self.limits.empty_documents;
        if self.empty >= limit && own >= self.limits.empty_share {
            let text = format!("more than {limit} documents without content");
            return Err(Refused::new(503, text));
        }
        Ok(())
    }

    /// Whether another request of this channel may wait for its peer to read.
    fn check_waiting(&self, channel: ChannelId) -> Handled {
        let own = self.channels.get(&channel).map_or(0, |c| c.waiting.bytes);
        let (limit, all) = (self.limits.waiting_bytes, self.limits.all_waiting_bytes);
        if own >= limit {
            let text = format!("more than {limit} bytes of requests wait for the peer to read");
            return Err(Refused::new(429, text));
        }
        // Each connection may have a few requests waiting, even if those of others fill the limit.
        if self.waiting_bytes >= all && own >= limit / 256 {
            let text = format!("more than {all} bytes of requests of all connections wait");
            return Err(Refused::new(503, text));
        }
        Ok(())
    }

    fn peer(&self, channel: ChannelId) -> Result<Peer, Refused> {
        let peer = self.channels.get(&channel).and_then(|c| c.peer.clone());
        peer.ok_or_else(|| Refused::new(400, "the channel is not established"))
    }

    fn check_doc_id(&self, doc_id: String) -> Result<DocId, Refused> {
        let (len, limit) = (doc_id.len(), self.limits.doc_id);
        if len == 0 || len > limit {
            let text = format!("a document's name has {len} bytes; 1 to {limit} are allowed");
            return Err(Refused::new(400, text));
        }
        // Use the name that is in memory already, if the document exists.
        let known = self.docs.get_key_value(doc_id.as_str());
        Ok(known.map_or_else(|| doc_id.into(), |(doc, _)| doc.clone()))
    }

    fn check_doc_ids(&self, doc_ids: Vec<String>) -> Result<Vec<DocId>, Refused> {
        let limit = self.limits.subscriptions;
        if doc_ids.len() > limit {
            return Err(Refused::new(413, format!("more than {limit} documents")));
        }
        doc_ids
            .into_iter()
            .map(|doc_id| self.check_doc_id(doc_id))
            .collect()
    }

    fn check_version(&self, version: &VersionVector) -> Handled {
        let (len, limit) = (version.entries().len(), self.limits.version_entries);
        if len > limit {
            let text = format!("a version vector of {len} entries, {limit} are allowed");
            return Err(Refused::new(413, text));
        }
        Ok(())
    }
}
