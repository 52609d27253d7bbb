//! One document in memory, and what of it is kept.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use breakbulk_message::loro::Transmission;
use bytes::Bytes;
use loro::{LoroDoc, Subscription};

use super::commit::Flight;
use super::crdt::{self, CrdtError, to_wire};
use super::{Edited, blank};
use crate::machine::{DocId, Head};
use crate::store::{Kept, Write};

/// Below this nothing is compacted.
const COMPACT_MIN: u64 = 64 << 10;

/// A document that is held open. A spoiled one is replaced under the hands of its holder.
#[derive(Debug)]
pub(crate) struct Slot(Mutex<LoroDoc>);

impl Slot {
    pub(crate) fn get(&self) -> LoroDoc {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn put(&self, doc: LoroDoc) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let spoiled = std::mem::replace(&mut *held, doc);
        drop(held);
        crdt::discard(spoiled);
    }
}

pub(super) struct Loaded {
    name: DocId,
    pub(super) doc: LoroDoc,
    /// What is kept, or on its way to the store, and was told.
    pub(super) told: loro::VersionVector,
    pub(super) snapshot_bytes: u64,
    pub(super) update_bytes: u64,
    /// The last snapshot that was sent.
    cache: Option<(loro::VersionVector, Bytes)>,
    pub(super) flight: Arc<Flight>,
    pub(super) slot: Option<Arc<Slot>>,
    pub(super) holders: usize,
    /// An edit was told that nobody looked at yet.
    dirty: Arc<AtomicBool>,
    _subscription: Option<Subscription>,
    /// When it was last used.
    pub(super) used: u64,
    /// Bytes of changes that wait in loro for others.
    pub(super) gaps: usize,
}

impl Loaded {
    /// A document from what is kept of it.
    pub(super) fn from_kept(
        name: &DocId,
        kept: &Kept,
        flight: Arc<Flight>,
    ) -> Result<Self, String> {
        let doc = blank();
        let all = kept.snapshot.iter().chain(&kept.updates);
        for data in all {
            crdt::import(&doc, data).map_err(|error| format!("{error:?}"))?;
        }
        let told = crdt::version(&doc).map_err(|error| format!("{error:?}"))?;
        Ok(Self {
            name: name.clone(),
            doc,
            told,
            snapshot_bytes: kept.snapshot.as_ref().map_or(0, |data| data.len() as u64),
            update_bytes: kept.updates.iter().map(|data| data.len() as u64).sum(),
            cache: None,
            flight,
            slot: None,
            holders: 0,
            dirty: Arc::default(),
            _subscription: None,
            used: 0,
            gaps: 0,
        })
    }

    pub(super) fn size(&self) -> u64 {
        self.snapshot_bytes + self.update_bytes
    }

    pub(super) fn head(&self) -> Head {
        Head {
            version: to_wire(&self.told),
            size: self.size(),
        }
    }

    /// Whether it can be dropped without a loss.
    pub(super) fn is_idle(&self) -> bool {
        self.holders == 0 && self.flight.is_idle()
    }

    /// Somebody holds it open: edits are told from now on.
    pub(super) fn hold(&mut self, edited: &Edited) -> Arc<Slot> {
        self.holders += 1;
        let doc = &self.doc;
        let slot = self
            .slot
            .get_or_insert_with(|| Arc::new(Slot(Mutex::new(doc.clone()))))
            .clone();
        self.listen(edited);
        slot
    }

    fn listen(&mut self, edited: &Edited) {
        if self._subscription.is_some() {
            return;
        }
        let (edited, name, dirty) = (edited.clone(), self.name.clone(), self.dirty.clone());
        let subscription = self.doc.subscribe_local_update(Box::new(move |_| {
            // Many edits are one task.
            if !dirty.swap(true, Ordering::AcqRel) {
                edited(&name);
            }
            true
        }));
        self._subscription = Some(subscription);
    }

    /// One holder less.
    pub(super) fn release(&mut self) {
        self.holders = self.holders.saturating_sub(1);
        if self.holders == 0 {
            self.slot = None;
            self._subscription = None;
        }
    }

    /// The same holders on another document: this one was spoiled.
    pub(super) fn take_over(&mut self, from: &mut Self, edited: &Edited) {
        self.holders = from.holders;
        self.slot = from.slot.take();
        self.used = from.used;
        if let Some(slot) = &self.slot {
            slot.put(self.doc.clone());
            self.listen(edited);
        }
        let spoiled = std::mem::replace(&mut from.doc, blank());
        let silent = std::mem::take(&mut from._subscription);
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(silent)));
        crdt::discard(spoiled);
    }

    /// Edits of this side that are not kept yet: they go to the store, and everybody is told.
    pub(super) fn flush(
        &mut self,
        writes: &mut Vec<Write>,
    ) -> Result<Option<Transmission>, CrdtError> {
        self.dirty.store(false, Ordering::Release);
        let now = crdt::version(&self.doc)?;
        if now == self.told {
            return Ok(None);
        }
        let data = crdt::since(&self.doc, &self.told)?;
        self.told = now;
        self.append(data.clone(), writes);
        let version = to_wire(&self.told);
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

    /// The whole document, as it was last made if nothing changed.
    pub(super) fn snapshot(&mut self) -> Result<Bytes, CrdtError> {
        if let Some((version, data)) = &self.cache
            && *version == self.told
        {
            return Ok(data.clone());
        }
        let data = crdt::snapshot(&self.doc)?;
        self.cache = Some((self.told.clone(), data.clone()));
        Ok(data)
    }

    /// Puts a snapshot in the place of many updates.
    pub(super) fn compact(&mut self, writes: &mut Vec<Write>) -> Result<(), CrdtError> {
        let data = self.snapshot()?;
        // An edit that is not told yet may be in the snapshot: the next time will do.
        if crdt::version(&self.doc)? == self.told {
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

    /// Nothing of it is there any more.
    pub(super) fn forget(&mut self, edited: &Edited) {
        let mut fresh = blank();
        std::mem::swap(&mut self.doc, &mut fresh);
        self.told = loro::VersionVector::new();
        (self.snapshot_bytes, self.update_bytes, self.gaps) = (0, 0, 0);
        self.cache = None;
        self._subscription = None;
        if let Some(slot) = &self.slot {
            slot.put(self.doc.clone());
            self.listen(edited);
        }
        crdt::discard(fresh);
    }
}
