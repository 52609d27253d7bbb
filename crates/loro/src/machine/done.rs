//! Finished tasks: sends the changes and responses that waited until they were stored.

use std::time::Instant;

use breakbulk_message::loro::{ChannelMsg, DeleteStatus, Transmission, VersionVector};

use super::types::{ChannelId, DocId, Event, Finished, Outcome, Refused, TaskId, WorkError};
use super::{Document, Hub};

/// A task that is not finished.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) doc: DocId,
    /// The channel and token of the message that caused it.
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
        asks_back: bool,
    },
    Local,
    Delete,
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
        if let Some(document) = self.docs.get_mut(&doc) {
            document.tasks -= 1;
            // After a failure of the store the stored version is unknown.
            let lost = matches!(
                result,
                Err(WorkError::Store { .. } | WorkError::Damaged { .. })
            );
            if !lost {
                document.head = head;
            }
        }
        if let Some(change) = local {
            self.broadcast_change(&doc, change, None);
        }
        let outcome = match result {
            Ok(outcome) => self.succeeded(&doc, origin, purpose, outcome),
            Err(error) => self.failed(now, &doc, origin, error),
        };
        if let Some((channel, token)) = origin {
            self.settle(channel, token, outcome);
        }
        self.forget_if_empty(&doc);
    }

    fn succeeded(
        &mut self,
        doc: &DocId,
        origin: Option<(ChannelId, u64)>,
        purpose: Purpose,
        outcome: Outcome,
    ) -> Result<(), Refused> {
        let from = origin.map(|(channel, _)| channel);
        match (purpose, outcome) {
            (Purpose::Import { answered }, Outcome::Imported(news)) => {
                if let Some(change) = news {
                    self.broadcast_change(doc, change, from);
                }
                if let (Some(channel), Some(version)) = (from, answered) {
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
                    let request = self.sync_request(doc, false);
                    self.send(channel, Some(doc), request);
                }
                let text = format!("earlier changes of document {doc:?} are missing: sync first");
                Err(Refused::new(409, text))
            }
            (Purpose::Answer { asks_back }, Outcome::Answer(transmission)) => {
                if let Some(channel) = from.filter(|channel| self.channels.contains_key(channel)) {
                    self.answer(channel, doc, transmission, asks_back);
                }
                Ok(())
            }
            (Purpose::Delete, Outcome::Deleted(deleted)) => {
                self.deleted(doc, from, deleted);
                Ok(())
            }
            _ => Ok(()),
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
            WorkError::TooLarge { .. } => 413,
            WorkError::Store { .. } | WorkError::Damaged { .. } => 503,
        };
        match origin {
            Some((channel, _)) if status != 503 => self.fault(now, channel, &text),
            // The details are for this node's operator, not for the peer.
            Some((channel, token)) => {
                let refused = Refused::new(status, "this side cannot keep changes now");
                self.settle(channel, token, Err(refused));
                let reason = "this side cannot keep changes now: try again later";
                self.cut_off(channel, 1011, reason.to_owned());
                let doc = doc.clone();
                self.event(Event::Failed { doc, error });
            }
            None => {
                let doc = doc.clone();
                self.event(Event::Failed { doc, error });
            }
        }
        Err(Refused::new(status, text))
    }

    /// Sends a change to all other subscribers, and announces the document if it is new.
    fn broadcast_change(
        &mut self,
        doc: &DocId,
        transmission: Transmission,
        from: Option<ChannelId>,
    ) {
        let to = self.visible_subscribers(doc, from);
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
        let channels = self.channels.iter();
        let unsubscribed = channels.filter(|(id, channel)| {
            Some(**id) != but
                && !channel.opening.dialed
                && !channel.subscriptions.contains(doc)
                && self.may_see(**id, doc)
        });
        let to: Vec<ChannelId> = unsubscribed.map(|(id, _)| *id).collect();
        let message = ChannelMsg::NewDoc {
            doc_ids: vec![doc.to_string()],
        };
        self.send_all(to, Some(doc), message);
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
        let document = self.docs.get_mut(doc).map(std::mem::take);
        if let Some(Document {
            subscribers,
            tasks,
            local,
            ..
        }) = document
        {
            for id in subscribers {
                if let Some(channel) = self.channels.get_mut(&id) {
                    channel.subscriptions.remove(doc);
                }
            }
            // Later tasks are for a new document of the same name.
            if tasks > 0 || local > 0 {
                if let Some(document) = self.docs.get_mut(doc) {
                    document.tasks = tasks;
                    document.local = local;
                }
            } else {
                self.docs.remove(doc);
            }
        }
        self.presence.drop_doc(doc);
        self.event(Event::Deleted { doc: doc.clone() });
    }
}
