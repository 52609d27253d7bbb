//! A store in memory: it lasts as long as the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use super::{Kept, Store, StoreError, StoreReader, Write};
use crate::machine::{DocId, Head};
use breakbulk_link::lock;

/// Documents in memory, as exported bytes. A document that was unloaded, or corrupted in memory by hostile
/// changes, is loaded again from these bytes.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<BTreeMap<DocId, (Head, Kept)>>>);

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<DocId, (Head, Kept)>> {
        lock(&self.0)
    }
}

impl Store for MemoryStore {
    fn documents(&self) -> Result<Vec<(DocId, Head)>, StoreError> {
        let docs = self.lock();
        let docs = docs.iter();
        Ok(docs
            .map(|(doc, (head, _))| (doc.clone(), head.clone()))
            .collect())
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let mut docs = self.lock();
        for write in writes {
            match write {
                Write::Append { doc, data, head } => {
                    let kept = docs.entry(doc.clone()).or_default();
                    kept.0 = head.clone();
                    kept.1.updates.push(data.clone());
                }
                Write::Replace { doc, data, head } => {
                    let kept = Kept {
                        snapshot: Some(data.clone()),
                        updates: Vec::new(),
                    };
                    docs.insert(doc.clone(), (head.clone(), kept));
                }
                Write::Delete { doc } => {
                    docs.remove(doc);
                }
            }
        }
        Ok(())
    }

    fn reader(&self) -> Arc<dyn StoreReader> {
        Arc::new(self.clone())
    }
}

impl StoreReader for MemoryStore {
    fn load(&self, doc: &str) -> Result<Kept, StoreError> {
        let docs = self.lock();
        Ok(docs
            .get(doc)
            .map(|(_, kept)| kept.clone())
            .unwrap_or_default())
    }
}
