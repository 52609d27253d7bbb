//! Why the program failed, and its exit codes.

use std::fmt;
use std::io;

/// What went wrong; each kind has its exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line asks for something impossible, or what it names cannot be used or reached: 2.
    Usage(String),
    /// A file that it names cannot be opened: 2.
    Open(String, io::Error),
    /// The input breaks the format or a limit: 1.
    Input(String),
    /// What had begun could not be finished: 1.
    Session(String),
    /// A file that was opened cannot be read or written any further: 1.
    Io(String, io::Error),
    /// The time limit has passed: 124, as `timeout` has it.
    TimedOut(String),
    /// A signal asked the program to stop: 130, as shells have it for Ctrl-C.
    Interrupted(String),
    /// The reader of the output has closed it: 1, without a message.
    Pipe,
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Open(..) => 2,
            Self::TimedOut(_) => 124,
            Self::Interrupted(_) => 130,
            Self::Input(_) | Self::Session(_) | Self::Io(..) | Self::Pipe => 1,
        }
    }

    /// From a failed write; a closed pipe is not reported.
    pub(crate) fn writing(to: &str, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Pipe,
            _ => Self::Io(to.to_owned(), error),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what)
            | Self::Input(what)
            | Self::Session(what)
            | Self::TimedOut(what)
            | Self::Interrupted(what) => f.write_str(what),
            Self::Open(name, error) | Self::Io(name, error) => write!(f, "{name}: {error}"),
            Self::Pipe => f.write_str("the reader of the output has left"),
        }
    }
}
