//! Nostr relays: publish through several and hear from several, with the relay's word on each event.
//!
//! [`Relays`] holds the sockets: it reconnects, authenticates (NIP-42), backs off where a relay asks
//! for it and reads what a relay says of its limits (NIP-11). [`sign`] and [`open`] make and read the
//! events: kind 25910 bare, or signed and then sealed in a gift wrap of one NIP-44 layer.
//!
//! An event that arrives goes through a bounded channel and holds up its own relay's reader while
//! that is full; nothing is dropped on the way.

mod envelope;
mod gate;
mod info;
mod outcome;
mod relays;
mod seen;

pub use envelope::{Draft, OpenError, Opened, Seal, SealError, Signed, open, sign};
pub use info::{RelayLimits, fetch_limits};
pub use nostr_sdk::{Event, EventId, Keys, PublicKey};
pub use outcome::Outcome;
pub use relays::{RelayOptions, Relays, RelaysError};
pub use seen::Seen;

/// A name that nobody can guess.
pub fn fresh_token() -> String {
    nostr_sdk::SubscriptionId::generate().to_string()
}

/// A public key as people pass it on: npub1…
pub fn npub(key: &PublicKey) -> String {
    nostr_sdk::ToBech32::to_bech32(key).unwrap_or_else(|never| match never {})
}

/// The kind of a ContextVM event: ephemeral, so that relays pass it on and keep nothing.
pub const MESSAGE_KIND: u16 = 25910;

/// A gift wrap that relays keep.
pub const WRAP_KIND: u16 = 1059;

/// A gift wrap that relays pass on and forget.
pub const EPHEMERAL_WRAP_KIND: u16 = 21059;

/// What a relay takes where it does not say.
pub const EVENT_MAX: usize = 65_536;
