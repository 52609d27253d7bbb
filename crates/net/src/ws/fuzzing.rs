//! The reader of frames without a socket, for the fuzzer: what comes of bytes in given reads.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use breakbulk_link::{Closed, Frame};
use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};

use super::reader::{Reader, Stop, Word};

/// What was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message.
    Message(Frame),
    /// A ping.
    Ping(Bytes),
    /// A pong.
    Pong,
    /// A close.
    Close(Closed),
}

/// What came of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// All that was heard, in order; nothing after a close.
    pub heard: Vec<Heard>,
    /// The rule that was broken, if one was.
    pub broken: Option<Closed>,
    /// The most bytes of memory that the reader held.
    pub held: usize,
}

/// Reads what `reads` bring, with a wait after each; `rest` came with the handshake.
pub fn read(server: bool, limit: usize, rest: &[u8], reads: &[&[u8]]) -> Reading {
    let mut reader = Reader::new(server, limit, rest);
    let mut stream = Reads {
        reads: reads.iter(),
        left: &[],
        waits: true,
    };
    let mut reading = Reading {
        heard: Vec::new(),
        broken: None,
        held: 0,
    };
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let polled = reader.poll_word(&mut context, &mut stream);
        reading.held = reading.held.max(reader.held());
        let heard = match polled {
            Poll::Pending | Poll::Ready(Ok(Word::Progress)) => continue,
            Poll::Ready(Ok(Word::Message(frame))) => Heard::Message(frame),
            Poll::Ready(Ok(Word::Ping(payload))) => Heard::Ping(payload),
            Poll::Ready(Ok(Word::Pong)) => Heard::Pong,
            Poll::Ready(Ok(Word::Close(closed, _))) => {
                reading.heard.push(Heard::Close(closed));
                return reading;
            }
            Poll::Ready(Err(Stop::Broken(closed))) => {
                reading.broken = Some(closed);
                return reading;
            }
            Poll::Ready(Err(Stop::Gone(_))) => return reading,
        };
        reading.heard.push(heard);
    }
}

/// A stream that brings one slice at a time, and has to be waited for in between.
struct Reads<'a> {
    reads: std::slice::Iter<'a, &'a [u8]>,
    /// What is left of the last one.
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
        // An empty read would be the end.
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
