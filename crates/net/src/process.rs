//! Frames over byte streams: this process's standard input and output, those of a child process, and TCP
//! and Unix sockets.
//!
//! A [`Framing`] says where a frame begins and ends in the stream. No more than the caller's limit is
//! buffered, whatever the other end writes.
//!
//! One direction of a stream can end while the other goes on; a [`Connection`](crate::Connection)
//! has no such half-closed state, and closes when its input ends. An application that still has to
//! send then asks for [`Ends`]: it reports the end of the input, and the connection stays open
//! until it is closed.

mod command_line;
mod exec;
mod framing;
mod output;
mod program;
#[cfg(feature = "ws")]
mod sockets;
mod stderr;
mod stderr_lines;
mod stdio;
mod stop;
mod stream;
mod supervisor;

pub use command_line::{SplitError, split};
pub use exec::{Exec, ExecError, ExecSink, ExecSource, Exited, exec};
pub use framing::{Decoder, Framing, LengthField, Members, Unreadable};
pub use program::{Program, Stderr, find};
#[cfg(all(unix, feature = "ws"))]
pub use sockets::unix_stream;
#[cfg(feature = "ws")]
pub use sockets::{AcceptedStream, SocketReader, SocketStream, StreamListener, tcp_stream};
pub use stderr::StderrTail;
pub use stderr_lines::{StderrLines, set_stderr_format};
pub use stdio::{Stdio, stdio};
pub use stop::Stopper;
pub use stream::{Ends, Stream, StreamSink, StreamSource};
pub use supervisor::{set_supervisor, supervise};
