//! What a bridge answers instead of a result: an exception, or something that breaks the protocol.

use std::fmt;
use std::time::Duration;

use breakbulk_link::Fault;
use breakbulk_message::tywrap::DecodeErrorKind;

/// An exception, as the bridge told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// Its class.
    pub kind: String,
    /// Its text.
    pub message: String,
    /// Where it came from, if the bridge says so.
    pub traceback: Option<String>,
    /// The end of the bridge's standard error.
    pub stderr: String,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = format!("{}: {}", self.kind, self.message);
        f.write_str(&what)?;
        match self.traceback.as_deref().map(str::trim_end) {
            // A traceback of an error in the call itself says no more than its last line.
            Some(traceback) if traceback != what => write!(f, "\n{traceback}"),
            _ => Ok(()),
        }
    }
}

/// What a bridge did so that its output cannot be trusted any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Breach {
    /// Output that is no message.
    #[error(
        "the bridge wrote something else than messages to its standard output ({line:?}); keep prints away from it, or set Settings::tolerant"
    )]
    Pollution {
        /// The beginning of it.
        line: String,
    },
    /// A message that cannot be read.
    #[error("the bridge's answer cannot be read: {why} ({line:?})")]
    Unreadable {
        /// What is wrong with it.
        why: DecodeErrorKind,
        /// The beginning of it.
        line: String,
    },
    /// An answer to a question that nobody asked.
    #[error("the bridge answered call {id}, which nobody waits for")]
    UnknownId {
        /// The id.
        id: i64,
    },
    /// An error that could be of any of several calls.
    #[error("the bridge answered with an error that may be any call's: {error}")]
    Unnamed {
        /// The error.
        error: String,
    },
    /// Frames with one id that hold an answer with another.
    #[error(
        "the bridge's frames of call {frame} hold an answer to call {message}; Settings::ids_may_differ lets that pass"
    )]
    IdsDiffer {
        /// The frames' id.
        frame: i64,
        /// The answer's id.
        message: i64,
    },
    /// Frames that break the rules.
    #[error("the bridge's frames are wrong: {fault} ({code}){}", remedy(.code))]
    Frame {
        /// The original's name for it.
        code: &'static str,
        /// What is wrong.
        fault: Box<Fault>,
    },
    /// A line that cannot be read.
    #[error("the bridge's output cannot be read on: {why}")]
    Line {
        /// Why.
        why: String,
    },
    /// It reads nothing more.
    #[error("the bridge took nothing more of a call that was given up for {} s", .after.as_secs_f64())]
    Stuck {
        /// For how long.
        after: Duration,
    },
    /// The application asked for a restart.
    #[error("the bridge was restarted")]
    Restarted,
}

fn remedy(code: &str) -> &'static str {
    match code {
        "FRAME_PAYLOAD_TOO_LARGE" => "; raise Settings::message, or ask for less",
        _ => "",
    }
}
