//! `breakbulk inspect`: lists the frames, transfers and messages of a capture, or explains what gateways
//! recorded.

mod capture;
mod describe;
mod detect;
mod examine;
mod format;
mod record;
mod report_json;
mod rows;
mod safe;
mod table;
mod tracker;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use capture::Capture;
use detect::{Guess, Sample, detect};
use examine::{Bounds, Examiner};
pub(crate) use format::Format;
use rows::Report;
pub(crate) use safe::printable;

use crate::failure::Failure;
use crate::frames::Opened;
use crate::output::Output;
use crate::progress;
use crate::size::Size;
use crate::terminal;

/// Why a capture has the format that `--wire` names.
const NAMED: &str = "as --wire says";

const RULES: &str = "\
Of a capture three tables and a summary are printed. A cell that does not apply
is -; a narrow terminal gets no columns in which no row says anything.

frames: seq is the number of a piece in its transfer (from 0) and how many there
are; data is how many bytes of the message the frame carries.

transfers: frames are the first and the last one; pieces and bytes are those
that arrived, and behind the / those that the transfer declared (-: the format
declares none); overhead is what frames add to the data; twice counts pieces
that came more than once; missing lists pieces that did not come.

messages: frame is the one that completed the message; says names its kind, its
method and what is known about its parameters.

Of records each conversation is listed with its gateways, times, sizes and how
it ended. Of one that failed:
  where      between which two gateways or programs, and with which close code
  reason     what whoever closed it wrote
  closed by  who that was, as far as the records tell
  frame      the first frame that did not arrive
  message    the message that it carried, and the piece of it
  cap        the most that the path takes, and the most that was sent
  requests   those that had no answer by then
  remedy     what to change";

/// Rows of each section without `--all`.
const SHOWN: usize = 1000;

/// Rows of each section with `--all`: bounded, since a capture may have more frames than memory.
const KEPT: usize = 250_000;

const DEFAULT_MAX_FRAME: usize = 64 << 20;
const DEFAULT_MAX_MESSAGE: usize = 1 << 30;

#[derive(Args)]
#[command(after_long_help = RULES, after_help = "See --help for what the columns say, and examples.")]
pub(crate) struct Inspect {
    /// The format of the frames [default: detected]
    #[arg(long, value_enum)]
    wire: Option<WireName>,
    /// Print one JSON object for programs instead of a table; lists as much as --all
    #[arg(long)]
    json: bool,
    /// List up to 250,000 rows of each section instead of 1,000; of records: list every conversation, and
    /// explain every failure
    #[arg(long)]
    all: bool,
    /// The largest frame that is decoded [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    max_frame: Option<Size>,
    /// The largest message that is assembled [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    max_message: Option<Size>,
    /// Of records: show and explain only the conversation of this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// The capture: frames one per line, or each behind a u32 big-endian length, or a raw ipc.net
    /// stream; "-" is standard input. Or folders of gateway --record: given those of both gateways, what
    /// both recorded about one session is shown as one conversation
    #[arg(value_name = "FILE|DIR", required = true)]
    files: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WireName {
    /// AHP message segments
    Ahp,
    /// tywrap-frame/1
    Tywrap,
    /// ContextVM's CEP-22 oversized transfer
    Cep22,
    /// loro-extended's wire format v2, as payloads, bare frames or JSON lines
    Loro,
    /// VSCode RPC messages, or the ipc.net stream that carries them
    Vscode,
}

impl WireName {
    /// The formats of that name, the most likely first.
    fn formats(self) -> &'static [Format] {
        match self {
            Self::Ahp => &[Format::Ahp],
            Self::Tywrap => &[Format::Tywrap],
            Self::Cep22 => &[Format::Cep22],
            Self::Loro => &[Format::Loro, Format::LoroFrames, Format::LoroJson],
            Self::Vscode => &[Format::Vscode, Format::Ipc],
        }
    }
}

const ALL_FORMATS: &[Format] = &[
    Format::Ahp,
    Format::Tywrap,
    Format::Cep22,
    Format::JsonRpc,
    Format::LoroJson,
    Format::Loro,
    Format::LoroFrames,
    Format::Vscode,
    Format::Ipc,
];

/// The format of an input among these, if its beginning tells.
pub(crate) fn format_of(opened: &Opened, allowed: &[Format]) -> Option<Format> {
    let sample = Sample {
        bytes: &opened.prefix,
        whole: opened.whole,
        max_frame: DEFAULT_MAX_FRAME,
    };
    let guess = detect(sample, allowed).ok()?;
    Some(guess.format)
}

impl Inspect {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.files.iter().any(|path| record::is_record(path)) {
            let options = record::Options {
                session: self.session,
                json: self.json,
                all: self.all,
            };
            return record::run(&self.files, &options);
        }
        if self.session.is_some() {
            let words = "--session is for folders of gateway --record; a capture has no sessions";
            return Err(Failure::Usage(words.to_owned()));
        }
        let [file] = &self.files[..] else {
            let words = "inspect takes several folders of gateway --record, or one capture";
            return Err(Failure::Usage(words.to_owned()));
        };
        let bounds = Bounds {
            frame: self.max_frame.map_or(DEFAULT_MAX_FRAME, |size| size.0),
            message: self.max_message.map_or(DEFAULT_MAX_MESSAGE, |size| size.0),
            rows: if self.all || self.json { KEPT } else { SHOWN },
        };
        let opened = Opened::open(Some(file))?;
        let name = opened.name.clone();
        let guess = self
            .guess(&opened, bounds)
            .map_err(|why| Failure::Input(format!("{name}: {why}")))?;

        let bar = progress::bar(opened.length, "inspecting");
        let mut capture = Capture::new(opened, guess.format.framing(), bounds.frame);
        let mut examiner = Examiner::new(guess.format, bounds);
        // After a read error, what was read before is still reported.
        let read = loop {
            match capture.next() {
                Ok(Some(item)) => examiner.examine(item),
                Ok(None) => break Ok(()),
                Err(error) => break Err(Failure::Io(name.clone(), error)),
            }
            bar.set_position(capture.bytes);
        };
        bar.finish_and_clear();

        let report = examiner.finish(guess.why);
        self.print(&report)?;
        read?;
        match report.verdict() {
            Some(wrong) => Err(Failure::Input(format!("{name}: {wrong}"))),
            None => Ok(()),
        }
    }

    fn guess(&self, opened: &Opened, bounds: Bounds) -> Result<Guess, String> {
        let sample = Sample {
            bytes: &opened.prefix,
            whole: opened.whole,
            max_frame: bounds.frame,
        };
        let Some(named) = self.wire else {
            return detect(sample, ALL_FORMATS);
        };
        let format = match named.formats() {
            [only] => *only,
            several => detect(sample, several).map_or(several[0], |guess| guess.format),
        };
        let why = NAMED.to_owned();
        Ok(Guess { format, why })
    }

    fn print(&self, report: &Report) -> Result<(), Failure> {
        let mut out = Output::open(None)?;
        let printed = if self.json {
            report_json::print(report, out.writer())
        } else {
            table::print(report, terminal::width(), out.writer())
        };
        printed.map_err(|error| out.failed(error))?;
        out.finish()
    }
}
