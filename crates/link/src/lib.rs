//! The state of one connection that carries large messages in capped frames.
//!
//! A [`Link`] queues outgoing messages, cuts them into frames, assembles incoming ones, and
//! enforces limits and timeouts. It knows no format: a [`Wire`] reads and writes frames, [`Rules`]
//! say how the format behaves. It knows no socket and no clock: frames and the time are arguments,
//! as in quinn-proto.

#![forbid(unsafe_code)]

mod assembly;
mod budget;
mod cap;
mod error;
mod event;
mod frame;
mod inbox;
mod key;
mod link;
mod lock;
mod message_table;
mod outbox;
mod preset;
mod random;
mod recent;
mod rules;
mod timers;
mod wire;
mod with;

pub use budget::{Budget, Charge, Held, MESSAGE_CHARGE, PIECE_CHARGE, SubBudget, TRANSFER_CHARGE};
pub use cap::{Cap, Count, Wrap};
pub use error::{Closed, Fault, FaultKind, SendError, Uncut, Unit};
pub use event::{Event, Message, ProgressOf};
pub use frame::{Carries, Frame, FrameId, FrameKind, Lane, MessageId, TransferId, Transmit};
pub use key::Key;
pub use link::{
    Cancelled, Link, PlanJob, Planned, Received, Sent, UnderWay, Unfinished, Unmatched,
};
pub use lock::lock;
pub use outbox::{Outgoing, Rejected};
pub use preset::{Carrier, Evidence, Preset, PresetKind, exact_size};
pub use random::Random;
pub use recent::Recent;
pub use rules::{
    Config, Duplicate, Full, Limits, Numbering, OnCancel, Order, Rules, Scope, Scopes, Timeouts,
    Unknown,
};
pub use wire::{
    Announce, Assembled, Inbound, MessageKind, Opening, Part, PeerLimits, PeerSupport, Piece,
    Pieces, Plan, PlanOptions, RunningDigest, Shape, Wire,
};
