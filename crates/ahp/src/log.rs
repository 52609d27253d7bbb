//! The replay log: what a host published, so that a client that was away gets what it missed.
//!
//! A log keeps one unbroken run of actions, the newest ones, within [`Limits`]. Whoever asks for
//! something older, or for something the log never had, is told that it is [`Replay::Gone`] and
//! needs a snapshot: a hole is never passed over in silence.
//!
//! [`MemoryLog`] lasts as long as the process. `DiskLog` (feature `redb`) survives the process and
//! the machine: what [`ReplayLog::append`] took is there after a power cut.
//!
//! ```
//! use breakbulk_ahp::log::{Entry, Limits, MemoryLog, Replay, ReplayLog};
//!
//! let mut log = MemoryLog::new(Limits::default());
//! log.append(&[
//!     Entry::new(1, "ahp-root://", r#"{"serverSeq":1}"#),
//!     Entry::new(2, "ahp-session:/a", r#"{"serverSeq":2}"#),
//! ])?;
//! // A client that saw nothing yet and follows one session.
//! let replay = log.since(0, log.last(), &|channel| channel == "ahp-session:/a", 1_000_000)?;
//! assert_eq!(replay, Replay::Actions(vec![Entry::new(2, "ahp-session:/a", r#"{"serverSeq":2}"#)]));
//! # Ok::<(), breakbulk_ahp::log::LogError>(())
//! ```

#[cfg(feature = "redb")]
mod disk;
#[cfg(feature = "redb")]
mod disk_open;
mod error;
mod memory;
mod window;

#[cfg(test)]
#[cfg(feature = "redb")]
mod crash_tests;
#[cfg(test)]
#[cfg(feature = "redb")]
mod disk_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;

#[cfg(feature = "redb")]
pub use disk::DiskLog;
pub use error::LogError;
pub use memory::MemoryLog;

/// What an action costs beside the bytes of its params and of its channel's name.
///
/// In memory that is its place in a queue that may be half empty (2 × 56 bytes), the counters of
/// two shared buffers and the allocator's own; on disk two rows and their share of the pages.
pub const ENTRY_CHARGE: u64 = 192;

/// One published action as it stands in a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number (`serverSeq`), from 1.
    pub seq: i64,
    /// The channel it was published on. Share one name among all actions of a channel.
    pub channel: Arc<str>,
    /// The JSON of the `action` notification's params. A log in memory keeps this very buffer, so
    /// it should not be a small slice of a large one.
    pub params: Bytes,
}

/// How much a log keeps; both hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The sum of [`Entry::cost`]: 64 MiB unless told otherwise.
    pub bytes: u64,
    /// The number of actions: 100,000 unless told otherwise. With 0 nothing is ever replayed.
    pub count: usize,
}

/// The answer to a client that was away.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Replay {
    /// All that it missed, oldest first.
    Actions(Vec<Entry>),
    /// Part of it is not here any more, or never was: the client needs a snapshot.
    Gone {
        /// The smallest number from which a replay is possible.
        from: i64,
        /// The largest one: that of the last action.
        last: i64,
    },
    /// It is more than the caller wants to send: the client needs a snapshot.
    TooLarge {
        /// Bytes of params counted when reading stopped; the whole is at least as large.
        size: usize,
        /// What the caller allowed.
        limit: usize,
    },
}

/// Where a host keeps what it published.
pub trait ReplayLog: Send + 'static {
    /// The number of the last action that it took; 0 if there never was one. Survives trimming.
    fn last(&self) -> i64;

    /// Appends actions and trims the oldest ones to stay within the limits.
    ///
    /// When it returns they survive whatever the log promises to survive, all of them together;
    /// an error means that none was taken, but for a disk that failed at the very end: there only
    /// the next opening tells, and until then the log takes nothing more.
    ///
    /// Numbers rise by one within a batch. A batch may begin at any number above [`last`]; if it
    /// leaves some out, what came before them counts as gone. An action that is larger than the
    /// whole limit is numbered and not kept, and what came before it counts as gone too.
    ///
    /// [`last`]: ReplayLog::last
    fn append(&mut self, batch: &[Entry]) -> Result<(), LogError>;

    /// A handle that reads on any thread, while this one appends.
    fn reader(&self) -> Arc<dyn ReplayReader>;

    /// As [`ReplayReader::since`].
    fn since(
        &self,
        seq: i64,
        upto: i64,
        wants: &dyn Fn(&str) -> bool,
        max_bytes: usize,
    ) -> Result<Replay, LogError> {
        self.reader().since(seq, upto, wants, max_bytes)
    }

    /// Whether [`append`](ReplayLog::append) and reading wait for a disk, so that a caller on an
    /// async thread moves them elsewhere.
    fn blocks(&self) -> bool;
}

/// Reads a log that someone else appends to.
pub trait ReplayReader: Send + Sync + 'static {
    /// What came after `seq` on the channels that `wants` names, oldest first, up to `upto`
    /// inclusive or the last action, whichever comes first.
    ///
    /// [`Replay::Gone`] where anything after `seq` was trimmed, on whatever channel, and where
    /// `seq` is larger than the last number: that client saw what this log does not know.
    /// [`Replay::TooLarge`] as soon as the params add up to more than `max_bytes`; the rest is not
    /// read then.
    fn since(
        &self,
        seq: i64,
        upto: i64,
        wants: &dyn Fn(&str) -> bool,
        max_bytes: usize,
    ) -> Result<Replay, LogError>;
}

impl Entry {
    /// An action with this number.
    pub fn new(seq: i64, channel: impl Into<Arc<str>>, params: impl Into<Bytes>) -> Self {
        Self {
            seq,
            channel: channel.into(),
            params: params.into(),
        }
    }

    /// What it counts against [`Limits::bytes`]: params, channel and [`ENTRY_CHARGE`].
    pub fn cost(&self) -> u64 {
        cost(self.channel.len(), self.params.len() as u64)
    }
}

fn cost(channel: usize, params: u64) -> u64 {
    params
        .saturating_add(channel as u64)
        .saturating_add(ENTRY_CHARGE)
}

breakbulk_link::with!(Limits);

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            count: 100_000,
        }
    }
}
