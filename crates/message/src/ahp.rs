//! Messages of the agent host protocol (AHP): reading, writing and editing.
//!
//! Reading borrows from the text, and keeps application data (states, actions) as raw JSON. Editing
//! changes one value and no other byte, for gateways between programs that are not ours. Segments
//! (`ahp/messageSegment`) are handled by the wire crate.
//!
//! ```
//! use breakbulk_message::ahp::{self, Chunking};
//!
//! let request = ahp::initialize(1, "c", &["ahp-root://"], &["1.0.0"], None);
//! let edited = ahp::with_chunking(&request, &Chunking::default()).ok_or("not ours")?;
//! assert!(edited.starts_with(request.trim_end_matches("}}")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chunking;
mod edit;
mod lane;
mod read;
mod too_large;
mod write;

pub use crate::list::{Elements, Strings};
pub use chunking::{Chunking, TimeoutFrom};
pub use edit::{
    with_chunking, with_chunking_in_result, with_last_seen, without_applied, without_chunking,
    without_chunking_in_result,
};
pub use lane::{Lane, lane_of};
pub use read::{
    Action, DispatchParams, InitializeParams, InitializeResult, Origin, ReadError, ReconnectParams,
    ReconnectResult, Snapshot,
};
pub use too_large::{MESSAGE_TOO_LARGE, MessageTooLarge};
pub use write::{dispatch_action, initialize, ping, reconnect, subscribe};

/// The channel of the host itself. It distinguishes an `initialize` of AHP from that of another protocol.
pub const ROOT_CHANNEL: &str = "ahp-root://";

/// The protocol versions that the real client offers, the preferred one first.
pub const PROTOCOL_VERSIONS: [&str; 2] = ["1.0.0", "0.9.0"];
