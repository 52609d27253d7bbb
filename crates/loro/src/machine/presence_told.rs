//! Sends changes of ephemeral stores to subscribers, and deletes the keys of peers that left.

use std::time::Instant;

use breakbulk_message::loro::{ChannelMsg, EphemeralError, EphemeralStore};
use bytes::Bytes;

use super::Hub;
use super::presence::{Applied, Encoded, Sender, StoreError, StoreLimits};
use super::types::{ChannelId, DocId, Event, Refused};
use crate::permissions::Peer;

/// The longest peer id of a store.
const NAME_MAX: usize = 256;

impl Hub {
    /// Sets keys of this node in an ephemeral store, as loro encodes them; empty data deletes them all.
    ///
    /// # Errors
    /// If the data is not what loro encodes.
    pub fn set_ephemeral(
        &mut self,
        now: Instant,
        doc: &DocId,
        namespace: &str,
        data: &[u8],
    ) -> Result<(), EphemeralError> {
        let name = (doc.clone(), namespace.to_owned());
        let news = if data.is_empty() {
            self.presence.delete_own(now, &name)
        } else {
            let from = Sender {
                channel: None,
                peer_id: &self.me.peer_id,
            };
            let limits = self.store_limits();
            match self.presence.apply(now, from, &name, data, limits) {
                Ok(applied) => applied.news,
                Err(StoreError::Unreadable(error)) => return Err(error),
                // This node's own keys have no limit.
                Err(StoreError::Full) => Bytes::new(),
            }
        };
        self.schedule_heartbeat(now);
        let stores = self.as_own(vec![(name.1, news)]);
        self.broadcast_stores(doc, 1, stores, None);
        Ok(())
    }

    /// The ephemeral stores of a document, one for each namespace, with the keys of all peers.
    pub fn ephemeral(&self, doc: &DocId) -> Vec<EphemeralStore> {
        self.as_own(self.presence.of(doc, false))
    }

    /// Applies ephemeral stores of a document that the peer may see, and passes on what is new while they
    /// have hops left.
    pub(super) fn apply_stores(
        &mut self,
        now: Instant,
        channel: ChannelId,
        doc: &DocId,
        hops: i64,
        stores: Vec<EphemeralStore>,
    ) -> Result<(), Refused> {
        if stores.is_empty() || !self.docs.contains_key(doc) || !self.may_see(channel, doc) {
            return Ok(());
        }
        let mut outcome = Ok(());
        let (mut news, mut corrections) = (Vec::new(), Vec::new());
        for store in stores {
            match self.apply_store(now, channel, doc, &store) {
                Ok(applied) => {
                    corrections.push((store.namespace.clone(), applied.corrections));
                    let data = applied.news;
                    if !data.is_empty() {
                        news.push(EphemeralStore { data, ..store });
                    }
                }
                Err(refused) => outcome = outcome.and(Err(refused)),
            }
        }
        self.schedule_heartbeat(now);
        let corrections = self.as_own(corrections);
        if !corrections.is_empty() {
            self.send_stores(vec![channel], doc, 0, corrections);
        }
        match hops > 0 {
            true => self.broadcast_stores(doc, hops - 1, news, Some(channel)),
            false => self.event(Event::Ephemeral { doc: doc.clone() }),
        }
        outcome
    }

    fn apply_store(
        &mut self,
        now: Instant,
        channel: ChannelId,
        doc: &DocId,
        store: &EphemeralStore,
    ) -> Result<Applied, Refused> {
        let limit = self.limits.doc_id;
        if store.peer_id.len() > NAME_MAX || store.namespace.len() > limit {
            let text = format!("an ephemeral store's name of more than {limit} bytes");
            return Err(Refused::new(400, text));
        }
        // The original ignores empty data.
        if store.data.is_empty() {
            return Ok(Applied::default());
        }
        let peer = self.channels.get(&channel).and_then(|c| c.peer.as_ref());
        let peer_id = peer.map(|peer| peer.identity.peer_id.clone());
        let from = Sender {
            channel: Some(channel),
            peer_id: peer_id.as_deref().unwrap_or_default(),
        };
        let name = (doc.clone(), store.namespace.clone());
        let limits = self.store_limits();
        let applied = self.presence.apply(now, from, &name, &store.data, limits);
        applied.map_err(|error| match error {
            StoreError::Unreadable(error) => Refused::new(400, error.to_string()),
            StoreError::Full => {
                let (keys, bytes) = (limits.keys, limits.bytes);
                let text = format!("more than {keys} keys of ephemeral stores or {bytes} bytes");
                Refused::new(413, text)
            }
        })
    }

