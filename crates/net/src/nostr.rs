//! Nostr relays: publish through several and hear from several, with the relay's word on each event.
//!
//! [`Relays`] holds the sockets: it reconnects, authenticates (NIP-42), backs off where a relay asks
//! for it and reads what a relay says of its limits (NIP-11). What the events say is up to whoever
//! publishes them.
//!
//! An event that arrives goes through a bounded channel and holds up its own relay's reader while
//! that is full; nothing is dropped on the way.

mod gate;
mod info;
mod outcome;
mod relays;

pub use info::{RelayLimits, fetch_limits};
pub use nostr_sdk::{Event, EventId, Keys, PublicKey};
pub use outcome::Outcome;
pub use relays::{RelayOptions, Relays, RelaysError};

/// A name that nobody can guess.
pub fn fresh_token() -> String {
    nostr_sdk::SubscriptionId::generate().to_string()
}

/// What a relay takes where it does not say.
const EVENT_MAX: usize = 65_536;
