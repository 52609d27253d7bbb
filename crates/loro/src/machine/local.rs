//! What the application does: open, edit, delete and sync documents.

use breakbulk_message::loro::ChannelMsg;

use super::Hub;
use super::done::Purpose;
use super::types::{ChannelId, DocId, Work};

impl Hub {
    /// The application opens a document: announces it to peers and requests it from dialed ones.
    pub fn open_document(&mut self, doc: &DocId) {
        let document = self.docs.entry(doc.clone()).or_default();
        document.local += 1;
        if document.local > 1 {
            return;
        }
        self.count_empty(doc);
        self.announce(doc, None);
        self.ask(doc, true);
    }

    /// The application closes a document. It is removed from the machine only if it is empty.
    pub fn close_document(&mut self, doc: &DocId) {
        if let Some(document) = self.docs.get_mut(doc) {
            document.local = document.local.saturating_sub(1);
        }
        self.count_empty(doc);
        self.forget_if_empty(doc);
    }

    /// The application edited a document: stores the edits, then sends them to subscribers.
    pub fn edited(&mut self, doc: &DocId) {
        if self.docs.contains_key(doc) {
            self.own_task(doc, Work::Local, Purpose::Local);
        }
    }

    /// Other nodes that share this one's store changed a document: takes their changes, and sends them to
    /// subscribers.
    pub fn changed_by_others(&mut self, doc: &DocId) {
        let document = self.docs.entry(doc.clone()).or_default();
        let since = document.head.version.clone();
        self.own_task(doc, Work::Others { since }, Purpose::Others);
    }

    /// Sends a sync-request for a document to the dialed peers. False: none is connected.
    pub fn ask(&mut self, doc: &DocId, asks_back: bool) -> bool {
        let channels = self.dialed(doc);
        let any = !channels.is_empty();
        for channel in channels {
            self.ask_channel(channel, doc, asks_back);
        }
        any
    }

    /// Sends a sync-request to a channel as soon as its queue has room.
    pub(super) fn ask_channel(&mut self, channel: ChannelId, doc: &DocId, asks_back: bool) {
        self.waiting(channel, |waiting| waiting.ask(doc, asks_back));
        self.ready.insert(channel);
    }

    /// Asks the dialed peers which documents they have. False: none is connected.
    pub fn ask_directory(&mut self) -> bool {
        let established = self.channels.iter();
        let established = established.filter(|(_, c)| c.opening.dialed && c.peer.is_some());
        let to: Vec<ChannelId> = established.map(|(id, _)| *id).collect();
        let any = !to.is_empty();
        self.send_all(to, None, ChannelMsg::DirectoryRequest { doc_ids: None });
        any
    }

    /// Deletes a document of this node.
    pub fn delete(&mut self, doc: &DocId) {
        if self.docs.contains_key(doc) {
            self.own_task(doc, Work::Delete, Purpose::Delete);
        }
    }

    /// Asks the dialed peers to delete a document. False: none is connected.
    pub fn ask_delete(&mut self, doc: &DocId) -> bool {
        let to = self.dialed(doc);
        let any = !to.is_empty();
        let doc_id = doc.to_string();
        self.send_all(to, Some(doc), ChannelMsg::DeleteRequest { doc_id });
        any
    }

    /// The established channels that this node dialed and whose peers may see the document.
    fn dialed(&self, doc: &DocId) -> Vec<ChannelId> {
        let channels = self.channels.iter();
        let dialed = channels.filter(|(id, c)| c.opening.dialed && self.may_see(**id, doc));
        dialed.map(|(id, _)| *id).collect()
    }
}
