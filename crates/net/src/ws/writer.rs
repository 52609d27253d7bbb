//! Writes WebSocket frames: one at a time, with at most a pong and a close waiting behind it.
//!
//! A large payload is written to the socket without copying it. Only a client, which must mask the payload,
//! copies it if the memory is shared. Small frames that follow each other are copied, to share one write.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use breakbulk_link::Frame;
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::mask::mask;
use super::reader::PROGRESS_STEP;

/// How many bytes of small frames share one write.
const HELD: usize = 16 << 10;

/// The longest head of a frame.
const HEAD_MAX: usize = 14;

/// How many bytes of the memory for small frames are kept after they were written.
const KEPT: usize = 64;

#[derive(Debug)]
pub(crate) struct Writer {
    /// The source of unpredictable masks; `None` on a server, which does not mask.
    masks: Option<RandomState>,
    frames: u64,
    /// Whole small frames, and the head of the frame being written.
    head: Vec<u8>,
    /// How much of `head` is written.
    head_written: usize,
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
            head: Vec::new(),
            head_written: 0,
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

    /// Adds a small frame to those that are written together; returns it if there is no room, or if it must
    /// be written in another way.
    pub(crate) fn hold(&mut self, frame: Frame) -> Option<Frame> {
        let (kind, payload) = match &frame {
            Frame::Text(bytes) => (Data::Text, bytes),
            Frame::Binary(bytes) => (Data::Binary, bytes),
        };
        // No frame can be added behind a payload that is not written yet, which may be a pong's.
        if self.closed || self.payload.has_remaining() || self.head.len() + payload.len() > HELD {
            return Some(frame);
        }
        if self.head.is_empty() {
            // Reserved at once for all frames that may follow: growing by doubling would copy each frame
            // once more.
            self.head.reserve(HELD + HEAD_MAX);
        }
        let from = self.head.len();
        let Ok(key) = self.write_head(OpCode::Data(kind), true, payload.len()) else {
            self.head.truncate(from);
            return Some(frame);
        };
        let from = self.head.len();
        self.head.extend_from_slice(payload);
        if let Some(key) = key {
            mask(&mut self.head[from..], key);
        }
        None
    }

    /// Begins a frame. Only to be called after a flush, or after small frames: it replaces the payload of
    /// the previous frame.
    pub(crate) fn begin(&mut self, opcode: OpCode, last: bool, payload: Bytes) -> io::Result<()> {
        let key = self.write_head(opcode, last, payload.len())?;
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

    /// Whether a frame is begun whose payload is not written.
    pub(crate) fn has_payload(&self) -> bool {
        self.payload.has_remaining()
    }

    /// Writes the head of a frame, and returns the key to mask its payload by.
    fn write_head(
        &mut self,
        opcode: OpCode,
        last: bool,
        length: usize,
    ) -> io::Result<Option<[u8; 4]>> {
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
        header
            .format(length as u64, &mut self.head)
            .map_err(io::Error::other)?;
        Ok(key)
    }

    /// Writes the small frames and the current frame, then the pong, then the close.
    pub(crate) fn poll_flush(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        loop {
            while self.head_written < self.head.len() || self.payload.has_remaining() {
                let head = &self.head[self.head_written..];
                let slices = [IoSlice::new(head), IoSlice::new(&self.payload)];
                let slices = &slices[usize::from(head.is_empty())..];
                let stream = Pin::new(&mut *stream);
                let written = ready!(stream.poll_write_vectored(context, slices))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.taken += written;
                let of_head = written.min(head.len());
                self.head_written += of_head;
                self.payload.advance(written - of_head);
            }
            // Releases the memory of the frames.
            self.payload = Bytes::new();
            self.head_written = 0;
            self.head.clear();
            if self.head.capacity() > KEPT {
                self.head = Vec::new();
            }
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
