//! `breakbulk join`: assembles frames to a message.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use breakbulk::link::{Event, Fault, FaultKind, Frame, Inbound, Key, Link, Message, Received};
use breakbulk::net::fresh_seed;
use clap::Args;

use crate::check::{frame_of, wrong_message};
use crate::failure::Failure;
use crate::frames::{FrameReader, Opened};
use crate::inspect::{self, Format};
use crate::memory;
use crate::options::{WireName, WireOptions, Wired};
use crate::output::{self, Output};
use crate::progress;
use crate::size::Size;

#[derive(Args)]
pub(crate) struct Join {
    /// The format of the frames [default: detected]
    #[arg(long, value_enum)]
    wire: Option<WireName>,
    #[command(flatten)]
    options: WireOptions,
    /// The largest frame (tywrap: its data; the line may be six times as long) [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    max_frame: Option<Size>,
    /// Write the message to this file instead of standard output; it appears once it is complete
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print frames, bytes, seconds and peak memory to standard error
    #[arg(long)]
    stats: bool,
    /// The frames; standard input if absent or "-"
    file: Option<PathBuf>,
}

impl Join {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let now = Instant::now();
        // Options are checked before any input is awaited.
        if let Some(wire) = self.wire {
            let wire = self.options.clone().of(wire)?;
            wire.frame_limit(self.max_frame)?;
            output::check(self.output.as_deref(), wire.is_binary())?;
        }
        let opened = Opened::open(self.file.as_deref())?;
        let detected = detected(&opened);
        let wire = match (self.wire, &detected) {
            (Some(wire), _) => wire,
            (None, Ok(wire)) => *wire,
            (None, Err(why)) => return Err(Failure::Input(format!("{}: {why}", opened.name))),
        };
        let wire = self.options.of(wire)?;
        let limit = wire.frame_limit(self.max_frame)?;
        output::check(self.output.as_deref(), wire.is_binary())?;
        let bar = progress::bar(opened.length, "joining");
        let mut reader = FrameReader::new(opened, wire.is_binary(), limit);
        let mut joiner = Joiner {
            wire: &wire,
            link: wire.link(limit, fresh_seed()),
            message: None,
            keys: BTreeSet::new(),
        };
        let other = detected.ok().filter(|detected| *detected != wire.wire);
        loop {
            let frame = reader
                .next()
                .map_err(|error| look_elsewhere(error, other))?;
            let Some(frame) = frame else { break };
            let handled = joiner.handle_frame(now, frame, reader.cut_off);
            handled.map_err(|what| {
                let failure = Failure::Input(format!("frame {}: {what}", reader.count));
                look_elsewhere(failure, other)
            })?;
            bar.set_position(reader.bytes);
        }
        let frames = reader.count;
        let message = joiner.finish(frames)?;
        let mut out = Output::open(self.output.as_deref())?;
        out.write(&message.bytes)?;
        out.finish()?;
        bar.finish_and_clear();
        if self.stats {
            memory::print_stats(frames, message.bytes.len(), now.elapsed());
        }
        Ok(())
    }
}

/// The wire of the input, by its beginning.
fn detected(opened: &Opened) -> Result<WireName, String> {
    if opened.prefix.is_empty() {
        return Err("it is empty".to_owned());
    }
    let allowed = [
        Format::Ahp,
        Format::Tywrap,
        Format::Cep22,
        Format::JsonRpc,
        Format::Loro,
    ];
    let guess = inspect::format_of(opened, &allowed).ok_or(
        "its beginning is not clearly of one format; name it with --wire ahp, tywrap, cep22 or loro",
    )?;
    match guess {
        // A whole message is a frame of every text wire.
        Format::Ahp | Format::JsonRpc => Ok(WireName::Ahp),
        Format::Tywrap => Ok(WireName::Tywrap),
        Format::Cep22 => Ok(WireName::Cep22),
        _ => Ok(WireName::Loro),
    }
}

/// Adds which wire the input seems to have, if the wire that was named does not fit.
fn look_elsewhere(failure: Failure, other: Option<WireName>) -> Failure {
    match (failure, other) {
        (Failure::Input(why), Some(other)) if !why.contains("use --wire") => {
            let name = other.name();
            Failure::Input(format!(
                "{why}; the input looks like frames of the {name} wire: use --wire {name}, or leave --wire out"
            ))
        }
        (failure, _) => failure,
    }
}

/// Assembles one message. Nothing is written before all frames were read.
struct Joiner<'a> {
    wire: &'a Wired,
    link: Link,
    message: Option<Message>,
    /// Transfers with accepted frames.
    keys: BTreeSet<Key>,
}

