//! `breakbulk split`: a message becomes frames.

use std::path::PathBuf;
use std::time::Instant;

use breakbulk::link::{Event, Outgoing, PeerLimits, PeerSupport, PlanOptions, SendError};
use clap::Args;

use crate::failure::Failure;
use crate::frames;
use crate::memory;
use crate::options::{WireOptions, seed};
use crate::progress;
use crate::size::Size;

#[derive(Args)]
pub(crate) struct Split {
    #[command(flatten)]
    wire: WireOptions,
    /// The largest frame: its text (tywrap: its data; see --strict and --wrap)
    #[arg(long, value_name = "SIZE")]
    max_frame: Size,
    /// Write the frames to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Tell frames, bytes, seconds and peak memory on standard error
    #[arg(long)]
    stats: bool,
    /// The message; standard input if absent or "-"
    file: Option<PathBuf>,
}

impl Split {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let cap = self.wire.cap(self.max_frame.0)?;
        let seed = seed();
        let key = self.wire.key(&seed)?;
        let message = frames::read_message(self.file.as_deref(), self.wire.max_message())?;
        let bar = progress::bar(Some(message.len() as u64), "splitting");

        // Planned once by itself, so that what cannot be sent is known before anything is written.
        let peer = PeerSupport::Yes(PeerLimits {
            message: self.wire.max_message(),
            ..PeerLimits::NONE
        });
        let options = PlanOptions {
            key: key.as_ref(),
            may_cut: true,
            peer: &peer,
            cap: &cap,
        };
        let plan = self.wire.wire().plan(&message, &options);
        plan.map_err(refused)?;
        let checked = self.wire.check_message(&message);
        checked.map_err(|why| Failure::Input(why.to_owned()))?;

        let now = Instant::now();
        let mut link = self.wire.link(usize::MAX, seed);
        link.set_cap(cap);
        let size = message.len();
        let mut outgoing = Outgoing::new(message);
        outgoing.key = key;
        link.send(now, outgoing)
            .map_err(|rejected| refused(rejected.error))?;
        let (mut out, name) = frames::output(self.output.as_deref())?;
        let mut frame = Vec::new();
        let mut count = 0;
        while link.poll_transmit(now, &mut frame).is_some() {
            frames::write(&mut *out, &frame, self.wire.is_binary())
                .map_err(|error| Failure::writing(&name, error))?;
            frame.clear();
            count += 1;
            while let Some(event) = link.poll_event() {
                match event {
                    Event::Progress { done, .. } => bar.set_position(done as u64),
                    Event::SendFailed { error, .. } => return Err(refused(error)),
                    _ => {}
                }
            }
        }
        out.flush()
            .map_err(|error| Failure::writing(&name, error))?;
        bar.finish_and_clear();
        if self.stats {
            memory::tell(count, size, now.elapsed());
        }
        Ok(())
    }
}

fn refused(error: SendError) -> Failure {
    match error {
        SendError::BadKey { .. } => Failure::Usage(format!("--key: {error}")),
        error => Failure::Input(error.to_string()),
    }
}
