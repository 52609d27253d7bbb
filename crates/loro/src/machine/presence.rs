//! The ephemeral stores (cursors and the like): one for each document and namespace, as in the original,
//! made of what all peers sent.
//!
//! A client of the original sends the whole store with every heartbeat, the keys of other peers with the
//! time of its own clock included. So the key of a peer that left must stay deleted whoever sends it again.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use breakbulk_message::loro::{EphemeralEntry, EphemeralError};
use bytes::Bytes;

use super::types::{ChannelId, DocId};

/// Bytes charged for a key beside its own and its value's.
const KEY_CHARGE: usize = 256;

/// How many deleted keys of peers that left are remembered, in all documents.
const LEFT_KEYS: usize = 4096;

/// All stores of all documents.
#[derive(Debug, Default)]
pub(super) struct Presence {
    stores: BTreeMap<StoreName, BTreeMap<String, Entry>>,
    used: BTreeMap<ChannelId, Used>,
    /// The bytes of all connections.
    bytes: usize,
    /// The keys of peers that left, the oldest first.
    left: VecDeque<(StoreName, String)>,
}

/// A document and a namespace.
type StoreName = (DocId, String);

/// Stores of a document as they are sent: namespaces and their data.
pub(super) type Encoded = Vec<(String, Bytes)>;

#[derive(Clone, Debug)]
struct Entry {
    /// Encoded; `None`: the key was deleted.
    value: Option<Bytes>,
    timestamp: i64,
    owner: Owner,
    /// The key is the id of its peer, who set it or has left: no other peer can change it.
    fixed: bool,
    refreshed: Instant,
}

/// To whom a key belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// To this node itself.
    Node,
    /// To the connection that brought its value; it is charged to that connection.
    Channel(ChannelId),
    /// To a peer that left: the key stays deleted until this peer returns.
    Left,
}

#[derive(Debug, Default)]
struct Used {
    keys: usize,
    bytes: usize,
}

/// The limits of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreLimits {
    pub(super) keys: usize,
    pub(super) bytes: usize,
    /// The bytes of all connections together.
    pub(super) all_bytes: usize,
}

/// The sender of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender<'a> {
    /// `None`: this node.
    pub(super) channel: Option<ChannelId>,
    pub(super) peer_id: &'a str,
}

/// The result of applying a store.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// What is new to others, as a store; empty if nothing is.
    pub(super) news: Bytes,
    /// What the sender has wrong about keys of other peers, as a store; empty if nothing is.
    pub(super) corrections: Bytes,
}

/// Why a store was not accepted, or not all of it.
#[derive(Debug)]
pub(super) enum StoreError {
    Unreadable(EphemeralError),
    /// The limits of the connection are reached.
    Full,
}

impl Presence {
    /// Applies the data of one store.
    pub(super) fn apply(
        &mut self,
        now: Instant,
        from: Sender<'_>,
        name: &StoreName,
        data: &[u8],
        limits: StoreLimits,
    ) -> Result<Applied, StoreError> {
        let entries = EphemeralEntry::read_all(data).map_err(StoreError::Unreadable)?;
        let (mut news, mut corrections) = (Vec::new(), Vec::new());
        let mut full = false;
        for entry in &entries {
            match self.apply_entry(now, from, name, *entry, limits) {
                Ok(Change::None) => {}
                Ok(Change::New(timestamp)) => news.push(EphemeralEntry {
                    timestamp,
                    ..*entry
                }),
                Ok(Change::Corrected(held)) => corrections.push((entry.key, held)),
                Err(Full) => full = true,
            }
        }
        self.forget_store_if_empty(name);
        if full {
            return Err(StoreError::Full);
        }
        let corrections = corrections.iter().map(|(key, held)| held.as_sent(key));
        Ok(Applied {
            news: encode(&news),
            corrections: encode(&corrections.collect::<Vec<_>>()),
        })
    }

    fn apply_entry(
        &mut self,
        now: Instant,
        from: Sender<'_>,
        name: &StoreName,
        entry: EphemeralEntry<'_>,
        limits: StoreLimits,
    ) -> Result<Change, Full> {
        let is_own_key = entry.key == from.peer_id;
        let store = self.stores.entry(name.clone()).or_default();
        let mut timestamp = entry.timestamp;
        let mut owner = from.channel.map_or(Owner::Node, Owner::Channel);
        let mut is_news = true;
        if let Some(held) = store.get_mut(entry.key) {
            let same = held.value.as_deref() == entry.value;
            match held.owner {
                // A peer cannot overwrite this node's own keys.
                Owner::Node if from.channel.is_some() => return Ok(Change::None),
                _ if held.fixed && !is_own_key => {
                    // Clients refresh the keys of others, perhaps with an old value.
                    let is_later = entry.timestamp > held.timestamp;
                    if is_later {
                        held.timestamp = entry.timestamp.saturating_add(i64::from(!same));
                    }
                    return Ok(match !same && (is_later || held.owner == Owner::Left) {
                        true => Change::Corrected(held.clone()),
                        false => Change::None,
                    });
                }
                _ => {}
            }
            if timestamp <= held.timestamp {
                // Only the peer itself may use an older time: its clock may be behind.
                if !is_own_key {
                    return Ok(Change::None);
                }
                timestamp = held.timestamp.saturating_add(1);
            }
            if same && !is_own_key {
                // Clients of the original refresh keys of others, whose owners refresh them as well: no news.
                owner = held.owner;
                is_news = false;
            }
        }
        let value = entry.value.map(Bytes::copy_from_slice);
        let entry_held = Entry {
            value,
            timestamp,
            owner,
            fixed: is_own_key,
            refreshed: now,
        };
        self.put(name, entry.key, entry_held, limits)?;
        Ok(match is_news {
            true => Change::New(timestamp),
            false => Change::None,
        })
    }

