//! Where events come in: each once, only those that may be ours, and no faster than they are taken.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use breakbulk_link::Recent;
use nostr_sdk::pool::policy::{AdmitPolicy, AdmitStatus, PolicyError};
use nostr_sdk::util::BoxedFuture;
use nostr_sdk::{Event, EventId, PublicKey, RelayUrl, SubscriptionId};
use tokio::sync::mpsc;

/// Asked for every event whose signature is good, by the reader of the relay it came from: while it
/// waits here nothing more is read from that relay.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) us: PublicKey,
    pub(crate) kinds: BTreeSet<u16>,
    pub(crate) seen: Mutex<Recent<EventId>>,
    pub(crate) taken: mpsc::Sender<Event>,
}

impl Gate {
    fn is_wanted(&self, event: &Event) -> bool {
        self.kinds.contains(&event.kind.as_u16())
            && event.tags.public_keys().any(|key| *key == self.us)
            && self
                .seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(event.id)
    }
}

impl AdmitPolicy for Gate {
    fn admit_event<'a>(
        &'a self,
        _relay: &'a RelayUrl,
        _subscription: &'a SubscriptionId,
        event: &'a Event,
    ) -> BoxedFuture<'a, Result<AdmitStatus, PolicyError>> {
        Box::pin(async move {
            if self.is_wanted(event) {
                // An error means that nobody listens any more.
                let _ = self.taken.send(event.clone()).await;
            }
            // Nobody else is to keep it or to tell of it.
            Ok(AdmitStatus::Rejected { reason: None })
        })
    }
}
