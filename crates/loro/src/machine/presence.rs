//! Ephemeral stores (cursors and the like): they last as long as their peer's connection refreshes them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use breakbulk_message::loro::EphemeralStore;
use bytes::Bytes;

use super::types::{ChannelId, DocId};

/// Bytes charged for a store beside its own.
const STORE_CHARGE: usize = 256;

/// All stores of all documents.
#[derive(Debug, Default)]
pub(super) struct Presence {
    stores: BTreeMap<StoreKey, Entry>,
    used: BTreeMap<ChannelId, Used>,
    /// The bytes of all connections.
    bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StoreKey {
    doc: DocId,
    peer: String,
    namespace: String,
}

#[derive(Debug)]
struct Entry {
    data: Bytes,
    /// `None`: this node's own store.
    from: Option<ChannelId>,
    refreshed: Instant,
}

#[derive(Debug, Default)]
struct Used {
    stores: usize,
    bytes: usize,
}

/// The limits of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreLimits {
    pub(super) stores: usize,
    pub(super) bytes: usize,
    /// The bytes of all connections together.
    pub(super) all_bytes: usize,
}

impl Presence {
    /// Sets one store; empty data removes it. False: the connection's limit is reached.
    pub(super) fn apply(
        &mut self,
        now: Instant,
        from: Option<ChannelId>,
        doc: &DocId,
        store: &EphemeralStore,
        store_limits: StoreLimits,
    ) -> bool {
        let name = StoreKey {
            doc: doc.clone(),
            peer: store.peer_id.clone(),
            namespace: store.namespace.clone(),
        };
        // A peer cannot overwrite this node's own store.
        if from.is_some()
            && self
                .stores
                .get(&name)
                .is_some_and(|held| held.from.is_none())
        {
            return true;
        }
        self.remove(&name);
        if store.data.is_empty() {
            return true;
        }
        if let Some(channel) = from {
            let cost = cost(&name, &store.data);
            let used = self.used.entry(channel).or_default();
            let own = used.bytes + cost;
            let all_full = self.bytes + cost > store_limits.all_bytes;
            if used.stores >= store_limits.stores
                || own > store_limits.bytes
                || (all_full && own > store_limits.bytes / 64)
            {
                return false;
            }
            used.stores += 1;
            used.bytes = own;
            self.bytes += cost;
        }
        let held = Entry {
            // A copy, so that a small store does not keep its whole frame in memory.
            data: Bytes::copy_from_slice(&store.data),
            from,
            refreshed: now,
        };
        self.stores.insert(name, held);
        true
    }

    fn remove(&mut self, name: &StoreKey) {
        let Some(held) = self.stores.remove(name) else {
            return;
        };
        if let Some(used) = held.from.and_then(|from| self.used.get_mut(&from)) {
            let cost = cost(name, &held.data);
            used.stores -= 1;
            used.bytes -= cost;
            self.bytes -= cost;
        }
    }

    /// The stores of a document; `own`: only this node's.
    pub(super) fn of(&self, doc: &DocId, own: bool) -> Vec<EphemeralStore> {
        let first = StoreKey {
            doc: doc.clone(),
            peer: String::new(),
            namespace: String::new(),
        };
        let stores = self.stores.range(first..);
        let stores = stores.take_while(|(name, _)| name.doc == *doc);
        stores
            .filter(|(_, held)| !own || held.from.is_none())
            .map(|(name, held)| EphemeralStore {
                peer_id: name.peer.clone(),
                data: held.data.clone(),
                namespace: name.namespace.clone(),
            })
            .collect()
    }

    /// Documents for which this node has stores of its own.
    pub(super) fn own_docs(&self) -> Vec<DocId> {
        let own = self.stores.iter().filter(|(_, held)| held.from.is_none());
        let mut docs: Vec<DocId> = own.map(|(name, _)| name.doc.clone()).collect();
        docs.dedup();
        docs
    }

    /// Removes all stores of a closed channel; returns the removals to send to other peers.
    pub(super) fn drop_channel(&mut self, channel: ChannelId) -> Vec<(DocId, Vec<EphemeralStore>)> {
        let gone = self.remove_matching(|held| held.from == Some(channel));
        self.used.remove(&channel);
        gone
    }

    /// Removes peers' stores that were not refreshed within `age`.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        age: Duration,
    ) -> Vec<(DocId, Vec<EphemeralStore>)> {
        self.remove_matching(|held| {
            held.from.is_some() && now.saturating_duration_since(held.refreshed) > age
        })
    }

    /// Removes all stores of a deleted document.
    pub(super) fn drop_doc(&mut self, doc: &DocId) {
        let names = self.stores.keys().filter(|name| name.doc == *doc);
        for name in names.cloned().collect::<Vec<_>>() {
            self.remove(&name);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.stores.is_empty()
    }

    fn remove_matching(
        &mut self,
        matches: impl Fn(&Entry) -> bool,
    ) -> Vec<(DocId, Vec<EphemeralStore>)> {
        let names = self.stores.iter().filter(|(_, held)| matches(held));
        let names: Vec<StoreKey> = names.map(|(name, _)| name.clone()).collect();
        let mut gone: Vec<(DocId, Vec<EphemeralStore>)> = Vec::new();
        for name in names {
            self.remove(&name);
            // Empty data announces a removal.
            let store = EphemeralStore {
                peer_id: name.peer,
                data: Bytes::new(),
                namespace: name.namespace,
            };
            match gone.last_mut() {
                Some((doc, stores)) if *doc == name.doc => stores.push(store),
                _ => gone.push((name.doc, vec![store])),
            }
        }
        gone
    }
}

fn cost(name: &StoreKey, data: &Bytes) -> usize {
    STORE_CHARGE + name.peer.len() + name.namespace.len() + data.len()
}
