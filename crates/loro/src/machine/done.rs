//! Finished tasks: sends the changes and responses that waited until they were stored.

use std::time::Instant;

use breakbulk_message::loro::{ChannelMsg, DeleteStatus, Transmission, VersionVector};

use super::incoming::LARGE;
use super::types::{ChannelId, DocId, Event, Finished, Outcome, Refused, TaskId, WorkError};
use super::waiting::{Form, Want};
use super::{Document, Hub};

/// A task that is not finished.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) doc: DocId,
    /// The channel and token of the message whose changes it works on.
    pub(super) origin: Option<(ChannelId, u64)>,
    pub(super) purpose: Purpose,
}

#[derive(Debug)]
pub(super) enum Purpose {
    Import {
        /// The peer's version, if the changes came as the response to a sync-request.
        answered: Option<VersionVector>,
    },
    Answer {
        to: Vec<Recipient>,
        /// The version that all recipients have.
        since: VersionVector,
        /// The expected size.
        bytes: usize,
    },
    Local,
    Delete,
    Others,
}

/// A channel that gets an export.
#[derive(Debug)]
pub(super) struct Recipient {
    pub(super) channel: ChannelId,
    pub(super) form: Form,
    /// The frame that asked for it.
    pub(super) token: Option<u64>,
}

impl Hub {
    /// Takes the result of a task. Its changes must be stored.
    pub fn handle_done(&mut self, now: Instant, id: TaskId, finished: Finished) {
        let Some(Running {
            doc,
            origin,
            purpose,
        }) = self.tasks.remove(&id)
        else {
            return;
        };
        let Finished {
            head,
            local,
            result,
        } = finished;
        let mut before = VersionVector::default();
        if let Some(document) = self.docs.get_mut(&doc) {
            document.tasks -= 1;
            document.joinable = document.joinable.filter(|task| *task != id);
            // After a failure of the store the stored version is unknown.
            let lost = matches!(
                result,
                Err(WorkError::Store { .. } | WorkError::Damaged { .. } | WorkError::Cancelled)
            );
            if !lost {
                before = std::mem::replace(&mut document.head, head).version;
            }
        }
        self.count_empty(&doc);
        if let Some((channel, _)) = origin
            && let Some(found) = self.channels.get_mut(&channel)
        {
            found.waiting.tasks.remove(&id);
            self.ready.insert(channel);
        }
        if let Some(change) = local {
            self.broadcast_change(&doc, change, &before, None);
        }
        match purpose {
            Purpose::Answer { to, bytes, since } => {
                self.reserved -= bytes;
                self.answered(&doc, to, &since, result);
            }
            purpose => {
                let by_others = matches!(purpose, Purpose::Others);
                if by_others && matches!(result, Err(WorkError::Store { .. })) {
                    self.untaken.insert(doc.clone());
                }
                let outcome = match result {
                    Ok(outcome) => self.succeeded(&doc, origin, purpose, outcome, &before),
                    Err(error) => self.failed(now, &doc, origin, error),
                };
                if let Some((channel, token)) = origin {
                    self.settle(channel, token, outcome);
                }
            }
        }
        self.forget_if_empty(&doc);
    }

    /// Sends an export to all that asked for it, one message for each form.
    fn answered(
        &mut self,
        doc: &DocId,
        to: Vec<Recipient>,
        since: &VersionVector,
        result: Result<Outcome, WorkError>,
    ) {
        for recipient in &to {
            if let Some(channel) = self.channels.get_mut(&recipient.channel) {
                channel.waiting.answers.remove(doc);
                self.ready.insert(recipient.channel);
            }
        }
        match result {
            Ok(Outcome::Answer(transmission)) => {
                let forms = [
                    Form::Response { asks_back: false },
                    Form::Response { asks_back: true },
                    Form::Change,
                ];
                // A peer that has read a large response asks with another version then. After a response
                // without changes the same request may follow at once, and needs a response of its own.
                let large = match &transmission {
                    Transmission::Snapshot { data, .. } | Transmission::Update { data, .. } => {
                        data.len() >= LARGE
                    }
                    Transmission::UpToDate { .. } | Transmission::Unavailable => false,
                };
                for form in forms {
                    let his = to.iter().filter(|recipient| recipient.form == form);
                    let his = his.map(|recipient| recipient.channel);
                    let his: Vec<ChannelId> = his.filter(|id| self.may_see(*id, doc)).collect();
                    self.answer(his.clone(), doc, transmission.clone(), form);
                    for id in his.into_iter().filter(|_| large) {
                        if let Some(channel) = self.channels.get_mut(&id) {
                            channel.waiting.begin_sending(doc, since);
                        }
                    }
                }
            }
            Ok(_) | Err(WorkError::Cancelled) => {}
            Err(error) => self.unanswered(doc, &to, error),
        }
        for recipient in to {
            if let Some(token) = recipient.token {
                self.settle(recipient.channel, token, Ok(()));
            }
        }
    }

