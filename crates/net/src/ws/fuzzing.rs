//! Runs the frame reader without a socket, for the fuzzer: feeds it bytes in given reads and returns
//! what it made of them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use breakbulk_link::{Closed, Frame};
use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};

use super::reader::{ReadError, Reader, WsEvent};

/// What the reader returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadEvent {
    /// A message.
    Message(Frame),
    /// A ping.
    Ping(Bytes),
    /// A pong.
    Pong,
    /// A close.
    Close(Closed),
}

/// The result of reading a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// All events, in order; none after a close.
    pub events: Vec<ReadEvent>,
    /// The protocol violation that ended reading, if there was one.
    pub broken: Option<Closed>,
    /// The most memory that the reader held, in bytes.
    pub held: usize,
}

/// Reads the given chunks, with a `Pending` before each; `rest` came with the handshake.
pub fn read(server: bool, limit: usize, rest: &[u8], reads: &[&[u8]]) -> Reading {
    let mut reader = Reader::new(server, limit, rest);
    let mut stream = Reads {
        reads: reads.iter(),
        left: &[],
        waits: true,
    };
    let mut reading = Reading {
        events: Vec::new(),
        broken: None,
        held: 0,
    };
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let polled = reader.poll_event(&mut context, &mut stream);
        reading.held = reading.held.max(reader.held());
        let event = match polled {
            Poll::Pending | Poll::Ready(Ok(WsEvent::Progress)) => continue,
            Poll::Ready(Ok(WsEvent::Message(frame))) => ReadEvent::Message(frame),
            Poll::Ready(Ok(WsEvent::Ping(payload))) => ReadEvent::Ping(payload),
            Poll::Ready(Ok(WsEvent::Pong)) => ReadEvent::Pong,
            Poll::Ready(Ok(WsEvent::Close(closed, _))) => {
                reading.events.push(ReadEvent::Close(closed));
                return reading;
            }
            Poll::Ready(Err(ReadError::Broken(closed))) => {
                reading.broken = Some(closed);
                return reading;
            }
            Poll::Ready(Err(ReadError::Gone(_))) => return reading,
        };
        reading.events.push(event);
    }
}

/// A stream that returns one slice at a time, and is pending in between.
struct Reads<'a> {
    reads: std::slice::Iter<'a, &'a [u8]>,
    /// The rest of the current slice.
    left: &'a [u8],
    waits: bool,
}

impl AsyncRead for Reads<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.waits = !this.waits;
        if this.waits {
            return Poll::Pending;
        }
        // An empty read would be the end of the stream.
        while this.left.is_empty() {
            match this.reads.next() {
                Some(next) => this.left = next,
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = this.left.len().min(buffer.remaining());
        let (now, later) = this.left.split_at(count);
        buffer.put_slice(now);
        this.left = later;
        Poll::Ready(Ok(()))
    }
}
