//! Errors of calls, of starting a bridge, and of the pool.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::SendError;
use breakbulk_net::Mismatch;
use breakbulk_net::process::ExecError;

use crate::machine::{BadCall, Breach, Raised};

/// Why a call has no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The function raised an exception, or the bridge refused the call.
    #[error("{0}")]
    Raised(Raised),
    /// No complete answer came in time. Whether the function ran is not known.
    #[error(
        "no answer to {call} within {} s; raise the timeout, or ask for less at once{}", .after.as_secs_f64(), stderr_note(.stderr)
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
        "a request of {size} bytes is over the limit of {limit} bytes; raise limits.message of the configuration, or send less"
    )]
    RequestTooLarge {
        /// Bytes of the request.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The arguments are invalid. The call was not sent.
    #[error(transparent)]
    BadArguments(#[from] BadCall),
    /// The request cannot be sent to this bridge. It was not sent.
    #[error("not sent: {0}")]
    NotSent(SendError),
    /// The bridge broke the protocol; it is restarted before the next call. Whether the function ran is
    /// not known.
    #[error("{breach}; the bridge is restarted{}", stderr_note(.stderr))]
    Breach {
        /// How it broke the protocol.
        breach: Breach,
        /// The end of its standard error.
        stderr: String,
    },
    /// The bridge exited before it answered. It is started again for the next call; the failed call is
    /// not repeated.
    #[error(
        "the bridge ended before there was an answer ({how}); call again where that is safe{}", stderr_note(.stderr)
    )]
    Exited {
        /// How it exited.
        how: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// The bridge cannot be started.
    #[error("the bridge cannot be started: {0}")]
    Start(StartError),
    /// The pool had no bridge to lease.
    #[error("{0}")]
    Pool(PoolError),
    /// This host or pool was stopped.
    #[error("the host was stopped")]
    Stopped,
}

/// Why a bridge cannot be started.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its program cannot be executed.
    #[error("{0}")]
    Exec(Arc<ExecError>),
    /// It exited, or broke the protocol, before it was ready.
    #[error("{0}")]
    Failed(Box<CallError>),
    /// The transport cannot carry its lines.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The host was stopped meanwhile.
    #[error("the host was stopped")]
    Stopped,
}

/// Why no bridge could be leased.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// No bridge became free in time.
    #[error(
        "none of {bridges} bridges was free within {} s; give the pool more bridges, or its callers more time to wait", .after.as_secs_f64()
    )]
    TimedOut {
        /// Bridges of the pool.
        bridges: usize,
        /// The time limit.
        after: Duration,
    },
    /// Too many callers wait.
    #[error(
        "{limit} callers wait for a bridge already, which is the limit; let more callers wait, or call less at once"
    )]
    Full {
        /// The limit.
        limit: usize,
    },
    /// The pool was stopped.
    #[error("the pool was stopped")]
    Stopped,
}

fn stderr_note(stderr: &str) -> String {
    match stderr.trim_end() {
        "" => String::new(),
        text => format!(". Its standard error ends with:\n{text}"),
    }
}