    /// Deletes what a closed channel brought, and tells other peers that its peer left, unless the peer has
    /// another connection.
    pub(super) fn drop_presence(&mut self, channel: ChannelId, peer: Option<&Peer>) {
        let peer_id = peer.map(|peer| peer.identity.peer_id.as_str());
        let others = self.channels.values().filter_map(|c| c.peer.as_ref());
        let mut others = others.map(|other| other.identity.peer_id.as_str());
        let is_here = others.any(|other| Some(other) == peer_id);
        let peer_id = peer_id.filter(|_| !is_here);
        for (doc, gone) in self.presence.drop_channel(channel, peer_id) {
            let stores = self.as_own(gone);
            self.broadcast_stores(&doc, 0, stores, None);
        }
    }

    /// Sends this node's ephemeral stores again, and forgets keys that nobody refreshed.
    pub(super) fn heartbeat(&mut self, now: Instant) {
        self.next_heartbeat = None;
        for doc in self.presence.expire(now, self.limits.heartbeat * 4) {
            self.event(Event::Ephemeral { doc });
        }
        for doc in self.presence.own_docs() {
            let stores = self.as_own(self.presence.of(&doc, true));
            if !stores.is_empty() {
                let to = self.visible_subscribers(&doc, None);
                self.send_stores(to, &doc, 1, stores);
            }
        }
        self.schedule_heartbeat(now);
    }

    pub(super) fn schedule_heartbeat(&mut self, now: Instant) {
        if self.next_heartbeat.is_none() && !self.presence.is_empty() {
            self.next_heartbeat = Some(now + self.limits.heartbeat);
        }
    }

    /// The stores of a document for a sync message; `own`: only this node's keys.
    pub(super) fn stores_of(&self, doc: &DocId, own: bool) -> Option<Vec<EphemeralStore>> {
        let stores = self.as_own(self.presence.of(doc, own));
        (!stores.is_empty()).then_some(stores)
    }

    /// Sends stores to all subscribers of a document but one, and tells the application.
    fn broadcast_stores(
        &mut self,
        doc: &DocId,
        hops_remaining: i64,
        stores: Vec<EphemeralStore>,
        but: Option<ChannelId>,
    ) {
        if !stores.is_empty() {
            let to = self.visible_subscribers(doc, but);
            self.send_stores(to, doc, hops_remaining, stores);
        }
        self.event(Event::Ephemeral { doc: doc.clone() });
    }

    /// Sends stores to channels; a peer that does not read gets the whole store later.
    fn send_stores(
        &mut self,
        mut to: Vec<ChannelId>,
        doc: &DocId,
        hops_remaining: i64,
        stores: Vec<EphemeralStore>,
    ) {
        to.retain(|id| {
            let room = self.has_room(*id);
            if !room {
                self.waiting(*id, |waiting| waiting.miss_presence(doc));
            }
            room
        });
        let message = ChannelMsg::Ephemeral {
            doc_id: doc.to_string(),
            hops_remaining,
            stores,
        };
        self.send_all(to, Some(doc), message);
    }

    /// Sends the stores of a document of which the channel's peer missed a change.
    pub(super) fn send_missed_presence(&mut self, id: ChannelId) -> bool {
        let Some(doc) = self.waiting(id, |waiting| waiting.take_presence()) else {
            return false;
        };
        let stores = self.as_own(self.presence.with_deleted(&doc));
        if self.may_see(id, &doc) && !stores.is_empty() {
            self.send_stores(vec![id], &doc, 0, stores);
        }
        true
    }

    /// Stores as this node sends them.
    fn as_own(&self, stores: Encoded) -> Vec<EphemeralStore> {
        let stores = stores.into_iter().filter(|(_, data)| !data.is_empty());
        stores
            .map(|(namespace, data)| EphemeralStore {
                peer_id: self.me.peer_id.clone(),
                data,
                namespace,
            })
            .collect()
    }

    fn store_limits(&self) -> StoreLimits {
        StoreLimits {
            keys: self.limits.stores,
            bytes: self.limits.store_bytes,
            all_bytes: self.limits.all_store_bytes,
        }
    }
}
