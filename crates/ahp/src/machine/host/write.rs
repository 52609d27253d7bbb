//! Writes answers that contain states or replays, while the machine is not borrowed.
//!
//! While such an answer is written its client's actions are held back: the answer is sent first, then
//! the held actions. So writing may take long, and no action is missing or repeated between a snapshot
//! and what follows it.

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
    /// The channels that do not exist, or that the client may not see.
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

/// The kind of answer.
#[derive(Debug)]
pub(super) enum What {
    /// `initialize`.
    Initialized {
        version: String,
        extras: Extras,
        ours: Chunking,
    },
    /// `reconnect`, with the actions after `last_seen`, if they have at most `limit` bytes.
    Replay { last_seen: i64, limit: usize },
    /// `reconnect`, with the current states.
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
                        tracing::warn!(%error, "the replay log could not be read; the client gets a snapshot");
                        return None;
                    }
                }
            }
        })
    }
}
