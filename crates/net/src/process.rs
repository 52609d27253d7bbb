//! Frames over byte streams: this process's own standard streams, and those of a command that is
//! started for them.
//!
//! A stream has no frames of its own, so a [`Framing`] puts them there. Frames are text. Nothing is
//! buffered beyond the limit that the caller sets, whatever the other end writes.
//!
//! A stream can end one way and go on the other; a [`Connection`](crate::Connection) cannot. Whoever
//! must not lose what still comes asks for [`Ends`] and is told of the end of the input there, while
//! the connection lives on until it is closed. Without it the end of the input is the end.

mod exec;
mod framing;
mod output;
mod program;
mod stderr;
mod stdio;
mod stop;
mod stream;
mod words;

pub use exec::{Exec, ExecError, ExecSink, ExecSource, Exited, exec};
pub use framing::{Decoder, Framing, Members, Unreadable};
pub use program::{Program, Stderr, find};
pub use stderr::Tail;
pub use stdio::{Stdio, stdio};
pub use stop::Stopper;
pub use stream::{Ends, Stream, StreamSink, StreamSource};
pub use words::{BadWords, split};
