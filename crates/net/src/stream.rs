//! Byte streams over a transport of binary frames.
//!
//! Some protocols have a framing of their own on top of a byte stream; over WebSockets that stream is
//! sent as binary messages whose boundaries mean nothing.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use breakbulk_link::lock;
use breakbulk_link::{Carries, Frame};
use bytes::{BufMut, BytesMut};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf, WriteHalf,
};
use tokio::time::timeout;

use crate::receipt::Verdict;
use crate::transport::{Incoming, Sink, Source, Transport};

/// How long sending the close and receiving its answer may take.
const GRACE: Duration = Duration::from_secs(5);

/// A byte stream over binary frames. Dropping it closes the transport with code 1000.
#[derive(Debug)]
pub struct ByteStream {
    pipe: DuplexStream,
    lost: Arc<Mutex<Option<String>>>,
}

/// Sends a byte stream over a transport in binary frames of at most `cut` bytes; frames that come in
/// may have any size. At most `cut` bytes are buffered in each direction.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn over_frames(transport: impl Transport, cut: usize) -> io::Result<ByteStream> {
    if !transport.carries(Carries::Binary) {
        return Err(io::Error::other("the transport carries no binary frames"));
    }
    let cut = cut.max(1);
    let (pipe, other) = tokio::io::duplex(cut);
    let lost = Arc::new(Mutex::new(None));
    let (source, sink) = transport.split();
    tokio::spawn(pump(source, sink, other, cut, lost.clone()));
    Ok(ByteStream { pipe, lost })
}

async fn pump(
    mut source: impl Source,
    mut sink: impl Sink,
    pipe: DuplexStream,
    cut: usize,
    lost: Arc<Mutex<Option<String>>>,
) {
    let (mut from, mut into) = tokio::io::split(pipe);
    let (code, reason) = tokio::select! {
        why = send_bytes(&mut from, &mut sink, cut) => why,
        why = receive_bytes(&mut source, &mut into) => why,
    };
    if code != 1000 {
        let mut lost = lock(&lost);
        *lost = Some(format!("{code} {reason}"));
    }
    drop((from, into));
    let close = async {
        sink.close(code, &reason).await;
        // Waits for the other end's close: dropping the socket earlier could reset it and lose our
        // last bytes.
        while !matches!(source.next().await, Incoming::Closed(_)) {}
    };
    let _ = timeout(GRACE, close).await;
}

/// Sends the bytes written to the stream as frames; returns the code and reason to close with.
async fn send_bytes(
    from: &mut ReadHalf<DuplexStream>,
    sink: &mut impl Sink,
    cut: usize,
) -> (u16, String) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(cut.min(4096));
        match from.read_buf(&mut (&mut buffer).limit(cut)).await {
            Ok(0) | Err(_) => return (1000, String::new()),
            Ok(_) => {}
        }
        // Fills the frame with what else is in the pipe already.
        while buffer.len() < cut
            && let Some(Ok(1..)) = now_or_never(from, &mut buffer, cut).await
        {}
        if let Err(error) = sink.send(Frame::Binary(buffer.split().freeze())).await {
            return (1006, error.to_string());
        }
    }
}

/// Reads what is available without waiting.
async fn now_or_never(
    from: &mut ReadHalf<DuplexStream>,
    buffer: &mut BytesMut,
    cut: usize,
) -> Option<io::Result<usize>> {
    let room = cut - buffer.len();
    buffer.reserve(room);
    let mut limited = buffer.limit(room);
    let read = from.read_buf(&mut limited);
    tokio::pin!(read);
    std::future::poll_fn(|context| match read.as_mut().poll(context) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Writes the bytes of incoming frames to the stream; returns the code and reason to close with.
async fn receive_bytes(
    source: &mut impl Source,
    into: &mut WriteHalf<DuplexStream>,
) -> (u16, String) {
    loop {
        match source.next().await {
            Incoming::Frame(Frame::Binary(bytes)) => {
                if into.write_all(&bytes).await.is_err() {
                    return (1000, String::new());
                }
            }
            Incoming::Posted(Frame::Binary(bytes), receipt) => {
                if into.write_all(&bytes).await.is_err() {
                    return (1000, String::new());
                }
                receipt.answer(Verdict::Settled(Ok(())));
            }
            Incoming::Frame(Frame::Text(_)) | Incoming::Posted(Frame::Text(_), _) => {
                return (1003, "a text frame in a byte stream".to_owned());
            }
            Incoming::Alive => {}
            Incoming::Closed(closed) | Incoming::Broken(closed) => {
                return (closed.code, closed.reason);
            }
        }
    }
}

impl AsyncRead for ByteStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let room = buffer.remaining();
        let outcome = Pin::new(&mut self.pipe).poll_read(context, buffer);
        let ended = matches!(outcome, Poll::Ready(Ok(()))) && buffer.filled().len() == before;
        if ended && room > 0 {
            let mut lost = lock(&self.lost);
            if let Some(why) = lost.take() {
                return Poll::Ready(Err(io::Error::other(why)));
            }
        }
        outcome
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.pipe.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::memory;

    #[tokio::test]
    async fn cut_on_the_way_out_and_taken_in_any_cut() {
        let (left, right) = memory::pair(1);
        let mut left = over_frames(left, 1000).unwrap();
        let (mut source, mut sink) = right.split();
        let sent: Vec<u8> = (0..10_500_u32).map(|n| n as u8).collect();
        let writing = async {
            left.write_all(&sent).await.unwrap();
            left.read_u8().await.unwrap()
        };
        let taking = async {
            let mut got = Vec::new();
            while got.len() < sent.len() {
                match source.next().await {
                    Incoming::Frame(Frame::Binary(bytes)) => {
                        assert!((1..=1000).contains(&bytes.len()));
                        got.extend_from_slice(&bytes);
                    }
                    other => panic!("{other:?}"),
                }
            }
            let empty_then_one = [&b""[..], b"\x07"];
            for bytes in empty_then_one {
                let frame = Frame::Binary(bytes::Bytes::from_static(bytes));
                sink.send(frame).await.unwrap();
            }
            got
        };
        let (answer, got) = tokio::join!(writing, taking);
        assert_eq!((answer, got), (7, sent.clone()));
        sink.close(4000, "enough").await;
        let error = left.read_u8().await.unwrap_err();
        assert!(error.to_string().contains("4000 enough"), "{error}");
    }
}
