//! Nostr relays: publishes events to several relays, with an outcome for each event, and receives
//! events from all of them.
//!
//! [`Relays`] holds the connections: it reconnects, authenticates (NIP-42), backs off if a relay asks
//! for it, and reads a relay's limits (NIP-11). It does not interpret the events.
//!
//! Received events go through a bounded channel. While it is full, nothing more is read from a relay whose
//! next event waits for room; no event is dropped.

mod again;
mod event_filter;
mod info;
mod outcome;
mod relays;
mod stored;

pub use info::{RelayLimits, fetch_limits};
pub use nostr_sdk::{Event, EventId, Keys, PublicKey};
pub use outcome::Outcome;
pub use relays::{RelayOptions, Relays, RelaysError};
pub use stored::Batch;

/// A random, unguessable token.
pub fn fresh_token() -> String {
    nostr_sdk::SubscriptionId::generate().to_string()
}

/// The largest event, in bytes, for a relay that does not state a limit.
const EVENT_MAX: usize = 65_536;
