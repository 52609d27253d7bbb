//! Frames between two programs that reach the same NATS servers.
//!
//! A session begins with a request to a subject that servers subscribe to as a queue group, so that NATS
//! gives each session to one of them. Request and reply name a subject of each side, which nobody can
//! guess; from then on frames are messages to these. NATS promises little: a message may be lost when a
//! connection breaks or a reader is slow, and nobody is told when a peer dies. So
//!
//! - messages are numbered, and a gap ends the session with a reason that names it;
//! - a side sends no more than the other one has room for (a window, in bytes), so that nobody becomes a
//!   slow reader;
//! - both sides send heartbeats, which say how much they sent and how much they took;
//! - when the connection to the NATS server is lost, every session over it ends, since what was on its
//!   way may be lost.
//!
//! A NATS server announces its largest message at the beginning of each connection (`max_payload`); the
//! smaller one of the two sides' numbers applies.

mod bus;
mod dial;
mod error;
mod hub;
#[cfg(feature = "jetstream")]
pub mod journal;
mod keeper;
mod line;
mod listen;
mod message;
mod opening;

pub use bus::{Credentials, NatsOptions};
pub use dial::{connect, connect_probe};
pub use error::NatsError;
pub use hub::NatsHub;
pub use line::{NatsSink, NatsSource, NatsTransport};
pub use listen::NatsListener;
pub use message::MESSAGE_HEAD;

use std::time::Duration;

/// The default window: how many bytes may be on their way to this side, or wait there to be taken. One
/// message more is allowed.
const WINDOW: u64 = 1 << 20;

/// What a message counts beside its bytes, so that small ones are bounded in number as well.
const MESSAGE_COST: u64 = 256;

/// How often each side sends a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// A side from which nothing came for this long is gone.
const SILENCE: Duration = Duration::from_secs(35);

/// How long opening a session may take, and how long the client's first message after it.
const OPEN_TIME: Duration = Duration::from_secs(10);