    /// An export failed: the peers that asked for it are told that the document is unavailable.
    fn unanswered(&mut self, doc: &DocId, to: &[Recipient], error: WorkError) {
        let asked = to
            .iter()
            .filter(|r| matches!(r.form, Form::Response { .. }));
        let asked = asked.map(|recipient| recipient.channel).collect();
        let response = ChannelMsg::SyncResponse {
            doc_id: doc.to_string(),
            transmission: Transmission::Unavailable,
            ephemeral: None,
        };
        self.send_all(asked, Some(doc), response);
        let doc = doc.clone();
        self.event(Event::Failed { doc, error });
    }

    fn succeeded(
        &mut self,
        doc: &DocId,
        origin: Option<(ChannelId, u64)>,
        purpose: Purpose,
        outcome: Outcome,
        before: &VersionVector,
    ) -> Result<(), Refused> {
        let from = origin.map(|(channel, _)| channel);
        match (purpose, outcome) {
            (Purpose::Import { answered }, Outcome::Imported(news)) => {
                let is_new = news.is_some();
                if let Some(change) = news {
                    self.broadcast_change(doc, change, before, from);
                }
                if let (Some(channel), Some(version)) = (from, answered) {
                    if is_new {
                        self.confirm(channel, doc);
                    }
                    let doc = doc.clone();
                    self.event(Event::Answered {
                        channel,
                        doc,
                        version: Some(version),
                    });
                }
                Ok(())
            }
            (Purpose::Import { .. }, Outcome::Gap) => {
                // The response to this request has the missing changes, and these again.
                if let Some(channel) = from {
                    self.ask_channel(channel, doc, false);
                }
                let text = format!("earlier changes of document {doc:?} are missing: sync first");
                Err(Refused::new(409, text))
            }
            (Purpose::Others, Outcome::Imported(Some(change))) => {
                self.broadcast_change(doc, change, before, None);
                Ok(())
            }
            (Purpose::Delete | Purpose::Others, Outcome::Deleted(deleted)) => {
                self.deleted(doc, from, deleted);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Tells a peer that its response to this node's sync-request is stored, unless a response to a request
    /// of its own follows, which says the same. The original's client takes a document as synced only then.
    fn confirm(&mut self, id: ChannelId, doc: &DocId) {
        let Some(channel) = self.channels.get(&id) else {
            return;
        };
        let waiting = &channel.waiting;
        let follows = waiting.wants(doc) || waiting.answers.contains_key(doc);
        if channel.opening.dialed || follows || !self.has_room(id) {
            return;
        }
        let Some(head) = self.head(doc) else {
            return;
        };
        let version = head.version.clone();
        let response = ChannelMsg::SyncResponse {
            doc_id: doc.to_string(),
            transmission: Transmission::UpToDate { version },
            ephemeral: None,
        };
        if self.may_see(id, doc) {
            self.send(id, Some(doc), response);
        }
    }

    fn failed(
        &mut self,
        now: Instant,
        doc: &DocId,
        origin: Option<(ChannelId, u64)>,
        error: WorkError,
    ) -> Result<(), Refused> {
        let text = error.to_string();
        let status = match &error {
            WorkError::Garbage { .. } => 400,
            WorkError::TooLarge { .. } | WorkError::Expands { .. } => 413,
            WorkError::Store { .. } | WorkError::Damaged { .. } | WorkError::Cancelled => 503,
        };
        match origin {
            _ if error == WorkError::Cancelled => {}
            Some((channel, _)) if status != 503 => self.fault(now, channel, &text),
            // The details are for this node's operator, not for the peer. The peer stays connected: it can
            // still read, and is asked for its changes once they can be stored.
            Some((channel, _)) => {
                if let Some(found) = self.channels.get_mut(&channel) {
                    found.refused = true;
                }
                let failed = Event::Failed {
                    doc: doc.clone(),
                    error,
                };
                self.event(failed);
                let text = "the changes cannot be stored now: try again later";
                return Err(Refused::new(status, text).of(doc));
            }
            None => {
                let doc = doc.clone();
                self.event(Event::Failed { doc, error });
            }
        }
        Err(Refused::new(status, text).of(doc))
    }

    /// The store takes changes again: stores the application's edits, takes over what other nodes stored
    /// meanwhile, and asks the peers whose changes were refused for what they have.
    pub fn handle_recovered(&mut self) {
        for doc in std::mem::take(&mut self.untaken) {
            self.changed_by_others(&doc);
        }
        let open = self.docs.iter().filter(|(_, document)| document.local > 0);
        let open: Vec<DocId> = open.map(|(doc, _)| doc.clone()).collect();
        for doc in &open {
            self.edited(doc);
        }
        for (id, channel) in &mut self.channels {
            if std::mem::take(&mut channel.refused) {
                channel.waiting.greeting = Some(None);
                self.ready.insert(*id);
            }
        }
    }

    /// Sends a change to all other subscribers, and announces the document if it is new. A subscriber
    /// that has not read enough gets this change later, with all that followed, as one update since
    /// `before`.
    fn broadcast_change(
        &mut self,
        doc: &DocId,
        transmission: Transmission,
        before: &VersionVector,
        from: Option<ChannelId>,
    ) {
        let mut to = self.visible_subscribers(doc, from);
        to.retain(|id| {
            let channel = self.channels.get(id);
            if channel.is_some_and(|channel| channel.waiting.wants(doc)) {
                return false;
            }
            let room = self.has_room(*id);
            if !room {
                let want = Want {
                    since: before.clone(),
                    form: Form::Change,
                    after: 0,
                    token: None,
                };
                self.waiting(*id, |waiting| waiting.want(doc, want));
            }
            room
        });
        let message = ChannelMsg::Update {
            doc_id: doc.to_string(),
            transmission,
        };
        self.send_all(to, Some(doc), message);
        let version = self.head(doc).map(|head| head.version.clone());
        self.event(Event::Changed {
            doc: doc.clone(),
            version: version.unwrap_or_default(),
        });
        self.announce(doc, from);
    }

    /// Sends `new-doc`, once per document, to the peers that dialed this node and do not subscribe to it.
    pub(super) fn announce(&mut self, doc: &DocId, but: Option<ChannelId>) {
        let Some(document) = self.docs.get_mut(doc) else {
            return;
        };
        if std::mem::replace(&mut document.announced, true) {
            return;
        }
        self.last_news += 1;
        document.news = self.last_news;
        self.news.insert(self.last_news, (doc.clone(), but));
        let channels = self.channels.iter();
        let established = channels.filter(|(_, c)| !c.opening.dialed && c.peer.is_some());
        self.ready.extend(established.map(|(id, _)| *id));
    }

    /// A document was deleted: tells its subscribers that it is unavailable.
    fn deleted(&mut self, doc: &DocId, from: Option<ChannelId>, deleted: bool) {
        let doc_id = doc.to_string();
        if let Some(channel) = from {
            let status = if deleted {
                DeleteStatus::Deleted
            } else {
                DeleteStatus::Ignored
            };
            let doc_id = doc_id.clone();
            let response = ChannelMsg::DeleteResponse { doc_id, status };
            self.send(channel, Some(doc), response);
        }
        if !deleted {
            return;
        }
        let to = self.visible_subscribers(doc, from);
        let gone = ChannelMsg::SyncResponse {
            doc_id,
            transmission: Transmission::Unavailable,
            ephemeral: None,
        };
        self.send_all(to, Some(doc), gone);
        if let Some(Document {
            subscribers,
            tasks,
            local,
            ..
        }) = self.remove_document(doc)
        {
            for id in subscribers {
                if let Some(channel) = self.channels.get_mut(&id) {
                    channel.waiting.forget_sending(doc);
                    self.subscriptions -= usize::from(channel.subscriptions.remove(doc));
                }
            }
            // Later tasks are for a new document of the same name.
            if tasks > 0 || local > 0 {
                let document = Document {
                    tasks,
                    local,
                    ..Document::default()
                };
                self.docs.insert(doc.clone(), document);
                self.count_empty(doc);
            }
        }
        self.presence.drop_doc(doc);
        self.event(Event::Deleted { doc: doc.clone() });
    }
}
