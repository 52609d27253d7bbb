//! The errors of a replay log.

use std::error::Error;

/// Why a log could not be opened, appended to or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The numbers of a batch do not rise by one, or begin below the last one. Nothing was stored.
    #[error(
        "action {got} cannot come after action {last} in the replay log: number the actions of a batch one by one, from {last} + 1 or above"
    )]
    OutOfOrder {
        /// The number before it.
        last: i64,
        /// The number that does not follow.
        got: i64,
    },
    /// Another host appended to the same log first. Nothing was stored.
    #[error(
        "another host appended to the replay log {log} first: take its actions, and number the batch after them"
    )]
    Overtaken {
        /// Which log.
        log: String,
    },
    /// Actions of other hosts are missing between two that the log has.
    #[error(
        "the replay log {log} has lost the actions after {last}, and goes on after {found}: this host was away for longer than the log keeps actions; start it again with the current states"
    )]
    Missed {
        /// Which log.
        log: String,
        /// The last action that this host has.
        last: i64,
        /// The action that the next ones follow.
        found: i64,
    },
    /// The log cannot be found, or not be used, at this address.
    #[error("{reason}")]
    Address {
        /// What is wrong with it.
        reason: String,
    },
    /// The file is locked.
    #[error(
        "the replay log {log} is open already, in another process or in this one: stop that one, or give each host a file of its own"
    )]
    InUse {
        /// Which log.
        log: String,
    },
    /// Another version wrote it.
    #[error(
        "the replay log {log} has format {found}, and this version reads {known}: use the version that wrote it, or move the file away and start with an empty log (clients then get snapshots)"
    )]
    UnknownFormat {
        /// Which log.
        log: String,
        /// The format in the file.
        found: i64,
        /// The format that this version reads.
        known: i64,
    },
    /// The file is a database, but not a replay log.
    #[error(
        "{log} is a database of something else ({detail}): choose another file for the replay log"
    )]
    NotALog {
        /// Which file.
        log: String,
        /// What was found, or is missing.
        detail: String,
    },
    /// The file is damaged.
    #[error(
        "the replay log {log} is damaged ({detail}): move the file away and start with an empty log, numbered above what clients have seen (they then get snapshots)"
    )]
    Corrupt {
        /// Which log.
        log: String,
        /// What is wrong.
        detail: String,
    },
    /// The disk, or another storage, reported an error.
    #[error(
        "the replay log {log} failed while {doing} ({source}): see to the disk (space, rights, health), then open the log again"
    )]
    Storage {
        /// Which log.
        log: String,
        /// What was being done.
        doing: &'static str,
        /// The storage's error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// An earlier append failed, and whether it reached the disk is unknown.
    #[error(
        "the replay log {log} takes nothing after a failed append: open it again, it then tells which action is its last"
    )]
    Failed {
        /// Which log.
        log: String,
    },
    /// The log behind a reader was dropped.
    #[error("the replay log {log} was closed: take a reader from the one that is open now")]
    Closed {
        /// Which log.
        log: String,
    },
}
