//! Why a call has no result: an exception in the bridge, or a breach of the protocol.

use std::fmt;
use std::time::Duration;

use breakbulk_link::Fault;
use breakbulk_message::tywrap::DecodeErrorKind;

/// An exception that the bridge reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// Its class.
    pub kind: String,
    /// Its text.
    pub message: String,
    /// Its traceback, if the bridge sent one.
    pub traceback: Option<String>,
    /// The end of the bridge's standard error.
    pub stderr: String,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = format!("{}: {}", self.kind, self.message);
        f.write_str(&what)?;
        match self.traceback.as_deref().map(str::trim_end) {
            // An error in the call itself has a traceback of one line, which repeats this text.
            Some(traceback) if traceback != what => write!(f, "\n{traceback}"),
            _ => Ok(()),
        }
    }
}

/// How a bridge broke the protocol. It is restarted, since its further output cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Breach {
    /// Its standard output had a line that is not a message. [`Config::tolerant`](super::Config) skips
    /// such lines.
    #[error(
        "the bridge wrote something else than messages to its standard output ({line:?}); let it print to standard error instead"
    )]
    Pollution {
        /// The beginning of the line.
        line: String,
    },
    /// An answer that cannot be parsed.
    #[error("the bridge's answer cannot be read: {why} ({line:?})")]
    Unreadable {
        /// What is wrong with it.
        why: DecodeErrorKind,
        /// The beginning of it.
        line: String,
    },
    /// An answer to a call that is not open.
    #[error("the bridge answered call {id}, which is not open")]
    UnknownId {
        /// The id.
        id: i64,
    },
    /// An error without an id that may belong to any of several calls, or to none.
    #[error("the bridge answered with an error that does not say which call it is about: {error}")]
    Unnamed {
        /// The error.
        error: String,
    },
    /// The frames of an answer have another id than the answer.
    /// [`Config::ids_may_differ`](super::Config) allows that.
    #[error("the bridge's frames of call {frame} hold an answer to call {message}")]
    IdsDiffer {
        /// The frames' id.
        frame: i64,
        /// The answer's id.
        message: i64,
    },
    /// Frames that break the rules.
    #[error("the bridge's frames are wrong: {fault} ({code}){}", remedy(.code))]
    Frame {
        /// The original's error code.
        code: &'static str,
        /// What is wrong.
        fault: Box<Fault>,
    },
    /// Its output cannot be split into lines any more.
    #[error("the bridge's output cannot be read any further: {why}")]
    Line {
        /// Why.
        why: String,
    },
    /// It has stopped reading its input.
    #[error("the bridge did not read the rest of a call that was given up within {} s", .after.as_secs_f64())]
    Stuck {
        /// How long it read nothing.
        after: Duration,
    },
    /// The application asked for a restart.
    #[error("the bridge was restarted")]
    Restarted,
}

fn remedy(code: &str) -> &'static str {
    match code {
        "FRAME_PAYLOAD_TOO_LARGE" => "; raise limits.message of the configuration, or ask for less",
        _ => "",
    }
}
