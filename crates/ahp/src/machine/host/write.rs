//! Answers with states or replays in them, written while the machine is not borrowed.
//!
//! While such an answer is being written its client's actions are held back: the answer goes out
//! first, then what was held. So it may take as long as it likes, and there is neither a gap nor a
//! double between a snapshot and what follows it.

use std::collections::BTreeSet;
use std::sync::Arc;

use breakbulk_message::ahp::Chunking;
use serde_json::value::RawValue;

use super::reply::{self, Snapshots};
use super::types::{Extras, State};
use crate::log::{Replay, ReplayReader};

/// The states of some channels as of one action.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) states: Vec<(Arc<str>, State)>,
    /// Those that do not exist, or not for this client.
    pub(super) missing: Vec<Arc<str>>,
    pub(super) seq: i64,
}

/// An answer to be written.
#[derive(Debug)]
pub struct Writing {
    /// The id of the request.
    pub(super) id: Box<RawValue>,
    pub(super) seen: Seen,
    pub(super) what: What,
}

/// What is answered.
#[derive(Debug)]
pub(super) enum What {
    /// `initialize`.
    Initialized {
        version: String,
        extras: Extras,
        ours: Chunking,
    },
    /// `reconnect`, with the actions after this number if they are at most so many bytes.
    Replay { last_seen: i64, limit: usize },
    /// `reconnect`, with the states as they are.
    Reset,
    /// `subscribe`.
    Subscribed,
}

impl Writing {
    /// Whether [`run`](Self::run) reads the log, which may wait for a disk.
    pub fn reads_log(&self) -> bool {
        matches!(self.what, What::Replay { .. })
    }

    /// Writes the answer; `None` where the client needs a snapshot instead of a replay.
    pub fn run(&self, log: &dyn ReplayReader) -> Option<Vec<u8>> {
        let (id, seen) = (&self.id, &self.seen);
        let snapshots = Snapshots {
            states: &seen.states,
            from_seq: seen.seq,
        };
        Some(match &self.what {
            What::Initialized {
                version,
                extras,
                ours,
            } => reply::initialized(id, version, &snapshots, extras, ours).into_bytes(),
            What::Reset => reply::reset(id, &snapshots).into_bytes(),
            What::Subscribed => reply::subscribed(id, &snapshots).into_bytes(),
            What::Replay { last_seen, limit } => {
                let channels: BTreeSet<&str> =
                    seen.states.iter().map(|(name, _)| &**name).collect();
                let wants = |channel: &str| channels.contains(channel);
                match log.since(*last_seen, seen.seq, &wants, *limit) {
                    Ok(Replay::Actions(actions)) => reply::replayed(id, &actions, &seen.missing),
                    Ok(_) => return None,
                    Err(error) => {
                        tracing::warn!(%error, "a replay could not be read; the client gets a snapshot");
                        return None;
                    }
                }
            }
        })
    }
}
