//! What can go wrong between a host and its bridge.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Fault, SendError};
use breakbulk_message::tywrap::DecodeErrorKind;
use breakbulk_net::process::ExecError;

/// Why a call has no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The function raised an exception, or the bridge refused the call.
    #[error("{0}")]
    Raised(Raised),
    /// There was no whole answer in time. Whether the function ran is not known.
    #[error(
        "no answer to {call} within {} s; raise the timeout, or ask for less at once{}", .after.as_secs_f64(), said(.stderr)
    )]
    TimedOut {
        /// The module and the function.
        call: String,
        /// The time limit.
        after: Duration,
        /// The end of the bridge's standard error.
        stderr: String,
    },
    /// The request is larger than the limit. It was not sent.
    #[error(
        "a request of {size} bytes is over the limit of {limit}; raise Settings::message, or send less"
    )]
    RequestTooLarge {
        /// Bytes of the request.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The arguments are not what a call takes. It was not sent.
    #[error("the call cannot be written: {0}")]
    BadArguments(&'static str),
    /// The request cannot go out over this bridge. It was not sent.
    #[error("not sent: {0}")]
    NotSent(SendError),
    /// The bridge broke the protocol; it is restarted before the next call. Whether the function ran is
    /// not known.
    #[error("{breach}; the bridge is restarted{}", said(.stderr))]
    Breach {
        /// What it did.
        breach: Breach,
        /// The end of its standard error.
        stderr: String,
    },
    /// The bridge ended before there was an answer. It is started again for the next call; nothing is
    /// sent again by itself.
    #[error(
        "the bridge ended before there was an answer ({how}); call again where that is safe{}", said(.stderr)
    )]
    Exited {
        /// How it ended.
        how: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// The bridge cannot be started.
    #[error("the bridge cannot be started: {0}")]
    Start(StartError),
    /// There was no bridge to be had.
    #[error("{0}")]
    Pool(PoolError),
    /// This host or pool was stopped.
    #[error("the host was stopped")]
    Stopped,
}

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

/// Why a bridge cannot be started.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its program cannot.
    #[error("{0}")]
    Exec(Arc<ExecError>),
    /// It ended, or broke the protocol, before it was ready.
    #[error("{0}")]
    Failed(Box<CallError>),
    /// The host was stopped meanwhile.
    #[error("the host was stopped")]
    Stopped,
}

/// Why a pool has no bridge to lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// None became free in time.
    #[error(
        "none of {bridges} bridges was free within {} s; ask for more bridges or a longer queue timeout", .after.as_secs_f64()
    )]
    TimedOut {
        /// Bridges of the pool.
        bridges: usize,
        /// The time limit.
        after: Duration,
    },
    /// Too many are waiting.
    #[error("{limit} callers wait for a bridge already; raise PoolSettings::queue or call less")]
    Full {
        /// The limit.
        limit: usize,
    },
    /// The pool was stopped.
    #[error("the pool was stopped")]
    Stopped,
}

fn said(stderr: &str) -> String {
    match stderr.trim_end() {
        "" => String::new(),
        said => format!(". Its standard error ends with:\n{said}"),
    }
}

fn remedy(code: &str) -> &'static str {
    match code {
        "FRAME_PAYLOAD_TOO_LARGE" => "; raise Settings::message, or ask for less",
        _ => "",
    }
}
