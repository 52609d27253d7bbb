//! The flight recorder: writes what identifies each frame of each session to files, bounded by size and age.
//!
//! The files are pcapng, so that Wireshark and other programs open them: a packet for each frame, with its
//! time, direction and size, and a comment that identifies it. `head.rs` decides what that comment says:
//! never the content of a message, unless bodies are asked for. `writer.rs` has the thread that writes, and
//! the queue before it; `segments.rs` the files and their bounds; `read.rs` reads them again.

mod entry;
mod feed;
mod head;
mod pcapng;
mod read;
mod segments;
mod sink;
mod time;
mod writer;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use entry::{By, End, Entry, Fate, NotCarried, Note, Point, SideName, Way, words};
pub use feed::{Feed, Follower, FrameTap, Live};
pub(crate) use head::short;
pub use head::{FrameKind, Head, Namer, Says};
pub use pcapng::Damage;
pub use read::{Found, MAGIC, RecordReader, files};
pub use time::{clock, date};
pub use writer::Recorder;

/// How the name of a segment begins and ends.
const FILE_START: &str = "breakbulk-";
const FILE_END: &str = ".pcapng";

/// What is recorded, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordOptions {
    /// The folder of the files. It is made if there is none, and belongs to one gateway at a time.
    pub folder: PathBuf,
    /// The most bytes that all files take together.
    pub size: u64,
    /// For how long they are kept.
    pub age: Duration,
    /// How many bytes of each frame are kept: 0 for none, so that no content of messages is on the disk.
    pub bodies: usize,
}

breakbulk_link::with!(RecordOptions);

impl RecordOptions {
    /// The smallest size.
    pub const LEAST_SIZE: u64 = 1 << 20;

    /// The usual size: about a million frames.
    pub const SIZE: u64 = 256 << 20;

    /// The usual age: a week.
    pub const AGE: Duration = Duration::from_secs(7 * 24 * 3600);

    /// The usual options for a folder.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            size: Self::SIZE,
            age: Self::AGE,
            bodies: 0,
        }
    }
}

/// Why nothing is recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The folder cannot be used.
    #[error("{}: {error}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Another gateway records there.
    #[error("another gateway records in {}; each needs a folder of its own", folder.display())]
    Taken {
        /// The folder.
        folder: PathBuf,
    },
    /// Too little room.
    #[error(
        "a record of {size} bytes is too small; it must be at least {}",
        RecordOptions::LEAST_SIZE
    )]
    Size {
        /// What was asked for.
        size: u64,
    },
}
