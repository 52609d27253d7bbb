//! `breakbulk split`: cuts a message into frames.

use std::path::PathBuf;
use std::time::Instant;

use breakbulk::link::{Event, Outgoing, PeerLimits, PeerSupport, Plan, PlanOptions, SendError};
use breakbulk::message::ahp;
use breakbulk::message::jsonrpc::Envelope;
use breakbulk::net::fresh_seed;
use clap::Args;

use crate::check::wrong_message;
use crate::failure::Failure;
use crate::frames;
use crate::memory;
use crate::options::{WireName, WireOptions};
use crate::output::{self, Output};
use crate::progress;
use crate::size::Size;

#[derive(Args)]
pub(crate) struct Split {
    /// The format of the frames
    #[arg(long, value_enum)]
    wire: WireName,
    #[command(flatten)]
    options: WireOptions,
    /// The largest frame: its text (tywrap: its data; see --strict and --wrap)
    #[arg(long, value_name = "SIZE")]
    max_frame: Size,
    /// Write the frames to this file instead of standard output; it appears once it is complete
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print frames, bytes, seconds and peak memory to standard error
    #[arg(long)]
    stats: bool,
    /// The message; standard input if absent or "-"
    file: Option<PathBuf>,
}

impl Split {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let now = Instant::now();
        let wire = self.options.of(self.wire)?;
        let cap = wire.cap(self.max_frame.0)?;
        output::check(self.output.as_deref(), wire.is_binary())?;
        let message = frames::read_message(self.file.as_deref(), wire.max_message())?;
        let seed = fresh_seed();
        let key = wire.key(&message, &seed)?;
        let bar = progress::bar(Some(message.len() as u64), "splitting");

        // Planned first, so that a message that cannot be sent fails before anything is written.
        let limits = PeerLimits {
            message: wire.max_message(),
            ..PeerLimits::NONE
        };
        let peer = PeerSupport::Yes(limits);
        let options = PlanOptions {
            key: key.as_ref(),
            may_cut: true,
            known_text: false,
            peer: &peer,
            cap: &cap,
        };
        let plan = wire.wire().plan(&message, &options).map_err(refused)?;
        if let Some(why) = wrong_message(&message, wire.wire) {
            return Err(Failure::Input(format!("{why}; a receiver would refuse it")));
        }
        if wire.wire == WireName::Ahp && plan != Plan::Whole && is_handshake(&message) {
            let why = "initialize and reconnect are never cut, since segments are negotiated by them; send less or raise --max-frame";
            return Err(Failure::Input(why.into()));
        }

        let mut link = wire.link(usize::MAX, seed);
        link.set_cap(cap);
        let size = message.len();
        let mut outgoing = Outgoing::new(message);
        outgoing.key = key;
        link.send(now, outgoing)
            .map_err(|rejected| refused(rejected.error))?;
        let mut out = Output::open(self.output.as_deref())?;
        let mut frame = Vec::new();
        let mut count = 0;
        while link.poll_transmit(now, &mut frame).is_some() {
            let (length, end) = frames::delimiters(&frame, wire.is_binary())?;
            if wire.is_binary() {
                out.write(&length)?;
            }
            out.write(&frame)?;
            out.write(end)?;
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
        out.finish()?;
        bar.finish_and_clear();
        if self.stats {
            memory::print_stats(count, size, now.elapsed());
        }
        Ok(())
    }
}

/// Whether this is a request that opens an AHP connection.
fn is_handshake(message: &[u8]) -> bool {
    let text = std::str::from_utf8(message).ok();
    let Some(envelope) = text.and_then(Envelope::parse) else {
        return false;
    };
    let Some(params) = envelope.params else {
        return false;
    };
    match envelope.method().as_deref() {
        Some("initialize") => ahp::InitializeParams::read(params)
            .is_ok_and(|params| params.channel == ahp::ROOT_CHANNEL),
        Some("reconnect") => ahp::ReconnectParams::read(params).is_ok(),
        _ => false,
    }
}

fn refused(error: SendError) -> Failure {
    match error {
        SendError::BadKey { .. } => Failure::Usage(format!("--key: {error}")),
        SendError::MessageTooLarge { .. } => Failure::Input(format!("{error} (--max-message)")),
        SendError::CapTooSmall { .. } => Failure::Input(format!("--max-frame: {error}")),
        SendError::NotUtf8 => Failure::Input(
            "the message is not UTF-8, and this wire carries text; use --wire loro, which carries bytes"
                .to_owned(),
        ),
        error => Failure::Input(error.to_string()),
    }
}
