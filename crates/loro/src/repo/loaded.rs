//! One loaded document, and which of its changes are stored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use breakbulk_link::lock;
use breakbulk_message::loro::Transmission;
use bytes::Bytes;
use loro::{ImportStatus, LoroDoc, Subscription, VersionRange};

use super::commit::PendingCommits;
use super::crdt::{self, CrdtError, to_wire};
use super::{OnEdit, blank};
use crate::machine::{DocId, Head};
use crate::store::{Kept, Write};

/// Updates below this size are not compacted.
const COMPACT_MIN: u64 = 64 << 10;

/// How many times its stored bytes a document takes in memory. Measured with a text of 8 MiB, whose
/// snapshot has 16 MiB: 32 MiB if it was loaded from that, 64 MiB once an imported update was exported as
/// a snapshot, since `loro` keeps the encoded forms beside the decoded ones.
const IN_MEMORY: u64 = 4;

/// A document that the application has open. If the document is corrupted, another one takes its place
/// here.
#[derive(Debug)]
pub(crate) struct Slot(Mutex<LoroDoc>);

impl Slot {
    pub(crate) fn get(&self) -> LoroDoc {
        lock(&self.0).clone()
    }

    fn put(&self, doc: LoroDoc) {
        let mut held = lock(&self.0);
        let corrupted = std::mem::replace(&mut *held, doc);
        drop(held);
        crdt::discard(corrupted);
    }
}

pub(super) struct Loaded {
    name: DocId,
    pub(super) doc: LoroDoc,
    /// The version whose changes are stored or on their way to the committer.
    pub(super) recorded: loro::VersionVector,
    pub(super) snapshot_bytes: u64,
    pub(super) update_bytes: u64,
    /// The last exported snapshot and its version.
    cache: Option<(loro::VersionVector, Bytes)>,
    pub(super) pending: Arc<PendingCommits>,
    pub(super) slot: Option<Arc<Slot>>,
    pub(super) holders: usize,
    /// An edit was reported and not flushed yet.
    dirty: Arc<AtomicBool>,
    _subscription: Option<Subscription>,
    /// The worker's clock at the last use.
    pub(super) used: u64,
    /// Bytes of changes that `loro` holds until the changes they depend on come.
    pub(super) gaps: usize,
    /// Where those changes end.
    held: loro::VersionVector,
}

impl Loaded {
    /// Loads a stored document.
    pub(super) fn from_kept(name: &DocId, kept: &Kept) -> Result<Self, String> {
        let doc = blank();
        let all = kept.snapshot.iter().chain(&kept.updates);
        for data in all {
            crdt::import(&doc, data).map_err(|error| error.to_string())?;
        }
        let recorded = crdt::version(&doc).map_err(|error| error.to_string())?;
        let mut loaded = Self {
            name: name.clone(),
            doc,
            recorded,
            snapshot_bytes: kept.snapshot.as_ref().map_or(0, |data| data.len() as u64),
            update_bytes: kept.updates.iter().map(|data| data.len() as u64).sum(),
            cache: None,
            pending: Arc::default(),
            slot: None,
            holders: 0,
            dirty: Arc::default(),
            _subscription: None,
            used: 0,
            gaps: 0,
            held: loro::VersionVector::new(),
        };
        loaded.pending = Arc::new(PendingCommits::new(loaded.head()));
        Ok(loaded)
    }

    /// Records imported changes that are stored, or on their way to the committer.
    pub(super) fn record(&mut self, status: &ImportStatus) {
        for (peer, (_, end)) in status.success.iter() {
            let known = self.recorded.get(peer).copied().unwrap_or(0);
            if *end > known {
                self.recorded.insert(*peer, *end);
            }
        }
    }

    /// Counts imported changes that `loro` holds until the changes they depend on come.
    pub(super) fn hold(&mut self, bytes: usize, status: &ImportStatus) {
        self.gaps += bytes;
        for (peer, (_, end)) in status.pending.iter().flat_map(VersionRange::iter) {
            let known = self.held.get(peer).copied().unwrap_or(0);
            self.held.insert(*peer, known.max(*end));
        }
    }

    /// Stops counting held changes once all of them are recorded.
    pub(super) fn release_held(&mut self) {
        if self.gaps > 0 && self.recorded.includes_vv(&self.held) {
            self.gaps = 0;
            self.held = loro::VersionVector::new();
        }
    }

    /// Takes the stored version as recorded again: what the document has beyond it counts as edits of the
    /// application. False if the document does not have all that is stored.
    pub(super) fn roll_back(&mut self) -> bool {
        let stored = self.pending.stored();
        let Ok(now) = crdt::version(&self.doc) else {
            return false;
        };
        let recorded = crdt::from_wire(&stored.version);
        if !now.includes_vv(&recorded) {
            return false;
        }
        self.recorded = recorded;
        (self.snapshot_bytes, self.update_bytes) = (stored.size, 0);
        self.cache = None;
        self.pending = Arc::new(PendingCommits::new(stored));
        true
    }

    /// Whether it has edits of the application that are not recorded.
    pub(super) fn has_edits(&self) -> bool {
        !crdt::version(&self.doc).is_ok_and(|now| now == self.recorded)
    }

