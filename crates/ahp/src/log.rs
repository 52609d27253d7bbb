//! The replay log: the actions that a host published, for clients that reconnect.
//!
//! A log keeps one unbroken run of actions, the newest ones, within [`Limits`]. A request for older
//! actions, or for ones that the log never had, gets [`Replay::Gone`]: the client then needs a snapshot.
//! A replay never has a gap.
//!
//! [`MemoryLog`] lasts as long as the process. `DiskLog` (feature `redb`) survives the process and
//! the machine: what [`ReplayLog::append`] stored is there after a power cut. `NatsLog` (feature
//! `jetstream`) is shared by several hosts, and survives the loss of any of them and of NATS servers.
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
#[cfg(feature = "jetstream")]
mod nats;
#[cfg(feature = "jetstream")]
mod place;
#[cfg(any(feature = "jetstream", test))]
mod shared_batch;
mod window;

#[cfg(test)]
#[cfg(feature = "redb")]
mod crash_tests;
#[cfg(test)]
#[cfg(feature = "redb")]
mod disk_tests;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

#[cfg(feature = "redb")]
pub use disk::DiskLog;
pub use error::LogError;
pub use memory::MemoryLog;
#[cfg(feature = "jetstream")]
pub use nats::NatsLog;
#[cfg(feature = "jetstream")]
pub use place::open;

/// What an action costs in addition to the bytes of its params and of its channel's name.
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

/// How much a log keeps; both limits apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The sum of [`Entry::cost`]; by default 64 MiB.
    pub bytes: u64,
    /// The number of actions; by default 100,000. With 0 nothing is ever replayed.
    pub count: usize,
}

/// The answer to a client that reconnects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Replay {
    /// The actions that it missed, oldest first.
    Actions(Vec<Entry>),
    /// The log does not have all of them: the client needs a snapshot.
    Gone {
        /// The smallest number from which a replay is possible.
        from: i64,
        /// The largest one: that of the last action.
        last: i64,
    },
    /// They are larger than the caller allows: the client needs a snapshot.
    TooLarge {
        /// Bytes of params counted when reading stopped; the whole is at least as large.
        size: usize,
        /// What the caller allowed.
        limit: usize,
    },
}

/// Actions of other hosts, once there are some.
pub type Others<'a> = Pin<Box<dyn Future<Output = Result<Vec<Entry>, LogError>> + Send + 'a>>;

/// Stores the actions that a host published.
pub trait ReplayLog: Send + 'static {
    /// The number of the last action that was appended, even if it is trimmed; 0 if there never was one.
    fn last(&self) -> i64;

    /// Appends actions and trims the oldest ones to stay within the limits.
    ///
    /// When it returns, all of them are stored as safely as the log promises. An error means that none
    /// was stored, unless a disk failed at the very end: then only opening the log again tells, and until
    /// then it refuses further actions.
    ///
    /// Numbers rise by one within a batch. A batch may begin at any number above [`last`]; if it skips
    /// some, everything before it counts as [`Replay::Gone`]. An action that is larger than the whole
    /// limit is not kept, and everything up to it counts as gone too.
    ///
    /// A log that several hosts share has one history: if another host appended something that this one has
    /// not taken from [`others`], the error is [`LogError::Overtaken`]. The host then takes it, and numbers
    /// its own actions after it.
    ///
    /// [`last`]: ReplayLog::last
    /// [`others`]: ReplayLog::others
    fn append(&mut self, batch: &[Entry]) -> Result<(), LogError>;

    /// The next actions that other hosts appended to this log, in their order, each once. They count as
    /// appended here from then on. Waits until there are some: without end for a log that belongs to one
    /// host. The future may be dropped; nothing is lost by that.
    fn others(&mut self) -> Others<'_> {
        Box::pin(std::future::pending())
    }

    /// Whether several hosts append to it. A client may then have seen actions at another host that this one
    /// has not taken from [`others`](ReplayLog::others) yet.
    fn is_shared(&self) -> bool {
        false
    }

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

/// Reads a log, also while its owner appends to it.
pub trait ReplayReader: Send + Sync + 'static {
    /// The actions after `seq` on the channels for which `wants` is true, oldest first, up to `upto`
    /// inclusive or the last action, whichever comes first.
    ///
    /// [`Replay::Gone`] if any action after `seq` was trimmed, on whatever channel, and if `seq` is larger
    /// than the last number: then the client has seen actions that this log does not have.
    /// [`Replay::TooLarge`] as soon as the params add up to more than `max_bytes`.
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

    /// How much of [`Limits::bytes`] it uses: params, channel and [`ENTRY_CHARGE`].
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
