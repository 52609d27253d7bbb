//! The options of `gateway --record`.

use std::path::PathBuf;
use std::time::Duration;

use breakbulk::gateway::record::{RecordOptions, Recorder};
use clap::Args;

use crate::failure::Failure;
use crate::number::positive;
use crate::size::Size;

/// An hour, in seconds.
const HOUR: u64 = 3600;

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Record time, direction, size, transfer, method and id of each frame in this folder, as pcapng files
    /// that only their owner can read; breakbulk inspect DIR shows conversations and why they failed
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// The most that all files of the record take; the oldest are deleted first
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "256MiB",
        requires = "record"
    )]
    record_size: Size,
    /// How long the files of the record are kept, in hours
    #[arg(
        long,
        value_name = "HOURS",
        value_parser = positive,
        default_value_t = RecordOptions::AGE.as_secs() / HOUR,
        requires = "record"
    )]
    record_age: u64,
    /// Record the frames themselves too, with the full content of messages
    #[arg(long, requires = "record")]
    record_bodies: bool,
}

impl Record {
    /// The most that the files take, unless an option says otherwise.
    const SIZE: Size = Size(256 << 20);

    /// What a file asks for; the age is in hours.
    pub(crate) fn of_file(
        folder: PathBuf,
        size: Option<Size>,
        age: Option<u64>,
        bodies: bool,
    ) -> Self {
        Self {
            record: Some(folder),
            record_size: size.unwrap_or(Self::SIZE),
            record_age: age.unwrap_or(RecordOptions::AGE.as_secs() / HOUR).max(1),
            record_bodies: bodies,
        }
    }

    /// Whether anything is recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.record.is_some()
    }

    /// Begins to record, if that is asked for.
    pub(crate) fn start(&self) -> Result<Option<Recorder>, Failure> {
        let Some(folder) = &self.record else {
            return Ok(None);
        };
        if folder.is_file() {
            let name = folder.display();
            let words = format!("--record: {name} is a file; name a folder");
            return Err(Failure::Usage(words));
        }
        let options = RecordOptions::new(folder.clone()).with(|options| {
            options.size = self.record_size.0 as u64;
            options.age = Duration::from_secs(self.record_age.saturating_mul(HOUR));
            options.bodies = if self.record_bodies { usize::MAX } else { 0 };
        });
        let started = Recorder::start(&options);
        let started = started.map_err(|error| Failure::Usage(format!("--record: {error}")))?;
        Ok(Some(started))
    }
}