    pub(super) fn name(&self) -> &DocId {
        &self.name
    }

    pub(super) fn size(&self) -> u64 {
        self.snapshot_bytes + self.update_bytes
    }

    /// About how much memory it takes: its content, and the snapshot for peers.
    pub(super) fn memory(&self) -> u64 {
        let cache = self.cache.as_ref().map_or(0, |(_, data)| data.len() as u64);
        self.size().saturating_mul(IN_MEMORY).saturating_add(cache)
    }

    pub(super) fn head(&self) -> Head {
        Head {
            version: to_wire(&self.recorded),
            size: self.size(),
        }
    }

    /// Whether it can be unloaded: not open, and all changes are stored.
    pub(super) fn is_idle(&self) -> bool {
        self.holders == 0 && self.pending.is_idle()
    }

    /// The application opens it: edits are reported from now on.
    pub(super) fn open(&mut self, on_edit: &OnEdit) -> Arc<Slot> {
        self.holders += 1;
        let doc = &self.doc;
        let slot = self
            .slot
            .get_or_insert_with(|| Arc::new(Slot(Mutex::new(doc.clone()))))
            .clone();
        self.subscribe_edits(on_edit);
        slot
    }

    fn subscribe_edits(&mut self, on_edit: &OnEdit) {
        if self._subscription.is_some() {
            return;
        }
        let (on_edit, name, dirty) = (on_edit.clone(), self.name.clone(), self.dirty.clone());
        let subscription = self.doc.subscribe_local_update(Box::new(move |_| {
            // One report for all edits until the next flush.
            if !dirty.swap(true, Ordering::AcqRel) {
                on_edit(&name);
            }
            true
        }));
        self._subscription = Some(subscription);
    }

    /// The application closes it.
    pub(super) fn release(&mut self) {
        self.holders = self.holders.saturating_sub(1);
        if self.holders == 0 {
            self.slot = None;
            self._subscription = None;
        }
    }

    /// Takes over the holders of `from`, whose document was corrupted.
    pub(super) fn adopt_holders(&mut self, from: &mut Self, on_edit: &OnEdit) {
        self.holders = from.holders;
        self.slot = from.slot.take();
        self.used = from.used;
        if let Some(slot) = &self.slot {
            slot.put(self.doc.clone());
            self.subscribe_edits(on_edit);
        }
        let corrupted = std::mem::replace(&mut from.doc, blank());
        let silent = std::mem::take(&mut from._subscription);
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(silent)));
        crdt::discard(corrupted);
    }

    /// Writes the application's new edits; returns them to be sent to subscribers.
    pub(super) fn flush(
        &mut self,
        writes: &mut Vec<Write>,
    ) -> Result<Option<Transmission>, CrdtError> {
        self.dirty.store(false, Ordering::Release);
        let now = crdt::version(&self.doc)?;
        if now == self.recorded {
            return Ok(None);
        }
        let data = crdt::since(&self.doc, &self.recorded)?;
        self.recorded = now;
        self.append(data.clone(), writes);
        let version = to_wire(&self.recorded);
        Ok(Some(Transmission::Update { data, version }))
    }

    pub(super) fn append(&mut self, data: Bytes, writes: &mut Vec<Write>) {
        self.update_bytes += data.len() as u64;
        writes.push(Write::Append {
            doc: self.name.clone(),
            data,
            head: self.head(),
        });
    }

    /// The document as a snapshot, cached until it changes.
    pub(super) fn snapshot(&mut self) -> Result<Bytes, CrdtError> {
        if let Some((version, data)) = &self.cache
            && *version == self.recorded
        {
            return Ok(data.clone());
        }
        let data = crdt::snapshot(&self.doc)?;
        self.cache = Some((self.recorded.clone(), data.clone()));
        Ok(data)
    }

    /// Replaces the stored updates by a snapshot.
    pub(super) fn compact(&mut self, writes: &mut Vec<Write>) -> Result<(), CrdtError> {
        let data = self.snapshot()?;
        // If the snapshot has an edit that was not flushed, compact another time.
        if crdt::version(&self.doc)? == self.recorded {
            self.replace(data, writes);
        }
        Ok(())
    }

    pub(super) fn replace(&mut self, data: Bytes, writes: &mut Vec<Write>) {
        self.snapshot_bytes = data.len() as u64;
        self.update_bytes = 0;
        writes.push(Write::Replace {
            doc: self.name.clone(),
            data,
            head: self.head(),
        });
    }

    pub(super) fn wants_compaction(&self) -> bool {
        self.update_bytes > self.snapshot_bytes.max(COMPACT_MIN)
    }

    /// Makes the document empty.
    pub(super) fn clear(&mut self, on_edit: &OnEdit) {
        let mut fresh = blank();
        std::mem::swap(&mut self.doc, &mut fresh);
        self.recorded = loro::VersionVector::new();
        (self.snapshot_bytes, self.update_bytes, self.gaps) = (0, 0, 0);
        self.held = loro::VersionVector::new();
        self.cache = None;
        self._subscription = None;
        if let Some(slot) = &self.slot {
            slot.put(self.doc.clone());
            self.subscribe_edits(on_edit);
        }
        crdt::discard(fresh);
    }
}
