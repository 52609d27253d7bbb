//! Ephemeral stores: cursors and the like, which live as long as whoever tells of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use breakbulk_message::loro::EphemeralStore;
use bytes::Bytes;

use super::types::{ChannelId, DocId};

/// What a store costs beside its bytes.
const STORE_CHARGE: usize = 256;

/// All stores of all documents.
#[derive(Debug, Default)]
pub(super) struct Presence {
    stores: BTreeMap<Name, Held>,
    used: BTreeMap<ChannelId, Used>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    doc: DocId,
    peer: String,
    namespace: String,
}

#[derive(Debug)]
struct Held {
    data: Bytes,
    /// `None`: it is this side's own.
    from: Option<ChannelId>,
    heard: Instant,
}

#[derive(Debug, Default)]
struct Used {
    stores: usize,
    bytes: usize,
}

/// How much may come by one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) stores: usize,
    pub(super) bytes: usize,
}

impl Presence {
    /// Takes one store; empty data takes it away. False: there is no room for it.
    pub(super) fn apply(
        &mut self,
        now: Instant,
        from: Option<ChannelId>,
        doc: &DocId,
        store: &EphemeralStore,
        room: Room,
    ) -> bool {
        let name = Name {
            doc: doc.clone(),
            peer: store.peer_id.clone(),
            namespace: store.namespace.clone(),
        };
        // What this side tells of itself nobody else overwrites.
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
            if used.stores >= room.stores || used.bytes + cost > room.bytes {
                return false;
            }
            used.stores += 1;
            used.bytes += cost;
        }
        let held = Held {
            // A copy: a small store must not pin the frame it came in.
            data: Bytes::copy_from_slice(&store.data),
            from,
            heard: now,
        };
        self.stores.insert(name, held);
        true
    }

    fn remove(&mut self, name: &Name) {
        let Some(held) = self.stores.remove(name) else {
            return;
        };
        if let Some(used) = held.from.and_then(|from| self.used.get_mut(&from)) {
            used.stores -= 1;
            used.bytes -= cost(name, &held.data);
        }
    }

    /// The stores of a document; `own`: this side's alone.
    pub(super) fn of(&self, doc: &DocId, own: bool) -> Vec<EphemeralStore> {
        let first = Name {
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

    /// Documents of which this side has stores of its own.
    pub(super) fn own_docs(&self) -> Vec<DocId> {
        let own = self.stores.iter().filter(|(_, held)| held.from.is_none());
        let mut docs: Vec<DocId> = own.map(|(name, _)| name.doc.clone()).collect();
        docs.dedup();
        docs
    }

    /// A channel is gone, and all that came by it: what to tell the others.
    pub(super) fn drop_channel(&mut self, channel: ChannelId) -> Vec<(DocId, Vec<EphemeralStore>)> {
        let gone = self.take(|held| held.from == Some(channel));
        self.used.remove(&channel);
        gone
    }

    /// Forgets what was not told again for too long.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        age: Duration,
    ) -> Vec<(DocId, Vec<EphemeralStore>)> {
        self.take(|held| held.from.is_some() && now.saturating_duration_since(held.heard) > age)
    }

    /// A document is gone.
    pub(super) fn drop_doc(&mut self, doc: &DocId) {
        let names = self.stores.keys().filter(|name| name.doc == *doc);
        for name in names.cloned().collect::<Vec<_>>() {
            self.remove(&name);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.stores.is_empty()
    }

    fn take(&mut self, goes: impl Fn(&Held) -> bool) -> Vec<(DocId, Vec<EphemeralStore>)> {
        let names = self.stores.iter().filter(|(_, held)| goes(held));
        let names: Vec<Name> = names.map(|(name, _)| name.clone()).collect();
        let mut gone: Vec<(DocId, Vec<EphemeralStore>)> = Vec::new();
        for name in names {
            self.remove(&name);
            // Empty data says that a store is gone.
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

fn cost(name: &Name, data: &Bytes) -> usize {
    STORE_CHARGE + name.peer.len() + name.namespace.len() + data.len()
}