    /// Sets a key, and charges it to its owner; if the owner has no room, the key is removed.
    fn put(
        &mut self,
        name: &StoreName,
        key: &str,
        entry: Entry,
        limits: StoreLimits,
    ) -> Result<(), Full> {
        self.remove(name, key);
        if let Owner::Channel(channel) = entry.owner {
            let cost = cost(key, &entry);
            let used = self.used.entry(channel).or_default();
            let own = used.bytes + cost;
            let all_full = self.bytes + cost > limits.all_bytes;
            if used.keys >= limits.keys
                || own > limits.bytes
                || (all_full && own > limits.bytes / 64)
            {
                return Err(Full);
            }
            used.keys += 1;
            used.bytes = own;
            self.bytes += cost;
        }
        let store = self.stores.entry(name.clone()).or_default();
        store.insert(key.to_owned(), entry);
        Ok(())
    }

    fn remove(&mut self, name: &StoreName, key: &str) -> Option<Entry> {
        let entry = self.stores.get_mut(name)?.remove(key)?;
        if let Owner::Channel(channel) = entry.owner
            && let Some(used) = self.used.get_mut(&channel)
        {
            let cost = cost(key, &entry);
            used.keys -= 1;
            used.bytes -= cost;
            self.bytes -= cost;
        }
        Some(entry)
    }

    fn forget_store_if_empty(&mut self, name: &StoreName) {
        if self.stores.get(name).is_some_and(BTreeMap::is_empty) {
            self.stores.remove(name);
        }
    }

    /// The stores of a document without deleted keys; `own`: only this node's keys.
    pub(super) fn of(&self, doc: &DocId, own: bool) -> Encoded {
        self.encode(doc, |entry| {
            entry.value.is_some() && (!own || entry.owner == Owner::Node)
        })
    }

    /// The stores of a document with the deleted keys.
    pub(super) fn with_deleted(&self, doc: &DocId) -> Encoded {
        self.encode(doc, |_| true)
    }

    fn encode(&self, doc: &DocId, wanted: impl Fn(&Entry) -> bool) -> Encoded {
        let stores = self.stores.range((doc.clone(), String::new())..);
        let stores = stores.take_while(|((of, _), _)| of == doc);
        let encoded = stores.map(|((_, namespace), store)| {
            let entries = store.iter().filter(|(_, entry)| wanted(entry));
            let entries = entries.map(|(key, entry)| entry.as_sent(key));
            (namespace.clone(), encode(&entries.collect::<Vec<_>>()))
        });
        encoded.filter(|(_, data)| !data.is_empty()).collect()
    }

    /// Documents for which this node has keys of its own.
    pub(super) fn own_docs(&self) -> Vec<DocId> {
        let own = self.stores.iter().filter(|(_, store)| {
            let mut entries = store.values();
            entries.any(|entry| entry.owner == Owner::Node)
        });
        let mut docs: Vec<DocId> = own.map(|((doc, _), _)| doc.clone()).collect();
        docs.dedup();
        docs
    }

    /// Deletes this node's keys of a store; returns the deletions to send to others.
    pub(super) fn delete_own(&mut self, now: Instant, name: &StoreName) -> Bytes {
        let Some(store) = self.stores.get_mut(name) else {
            return Bytes::new();
        };
        let mut deleted = Vec::new();
        for (key, entry) in store {
            if entry.owner == Owner::Node && entry.value.is_some() {
                entry.value = None;
                entry.timestamp = entry.timestamp.saturating_add(1);
                entry.refreshed = now;
                deleted.push(entry.as_sent(key));
            }
        }
        encode(&deleted)
    }

    /// Removes all keys that a closed channel brought. The key named by its peer's id is deleted for others
    /// as well (`peer_id` is `None` if the peer has another connection); returns these deletions to be sent.
    /// Other keys come again with the next heartbeat of a peer that has them.
    pub(super) fn drop_channel(
        &mut self,
        channel: ChannelId,
        peer_id: Option<&str>,
    ) -> Vec<(DocId, Encoded)> {
        let gone = self.remove_matching(|key, entry| {
            if Some(key) == peer_id && !matches!(entry.owner, Owner::Node | Owner::Left) {
                return Some(Removal::Left);
            }
            (entry.owner == Owner::Channel(channel)).then_some(Removal::Forgotten)
        });
        self.used.remove(&channel);
        gone
    }

