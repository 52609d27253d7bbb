//! Middle boxes for foreign AHP programs, which do not know segments.
//!
//! [`ClientSide`] stands between a foreign client and the path to its host, [`HostSide`] between a foreign
//! host and the path to a client. The program sends and receives whole messages; on the link to the other
//! side, large ones are cut into segments. They edit `capabilities.chunking` and `lastSeenServerSeq`, and
//! remove from a replay the actions that the client has; all other bytes pass unchanged. They have no
//! socket and no clock.

mod answers;
mod client_side;
mod host_side;
mod sessions;

pub use client_side::ClientSide;
pub use host_side::HostSide;
pub use sessions::Sessions;

use breakbulk_link::Outgoing;
use bytes::Bytes;

/// What to do about a message that could not be sent over the capped link.
#[derive(Debug)]
pub enum Instead {
    /// It was a request: send this error to the program that sent it.
    Answer(Bytes),
    /// It was a response: send this error over the link in its place.
    Replace(Box<Outgoing>),
    /// Drop it, since it changes no state; the text is for a log.
    Drop(String),
    /// Close the link with this code and reason. The receiver remembers only the highest action number
    /// that it has seen, so later messages would hide that this one is missing.
    Close(u16, String),
}
