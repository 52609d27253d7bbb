//! What is still to be sent to a channel, because its peer has not read what is queued already.
//!
//! A request for a document is one entry, however often the peer repeats it; the greeting, a listing and
//! the announcements of new documents are positions in tables that all channels share. So a peer that
//! does not read costs little, and what it gets in the end is up to date.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use breakbulk_message::loro::VersionVector;

use super::done::Running;
use super::types::{DocId, TaskId, Work};
use super::weight;

/// Bytes charged for an entry in addition to its name and version.
const ENTRY_CHARGE: usize = 128;

/// Only versions of at most this many entries are remembered beside a response that is being sent.
const SENDING_VERSION: usize = 256;

/// What is still to be sent to a channel.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The send queue of the channel, as far as the machine knows.
    pub(super) queue: Queue,
    /// The caller was asked to report when the queue is short.
    pub(super) reporting: bool,
    /// Changes that its peer sent and that are not given out as tasks yet.
    pub(super) changes: VecDeque<(DocId, Work, Running)>,
    /// How many of these changes were given out as tasks.
    given: u64,
    /// Tasks under way for changes that its peer sent.
    pub(super) tasks: BTreeSet<TaskId>,
    /// Exports under way for this channel, by document, with their expected bytes.
    pub(super) answers: BTreeMap<DocId, (TaskId, usize)>,
    /// Large responses that are queued and that the peer has not read, by document, with the version that
    /// was asked for: a request with the same version is answered by them.
    sending: BTreeMap<DocId, VersionVector>,
    /// Documents whose sync-request the peer gets, and whether it shall request in return.
    asks: BTreeMap<DocId, bool>,
    /// Documents whose ephemeral stores changed without the peer being told.
    presence: BTreeSet<DocId>,
    wants: BTreeMap<u64, (DocId, Want)>,
    wanted: BTreeMap<DocId, u64>,
    next: u64,
    /// Lists of documents that the peer asked about.
    pub(super) lookups: VecDeque<Vec<DocId>>,
    /// The listing of all documents goes on after this name.
    pub(super) listing: Option<Position>,
    /// The greeting goes on after this name.
    pub(super) greeting: Option<Position>,
    /// The number of the last announcement that the channel got.
    pub(super) announced: u64,
    /// Bytes charged for the entries.
    pub(super) bytes: usize,
}

/// A position in the table of documents; `None` is its start.
pub(super) type Position = Option<DocId>;

/// Messages and bytes that wait to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Queue {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

/// One document that the peer gets the changes of.
#[derive(Clone, Debug)]
pub(super) struct Want {
    /// The version that the peer has.
    pub(super) since: VersionVector,
    pub(super) form: Form,
    /// It is answered once this many changes of the peer were given out: a response contains the changes that
    /// came before the request, and does not wait for later ones.
    pub(super) after: u64,
    /// The frame with the request, which is settled with the response.
    pub(super) token: Option<u64>,
}

/// The form in which the peer gets the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The response to a sync-request, with a sync-request in return if `asks_back`.
    Response { asks_back: bool },
    /// An update: the peer subscribes to the document, and did not read fast enough.
    Change,
}

impl Want {
    fn weight(&self, doc: &DocId) -> usize {
        ENTRY_CHARGE + doc.len() + weight::version(&self.since)
    }
}

impl Waiting {
    /// Adds or replaces the entry of a document. `Some`: a frame that is settled now, because a later
    /// request takes its place.
    pub(super) fn want(&mut self, doc: &DocId, want: Want) -> Option<u64> {
        let mut want = want;
        let mut settled = None;
        let number = match self.wanted.get(doc) {
            Some(number) => *number,
            None => {
                self.next += 1;
                self.wanted.insert(doc.clone(), self.next);
                self.next
            }
        };
        if let Some((_, earlier)) = self.wants.remove(&number) {
            self.bytes -= earlier.weight(doc);
            match (earlier.form, want.form) {
                // A response contains all changes, including those after the request.
                (Form::Response { .. }, Form::Change) => want = earlier,
                (Form::Response { asks_back: a }, Form::Response { asks_back: b }) => {
                    want.form = Form::Response { asks_back: a || b };
                    settled = earlier.token;
                }
                (Form::Change, Form::Change) => want = earlier,
                (Form::Change, Form::Response { .. }) => {}
            }
        }
        self.bytes += want.weight(doc);
        self.wants.insert(number, (doc.clone(), want));
        settled
    }

