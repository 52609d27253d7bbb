//! Writes WebSocket frames: one at a time, with at most a pong and a close waiting behind it.
//!
//! A payload is written to the socket without copying it. Only a client, which must mask the payload,
//! copies it if the memory is shared.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, OpCode};

use super::mask::mask;
use super::reader::PROGRESS_STEP;

#[derive(Debug)]
pub(crate) struct Writer {
    /// The source of unpredictable masks; `None` on a server, which does not mask.
    masks: Option<RandomState>,
    frames: u64,
    /// The frame being written.
    head: Bytes,
    payload: Bytes,
    /// The answer to the newest ping; older pings need no answer.
    pong: Option<Bytes>,
    /// The close frame, which is sent after all else.
    close: Option<Bytes>,
    /// A close is queued or sent: nothing may follow it.
    closed: bool,
    /// Bytes that the socket accepted since progress was last reported.
    taken: usize,
}

impl Writer {
    pub(crate) fn new(server: bool) -> Self {
        Self {
            masks: (!server).then(RandomState::new),
            frames: 0,
            head: Bytes::new(),
            payload: Bytes::new(),
            pong: None,
            close: None,
            closed: false,
            taken: 0,
        }
    }

    /// Whether the socket accepted so much that the other end must be alive: once its buffers are
    /// full, it accepts only as much as was acknowledged.
    pub(crate) fn progressed(&mut self) -> bool {
        let progressed = self.taken >= PROGRESS_STEP;
        if progressed {
            self.taken = 0;
        }
        progressed
    }

    /// Whether a close is queued or sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn pong(&mut self, payload: Bytes) {
        self.pong = Some(payload);
    }

    /// Queues the close, if none is queued or sent.
    pub(crate) fn close(&mut self, payload: Bytes) {
        if !std::mem::replace(&mut self.closed, true) {
            self.close = Some(payload);
        }
    }

    /// Begins a frame. Only to be called after a flush: it replaces the previous frame.
    pub(crate) fn begin(&mut self, opcode: OpCode, last: bool, payload: Bytes) -> io::Result<()> {
        let key = self.masks.as_ref().map(|masks| {
            self.frames += 1;
            let [a, b, c, d, ..] = masks.hash_one(self.frames).to_ne_bytes();
            [a, b, c, d]
        });
        let header = FrameHeader {
            is_final: last,
            opcode,
            mask: key,
            ..FrameHeader::default()
        };
        let mut head = Vec::with_capacity(14);
        header
            .format(payload.len() as u64, &mut head)
            .map_err(io::Error::other)?;
        self.head = head.into();
        self.payload = match key {
            None => payload,
            Some(key) => {
                let mut own = payload
                    .try_into_mut()
                    .unwrap_or_else(|shared| BytesMut::from(&shared[..]));
                mask(&mut own, key);
                own.freeze()
            }
        };
        Ok(())
    }

    /// Writes the current frame, then the pong, then the close.
    pub(crate) fn poll_flush(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        loop {
            while self.head.has_remaining() || self.payload.has_remaining() {
                let slices = [IoSlice::new(&self.head), IoSlice::new(&self.payload)];
                let slices = &slices[usize::from(self.head.is_empty())..];
                let stream = Pin::new(&mut *stream);
                let written = ready!(stream.poll_write_vectored(context, slices))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.taken += written;
                let of_head = written.min(self.head.len());
                self.head.advance(of_head);
                self.payload.advance(written - of_head);
            }
            // Releases the memory of the frame.
            self.payload = Bytes::new();
            if let Some(pong) = self.pong.take() {
                self.begin(OpCode::Control(Control::Pong), true, pong)?;
            } else if let Some(close) = self.close.take() {
                self.begin(OpCode::Control(Control::Close), true, close)?;
            } else {
                return Pin::new(stream).poll_flush(context);
            }
        }
    }
}