    /// Forgets keys that were not refreshed within `age`, except a connected peer's own key.
    /// Returns the documents.
    pub(super) fn expire(&mut self, now: Instant, age: Duration) -> Vec<DocId> {
        let gone = self.remove_matching(|_, entry| {
            let is_old = now.saturating_duration_since(entry.refreshed) > age;
            let expires = match entry.owner {
                Owner::Channel(_) => !entry.fixed || entry.value.is_none(),
                Owner::Node => entry.value.is_none(),
                Owner::Left => false,
            };
            (is_old && expires).then_some(Removal::Forgotten)
        });
        gone.into_iter().map(|(doc, _)| doc).collect()
    }

    /// Removes all stores of a deleted document.
    pub(super) fn drop_doc(&mut self, doc: &DocId) {
        let stores = self.stores.range((doc.clone(), String::new())..);
        let stores = stores.take_while(|((of, _), _)| of == doc);
        let names: Vec<StoreName> = stores.map(|(name, _)| name.clone()).collect();
        for name in names {
            let keys = self.stores.get(&name).into_iter().flatten();
            let keys: Vec<String> = keys.map(|(key, _)| key.clone()).collect();
            for key in keys {
                self.remove(&name, &key);
            }
            self.stores.remove(&name);
        }
    }

    /// Whether there is no key that has to be refreshed or may expire.
    pub(super) fn is_empty(&self) -> bool {
        let mut entries = self.stores.values().flat_map(BTreeMap::values);
        entries.all(|entry| entry.owner == Owner::Left)
    }

    fn remove_matching(
        &mut self,
        matches: impl Fn(&str, &Entry) -> Option<Removal>,
    ) -> Vec<(DocId, Encoded)> {
        let mut found = Vec::new();
        for (name, store) in &self.stores {
            for (key, entry) in store {
                if let Some(removal) = matches(key, entry) {
                    found.push((name.clone(), key.clone(), removal));
                }
            }
        }
        let mut gone: Vec<(DocId, Encoded)> = Vec::new();
        for (name, key, removal) in found {
            let Some(mut entry) = self.remove(&name, &key) else {
                continue;
            };
            let was_deleted = entry.value.take().is_none();
            entry.timestamp = entry.timestamp.saturating_add(1);
            let data = match removal {
                Removal::Left if !was_deleted => encode(&[entry.as_sent(&key)]),
                Removal::Left | Removal::Forgotten => Bytes::new(),
            };
            if matches!(removal, Removal::Left) {
                entry.owner = Owner::Left;
                entry.fixed = true;
                self.keep_deleted(&name, key, entry);
            }
            self.forget_store_if_empty(&name);
            let (doc, namespace) = name;
            let one = (namespace, data);
            match gone.last_mut() {
                Some((of, stores)) if *of == doc => stores.push(one),
                _ => gone.push((doc, vec![one])),
            }
        }
        gone
    }

    /// Keeps the deleted key of a peer that left; the oldest of too many is forgotten.
    fn keep_deleted(&mut self, name: &StoreName, key: String, entry: Entry) {
        let store = self.stores.entry(name.clone()).or_default();
        store.insert(key.clone(), entry);
        self.left.push_back((name.clone(), key));
        while self.left.len() > LEFT_KEYS {
            let Some((name, key)) = self.left.pop_front() else {
                break;
            };
            let held = self.stores.get(&name).and_then(|store| store.get(&key));
            if held.is_some_and(|held| held.owner == Owner::Left) {
                self.remove(&name, &key);
                self.forget_store_if_empty(&name);
            }
        }
    }
}

impl Entry {
    fn as_sent<'a>(&'a self, key: &'a str) -> EphemeralEntry<'a> {
        EphemeralEntry {
            key,
            value: self.value.as_deref(),
            timestamp: self.timestamp,
        }
    }
}

/// What a key of a store changed.
enum Change {
    None,
    /// The key is new to others, with this time.
    New(i64),
    /// Its peer has left or set another value: the sender is told.
    Corrected(Entry),
}

struct Full;

/// How a key is removed.
enum Removal {
    /// Others are told to delete it, and it stays deleted here.
    Left,
    /// Others keep it.
    Forgotten,
}

/// Encodes entries; no entries give no bytes.
fn encode(entries: &[EphemeralEntry<'_>]) -> Bytes {
    match entries.is_empty() {
        true => Bytes::new(),
        false => EphemeralEntry::write_all(entries),
    }
}

fn cost(key: &str, entry: &Entry) -> usize {
    KEY_CHARGE + key.len() + entry.value.as_ref().map_or(0, Bytes::len)
}
