//! Filters received events: passes on each event once, and only valid ones that are addressed to this
//! key.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use breakbulk_link::Recent;
use breakbulk_link::lock;
use nostr_sdk::pool::policy::{AdmitPolicy, AdmitStatus, PolicyError};
use nostr_sdk::util::BoxedFuture;
use nostr_sdk::{Event, EventId, PublicKey, RelayUrl, SubscriptionId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::stored::{Batch, Stored, hand_over};

/// Called for every event by the task that reads from its relay; while it waits, nothing more is read
/// from that relay.
#[derive(Debug)]
pub(crate) struct EventFilter {
    pub(crate) us: PublicKey,
    pub(crate) kinds: BTreeSet<u16>,
    pub(crate) seen: Mutex<Recent<EventId>>,
    pub(crate) stored: Arc<Stored>,
    pub(crate) events: mpsc::Sender<Batch>,
}

impl EventFilter {
    fn is_for_us(&self, event: &Event) -> bool {
        self.kinds.contains(&event.kind.as_u16())
            && event.tags.public_keys().any(|key| *key == self.us)
            // The library takes an event as verified if it has verified any event with this id, and a
            // relay can send two with one id.
            && event.verify().is_ok()
    }
}

impl AdmitPolicy for EventFilter {
    /// Called before each attempt to connect, by the task that then reads the relay's events: so these cannot come
    /// before it is known that stored ones come first.
    fn admit_connection<'a>(
        &'a self,
        relay: &'a RelayUrl,
    ) -> BoxedFuture<'a, Result<AdmitStatus, PolicyError>> {
        Box::pin(async move {
            self.stored.connecting(relay);
            hand_over(&self.events, |place| self.stored.begin(relay, place)).await;
            Ok(AdmitStatus::Success)
        })
    }

    fn admit_event<'a>(
        &'a self,
        relay: &'a RelayUrl,
        _subscription: &'a SubscriptionId,
        event: &'a Event,
    ) -> BoxedFuture<'a, Result<AdmitStatus, PolicyError>> {
        Box::pin(async move {
            let batch = match self.is_for_us(event) {
                true if lock(&self.seen).insert(event.id) => {
                    self.stored.received(Instant::now(), relay, event)
                }
                true => self.stored.came_again(relay, &event.id),
                false => None,
            };
            if let Some(batch) = batch {
                // An error means that the receiver was dropped.
                let _ = self.events.send(batch).await;
            }
            // Rejected, so that the library neither stores the event nor notifies others.
            Ok(AdmitStatus::Rejected { reason: None })
        })
    }
}
