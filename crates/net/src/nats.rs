//! Frames between two programs that reach the same NATS servers.
//!
//! A session begins with a request to a subject that servers subscribe to as a queue group, so that NATS
//! gives each session to one of them. Request and reply name a subject of each side, which nobody can
//! guess; from then on frames are messages to these. NATS promises little: a message may be lost when a
//! connection breaks or a reader is slow, and nobody is told when a peer dies. So
//!
//! - messages are numbered, and a gap ends the session with a name for it;
//! - a side sends no more than the other one has room for (a window, in bytes), so that nobody becomes a
//!   slow reader;
//! - both sides say regularly that they are there, how much they sent and how much they took;
//! - when the connection to the NATS server is lost, every session over it ends, since what was on its
//!   way may be lost.
//!
//! What a message may have, NATS says at the beginning of each connection (`max_payload`); the smaller
//! one of both sides applies.

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

/// How much may be on its way to this side and not taken yet, in bytes, if the options do not say it. One
/// message more is allowed.
const WINDOW: u64 = 1 << 20;

/// What a message counts beside its bytes, so that small ones are bounded in number as well.
const MESSAGE_COST: u64 = 256;

/// How often each side says that it is there.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// A side that was not heard for this long is gone.
const SILENCE: Duration = Duration::from_secs(35);

/// How long opening a session may take, and how long the client's first message after it.
const OPEN_TIME: Duration = Duration::from_secs(10);
