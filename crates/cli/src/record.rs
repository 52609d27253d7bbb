//! The options of `gateway --record`.

use std::path::PathBuf;
use std::time::Duration;

use breakbulk::gateway::record::{RecordOptions, Recorder};
use clap::Args;

use crate::failure::Failure;
use crate::size::Size;

/// An hour, in seconds.
const HOUR: u64 = 3600;

#[derive(Args, Debug)]
pub(crate) struct Record {
    /// Keep what names each frame (time, direction, size, transfer, method, id) in this folder, as pcapng
    /// files that only their owner can read; breakbulk inspect DIR shows conversations and why they failed
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
    /// For how long they are kept, in hours
    #[arg(
        long,
        value_name = "HOURS",
        value_parser = clap::value_parser!(u64).range(1..),
        default_value_t = RecordOptions::AGE.as_secs() / HOUR,
        requires = "record"
    )]
    record_age: u64,
    /// Keep the frames themselves too, with all that messages say
    #[arg(long, requires = "record")]
    record_bodies: bool,
}

impl Record {
    /// Begins to record, if that is asked for.
    pub(crate) fn start(&self) -> Result<Option<Recorder>, Failure> {
        let Some(folder) = &self.record else {
            return Ok(None);
        };
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
