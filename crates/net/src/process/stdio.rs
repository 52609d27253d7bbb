//! The transport over this process's own standard input and output.

use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

use super::framing::Framing;
use super::output::Output;
use super::stream::Stream;

/// How many bytes are read from the standard input at a time.
const CHUNK: usize = 64 << 10;

/// Frames over this process's standard input and output.
pub type Stdio = Stream<Input>;

/// This process's standard input and output; frames of at most `limit` bytes.
///
/// A thread of its own reads the input, since a blocking read cannot be cancelled; it ends with the
/// process, and nothing else may read the input from then on. If the standard output is blocked,
/// shut the runtime down with `shutdown_background`.
///
/// # Errors
/// If no thread can be started.
pub fn stdio(framing: Framing, limit: usize) -> io::Result<Stdio> {
    let (sender, receiver) = mpsc::channel(1);
    let read = move || {
        let mut input = io::stdin().lock();
        loop {
            let mut chunk = vec![0; CHUNK];
            let read = match input.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read,
            };
            let is_last = !matches!(read, Ok(1..));
            let read = read.map(|len| {
                chunk.truncate(len);
                Bytes::from(chunk)
            });
            if sender.blocking_send(read).is_err() || is_last {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("standard input".to_owned())
        .spawn(read)?;
    let input = Input {
        receiver,
        chunk: Bytes::new(),
    };
    Ok(Stream::new(input, Output::new(), framing, limit))
}

/// The standard input, as received from the thread that reads it.
#[derive(Debug)]
pub struct Input {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    chunk: Bytes,
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.chunk.is_empty() {
            self.chunk = match ready!(self.receiver.poll_recv(context)) {
                Some(chunk) => chunk?,
                // The thread has ended.
                None => Bytes::new(),
            };
        }
        let len = self.chunk.len().min(buffer.remaining());
        buffer.put_slice(&self.chunk.split_to(len));
        Poll::Ready(Ok(()))
    }
}
