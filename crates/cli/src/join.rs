//! `breakbulk join`: frames become the message that they carry.

use std::path::PathBuf;
use std::time::Instant;

use breakbulk::link::{Event, Link, Message, Received};
use clap::Args;

use crate::failure::Failure;
use crate::frames::{self, FrameReader};
use crate::memory;
use crate::options::{WireOptions, seed};
use crate::progress;
use crate::size::Size;

#[derive(Args)]
pub(crate) struct Join {
    #[command(flatten)]
    wire: WireOptions,
    /// The largest frame that is taken
    #[arg(long, value_name = "SIZE")]
    max_frame: Option<Size>,
    /// Write the message to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Tell frames, bytes, seconds and peak memory on standard error
    #[arg(long)]
    stats: bool,
    /// The frames; standard input if absent or "-"
    file: Option<PathBuf>,
}

impl Join {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let limit = self.wire.frame_limit(self.max_frame)?;
        let key = self.wire.key(&[0; 32])?;
        let (mut reader, length) =
            FrameReader::open(self.file.as_deref(), self.wire.is_binary(), limit)?;
        let bar = progress::bar(length, "joining");
        let mut link = self.wire.link(limit, seed());
        let mut message: Option<Message> = None;
        let now = Instant::now();
        while let Some(frame) = reader.next()? {
            let at = |what: String| Failure::Input(format!("frame {}: {what}", reader.count));
            if message.is_some() {
                return Err(at("the message was complete before; join takes one message, inspect lists several".into()));
            }
            let received = link.handle_frame(now, frame);
            if let Received::Fault(fault) = &received {
                return Err(at(format!(
                    "{}: {fault}",
                    self.wire.wire().code(&fault.kind)
                )));
            }
            if received == Received::Ignored {
                return Err(at(
                    "belongs to no transfer: its opening is missing, or it was complete".into(),
                ));
            }
            message = take_message(&mut link);
            if let Some(whole) = message.as_ref().filter(|message| message.key.is_none()) {
                let checked = self.wire.check_message(&whole.bytes);
                checked.map_err(|why| at(why.to_owned()))?;
            }
            bar.set_position(reader.bytes);
        }
        let Some(message) = message else {
            return Err(unfinished(&link, reader.count));
        };
        if self.wire.key_is_given() && message.key.is_some() && message.key != key {
            return Err(Failure::Input(format!(
                "the transfer is not {}",
                key.map(|key| key.to_string()).unwrap_or_default()
            )));
        }
        let (mut out, name) = frames::output(self.output.as_deref())?;
        out.write_all(&message.bytes)
            .and_then(|()| out.flush())
            .map_err(|error| Failure::writing(&name, error))?;
        bar.finish_and_clear();
        if self.stats {
            memory::tell(reader.count, message.bytes.len(), now.elapsed());
        }
        Ok(())
    }
}

fn take_message(link: &mut Link) -> Option<Message> {
    let mut message = None;
    while let Some(event) = link.poll_event() {
        if let Event::Message(whole) = event {
            message = Some(whole);
        }
    }
    message
}

fn unfinished(link: &Link, frames: u64) -> Failure {
    Failure::Input(match link.open_transfers() {
        0 => format!("the input ends after {frames} frames without a message"),
        _ => format!(
            "the input is truncated: it ends after {frames} frames with {} bytes of an unfinished message; nothing was written",
            link.pending_bytes()
        ),
    })
}
