//! Why the program ends without having done its work.

use std::fmt;
use std::io;

/// What went wrong, and with it the exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line asks for something that cannot be: 2.
    Usage(String),
    /// The input breaks the format or a limit: 1.
    Input(String),
    /// What had begun could not be finished: 1.
    Session(String),
    /// A file cannot be read or written: 1.
    Io(String, io::Error),
    /// Whoever read our output has left: 1, and nothing to say.
    Pipe,
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Input(_) | Self::Session(_) | Self::Io(..) | Self::Pipe => 1,
        }
    }

    /// A failed write: a closed pipe is no news.
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
            Self::Usage(what) | Self::Input(what) | Self::Session(what) => f.write_str(what),
            Self::Io(name, error) => write!(f, "{name}: {error}"),
            Self::Pipe => f.write_str("the reader of the output has left"),
        }
    }
}