impl Joiner<'_> {
    /// Handles one frame; the error says what is wrong with it.
    fn handle_frame(&mut self, now: Instant, frame: Frame, cut_off: bool) -> Result<(), String> {
        let text = frame.bytes().clone();
        if text.is_empty() && !self.wire.is_binary() {
            return Err("an empty line is no frame".into());
        }
        let key = self.key_of(&frame);
        if self.message.is_some() {
            // Late frames of the completed transfer are duplicates.
            let late = key.is_some()
                && self
                    .message
                    .as_ref()
                    .is_some_and(|message| message.key == key);
            return if late {
                Ok(())
            } else {
                Err(
                    "it follows the complete message; join takes one message, inspect lists several"
                        .into(),
                )
            };
        }
        match self.link.handle_frame(now, frame) {
            Received::Fault(fault) => return Err(self.explain(&fault, &text, cut_off)),
            // An `accept`, or a duplicate piece: the format ignores both.
            Received::Ignored | Received::Unmatched(_)
                if key.as_ref().is_none_or(|key| self.keys.contains(key)) => {}
            Received::Ignored | Received::Unmatched(_) => {
                return Err("belongs to no transfer: the frame that opens it is missing".into());
            }
            Received::Pending | Received::Done(_) => self.keys.extend(key),
        }
        while let Some(event) = self.link.poll_event() {
            match event {
                Event::Message(message) => self.message = Some(message),
                Event::TransferFailed(fault) => return Err(self.explain(&fault, &text, cut_off)),
                _ => {}
            }
        }
        match &self.message {
            Some(whole) if whole.key.is_none() => match wrong_message(&whole.bytes, self.wire.wire)
            {
                Some(_) if cut_off => Err(
                    "the input ends inside this frame: it is truncated; nothing was written".into(),
                ),
                Some(why) => Err(why),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// The transfer that a frame belongs to; `None` for whole messages and for the receiver's replies.
    fn key_of(&self, frame: &Frame) -> Option<Key> {
        let wire = self.wire.wire();
        if let Some(piece) = wire.read_canonical(frame) {
            return Some(piece.key);
        }
        match wire.read(frame) {
            Ok(Inbound::Piece(piece)) => Some(piece.key),
            Ok(Inbound::Open(opening)) => Some(opening.key),
            Ok(Inbound::Close { key, .. }) => Some(key),
            _ => None,
        }
    }

    fn explain(&self, fault: &Fault, text: &bytes::Bytes, cut_off: bool) -> String {
        let wire = self.wire.wire();
        let rule = format!("{}: {fault}", wire.code(&fault.kind));
        match &fault.kind {
            _ if cut_off => format!("{rule}; the input ends inside this frame: it is truncated"),
            FaultKind::MessageTooLarge { .. } => format!("{rule}; raise --max-message"),
            FaultKind::FrameTooLarge { .. } => format!("{rule}; raise --max-frame"),
            _ => match frame_of(text).filter(|name| *name != wire.name()) {
                Some(name) => {
                    format!("{rule}; it is a frame of the {name} wire: use --wire {name}")
                }
                None => rule,
            },
        }
    }

    /// The message, if it is complete and no other transfer was begun.
    fn finish(self, frames: u64) -> Result<Message, Failure> {
        let plural = if frames == 1 { "" } else { "s" };
        let unfinished: Vec<String> = self
            .link
            .unfinished()
            .take(4)
            .map(|open| {
                format!(
                    "{} has {} of {} pieces ({} bytes)",
                    self.wire.wire().key_text(open.key),
                    open.pieces,
                    open.count,
                    open.bytes
                )
            })
            .collect();
        if !unfinished.is_empty() {
            let list = unfinished.join(", ");
            return Err(Failure::Input(format!(
                "pieces are missing: the input ends after {frames} frame{plural}, and transfer {list}; nothing was written"
            )));
        }
        let Some(message) = self.message else {
            return Err(Failure::Input(format!(
                "the input ends after {frames} frame{plural} without a message"
            )));
        };
        let wanted = self.wire.given_key()?;
        match (&message.key, wanted) {
            (Some(key), Some(wanted)) if *key != wanted => {
                let text = |key: &Key| self.wire.wire().key_text(key);
                Err(Failure::Input(format!(
                    "the transfer is {:?}, not {:?} as --key says",
                    text(key),
                    text(&wanted)
                )))
            }
            _ => Ok(message),
        }
    }
}
