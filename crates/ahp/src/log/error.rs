//! What can go wrong with a log, and what to do then.

use std::error::Error;

/// Why a log did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Numbers rise by one within a batch and never fall. Nothing was taken.
    #[error(
        "action {got} cannot come after action {last} in the replay log: number the actions of a batch one by one, from {last} + 1 or above"
    )]
    OutOfOrder {
        /// The number before it.
        last: i64,
        /// The number that does not follow.
        got: i64,
    },
    /// Someone else has the file.
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
        /// What it says of itself.
        found: i64,
        /// What would be understood.
        known: i64,
    },
    /// It is a database, and not a replay log.
    #[error(
        "{log} is a database of something else ({detail}): choose another file for the replay log"
    )]
    NotALog {
        /// Which file.
        log: String,
        /// What was found or missed.
        detail: String,
    },
    /// It cannot be trusted.
    #[error(
        "the replay log {log} is damaged ({detail}): move the file away and start with an empty log, numbered above what clients have seen (they then get snapshots)"
    )]
    Corrupt {
        /// Which log.
        log: String,
        /// What does not fit.
        detail: String,
    },
    /// The disk, or what stands for it, refused.
    #[error(
        "the replay log {log} failed while {doing} ({source}): see to the disk (space, rights, health), then open the log again"
    )]
    Storage {
        /// Which log.
        log: String,
        /// What was being done.
        doing: &'static str,
        /// What the storage says.
        source: Box<dyn Error + Send + Sync>,
    },
    /// An earlier append failed, and whether it reached the disk is not known.
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