    /// Takes the oldest of the peer's changes.
    pub(super) fn give_out(&mut self) -> Option<(DocId, Work, Running)> {
        let change = self.changes.pop_front()?;
        self.given += 1;
        Some(change)
    }

    /// The number of changes that the peer has sent.
    pub(super) fn sent(&self) -> u64 {
        self.given + self.changes.len() as u64
    }

    /// Whether the changes that this waits for were given out.
    pub(super) fn is_due(&self, want: &Want) -> bool {
        want.after <= self.given
    }

    /// Whether a request for the document waits: its response will have the changes.
    pub(super) fn wants(&self, doc: &DocId) -> bool {
        self.wanted.contains_key(doc)
    }

    /// The documents that are wanted, the oldest first, from this number on.
    pub(super) fn next_want(&self, from: u64) -> Option<(u64, &DocId, &Want)> {
        let (number, (doc, want)) = self.wants.range(from..).next()?;
        Some((*number, doc, want))
    }

    pub(super) fn take_want(&mut self, number: u64) -> Option<(DocId, Want)> {
        let (doc, want) = self.wants.remove(&number)?;
        self.wanted.remove(&doc);
        self.bytes -= want.weight(&doc);
        Some((doc, want))
    }

    /// Remembers a response that was queued, until the queue is short.
    pub(super) fn begin_sending(&mut self, doc: &DocId, since: &VersionVector) {
        // The queue is long, so the machine is told once it is short: then this response was sent.
        if self.reporting && since.entries().len() <= SENDING_VERSION {
            self.sending.insert(doc.clone(), since.clone());
        }
    }

    /// Whether the response to such a request is queued.
    pub(super) fn is_sending(&self, doc: &DocId, since: &VersionVector) -> bool {
        self.sending.get(doc).is_some_and(|asked| asked == since)
    }

    /// The document is deleted: a later request is about a new document of that name.
    pub(super) fn forget_sending(&mut self, doc: &DocId) {
        self.sending.remove(doc);
    }

    /// The queue is short: large responses in it were sent.
    pub(super) fn all_sent(&mut self) {
        self.sending.clear();
    }

    /// The peer was not told of a change of a document's ephemeral stores.
    pub(super) fn miss_presence(&mut self, doc: &DocId) {
        if self.presence.insert(doc.clone()) {
            self.bytes += ENTRY_CHARGE + doc.len();
        }
    }

    pub(super) fn take_presence(&mut self) -> Option<DocId> {
        let doc = self.presence.pop_first()?;
        self.bytes -= ENTRY_CHARGE + doc.len();
        Some(doc)
    }

    /// Takes the frames that wait for a response: they are settled, so that a peer which does not read
    /// does not keep this side from reading.
    pub(super) fn release_tokens(&mut self) -> Vec<u64> {
        let wants = self.wants.values_mut();
        wants.filter_map(|(_, want)| want.token.take()).collect()
    }

    pub(super) fn ask(&mut self, doc: &DocId, bidirectional: bool) {
        match self.asks.get_mut(doc) {
            Some(known) => *known |= bidirectional,
            None => {
                self.bytes += ENTRY_CHARGE + doc.len();
                self.asks.insert(doc.clone(), bidirectional);
            }
        }
    }

    pub(super) fn take_ask(&mut self) -> Option<(DocId, bool)> {
        let (doc, bidirectional) = self.asks.pop_first()?;
        self.bytes -= ENTRY_CHARGE + doc.len();
        Some((doc, bidirectional))
    }

    pub(super) fn look_up(&mut self, docs: Vec<DocId>) {
        self.bytes += lookup_weight(&docs);
        self.lookups.push_back(docs);
    }

    pub(super) fn take_lookup(&mut self) -> Option<Vec<DocId>> {
        let docs = self.lookups.pop_front()?;
        self.bytes -= lookup_weight(&docs);
        Some(docs)
    }

    /// Expected bytes of the exports under way.
    pub(super) fn answer_bytes(&self) -> usize {
        self.answers.values().map(|(_, bytes)| *bytes).sum()
    }
}

fn lookup_weight(docs: &[DocId]) -> usize {
    let names = docs.iter().map(|doc| 48 + doc.len());
    ENTRY_CHARGE + names.sum::<usize>()
}
