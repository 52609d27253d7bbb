//! What is done to the messages of programs that know nothing of segments.
//!
//! [`ClientSide`] stands before a foreign client, [`HostSide`] before a foreign host. Whole messages
//! go to and from the program; the link to the other side is capped. What they change is
//! `capabilities.chunking`, `lastSeenServerSeq`, and a replay by what the client has: all other bytes
//! pass untouched. They hold no socket and no clock.

mod answers;
mod client_side;
mod host_side;
mod sessions;

pub use client_side::ClientSide;
pub use host_side::HostSide;
pub use sessions::Sessions;

use breakbulk_link::Outgoing;
use bytes::Bytes;

/// What becomes of a message that could not be sent over the capped link.
#[derive(Debug)]
pub enum Instead {
    /// This goes to the program that sent it: the request is answered with an error.
    Answer(Bytes),
    /// This goes over the link in its place.
    Replace(Box<Outgoing>),
    /// It carries no state and is dropped; the words are for a log.
    Drop(String),
    /// The link must end, with this code and reason: what came after would hide the hole.
    Close(u16, String),
}

/// What a sender closes with when a message that may not be lost is too large.
const TOO_LARGE: u16 = 4413;
