//! What this side does of its own accord.

use std::time::Instant;

use breakbulk_message::loro::{ChannelMsg, EphemeralStore};
use bytes::Bytes;

use super::Hub;
use super::done::{Running, Why};
use super::types::{ChannelId, DocId, Work};

impl Hub {
    /// A document is opened on this side: whoever may see it hears of it.
    pub fn open_document(&mut self, doc: &DocId) {
        let document = self.docs.entry(doc.clone()).or_default();
        document.local += 1;
        if document.local > 1 {
            return;
        }
        self.announce(doc, None);
        for channel in self.dialed(doc) {
            let request = self.sync_request(doc, true);
            self.send(channel, Some(doc), request);
        }
    }

    /// A document is closed on this side. It stays where it has content.
    pub fn close_document(&mut self, doc: &DocId) {
        if let Some(document) = self.docs.get_mut(doc) {
            document.local = document.local.saturating_sub(1);
        }
        self.forget_if_empty(doc);
    }

    /// A document was edited on this side: the edits are to be kept, and told then.
    pub fn edited(&mut self, doc: &DocId) {
        if self.docs.contains_key(doc) {
            let running = Running {
                doc: doc.clone(),
                origin: None,
                why: Why::Local,
            };
            self.task(doc, Work::Local, running);
        }
    }

    /// Asks those whom this side called what they have of a document. False: there is nobody to ask.
    pub fn ask(&mut self, doc: &DocId, asks_back: bool) -> bool {
        let channels = self.dialed(doc);
        let any = !channels.is_empty();
        for channel in channels {
            let request = self.sync_request(doc, asks_back);
            self.send(channel, Some(doc), request);
        }
        any
    }

    /// Asks those whom this side called which documents they have. False: there is nobody to ask.
    pub fn ask_directory(&mut self) -> bool {
        let established = self.channels.iter();
        let established = established.filter(|(_, c)| c.opening.dialed && c.peer.is_some());
        let to: Vec<ChannelId> = established.map(|(id, _)| *id).collect();
        let any = !to.is_empty();
        self.send_all(to, None, ChannelMsg::DirectoryRequest { doc_ids: None });
        any
    }

    /// Deletes a document on this side.
    pub fn delete(&mut self, doc: &DocId) {
        if self.docs.contains_key(doc) {
            let running = Running {
                doc: doc.clone(),
                origin: None,
                why: Why::Delete,
            };
            self.task(doc, Work::Delete, running);
        }
    }

    /// Asks those whom this side called to delete a document.
    pub fn ask_delete(&mut self, doc: &DocId) -> bool {
        let to = self.dialed(doc);
        let any = !to.is_empty();
        let doc_id = doc.to_string();
        self.send_all(to, Some(doc), ChannelMsg::DeleteRequest { doc_id });
        any
    }

    /// Sets this side's ephemeral store of a document; empty data takes it away.
    pub fn set_ephemeral(&mut self, now: Instant, doc: &DocId, namespace: &str, data: Bytes) {
        let store = EphemeralStore {
            peer_id: self.me.peer_id.clone(),
            data,
            namespace: namespace.to_owned(),
        };
        let room = self.room();
        self.presence.apply(now, None, doc, &store, room);
        self.arm(now);
        self.tell_stores(doc, 1, vec![store], None);
    }

    /// All ephemeral stores of a document.
    pub fn ephemeral(&self, doc: &DocId) -> Vec<EphemeralStore> {
        self.presence.of(doc, false)
    }

    /// Whoever this side called, is established and may see the document.
    fn dialed(&self, doc: &DocId) -> Vec<ChannelId> {
        let channels = self.channels.iter();
        let dialed = channels.filter(|(id, c)| c.opening.dialed && self.may_see(**id, doc));
        dialed.map(|(id, _)| *id).collect()
    }
}
