//! The replay buffer: messages that the peer has not acknowledged, ready to be sent again unchanged.

use std::collections::VecDeque;
use std::time::Instant;

use breakbulk_message::vscode::Out;
use breakbulk_message::vscode::ipc::{FrameType, Header};
use bytes::{Bytes, BytesMut};

use super::super::Chunks;
use super::{Payload, put_header};

/// Bytes charged for a message in addition to its own.
const CHARGE: usize = 96;

/// Small messages share blocks of this size. Acknowledgements come in order, so at most one block is kept
/// for only a part of it.
const BLOCK: usize = 16 << 10;

/// Buffers from this size on are kept without a copy.
const OWN_SLICE: usize = 8 << 10;

/// The unacknowledged messages, oldest first.
#[derive(Debug, Default)]
pub(super) struct Replay {
    messages: VecDeque<Unacked>,
    bytes: usize,
    block: BytesMut,
}

#[derive(Debug)]
struct Unacked {
    id: u32,
    written: Instant,
    len: usize,
    frame: Frame,
}

#[derive(Debug)]
enum Frame {
    One(Bytes),
    Many(Vec<Bytes>),
}

impl Replay {
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// When the oldest message was last written.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.messages.front().map(|oldest| oldest.written)
    }

    /// Keeps a message, and writes it to `out` if given.
    pub(super) fn push(
        &mut self,
        now: Instant,
        (id, ack): (u32, u32),
        message: &impl Payload,
        out: Option<&mut Chunks>,
    ) {
        let len = Header::LEN + message.len();
        if self.block.capacity() - self.block.len() < len.min(OWN_SLICE) {
            self.block = BytesMut::with_capacity(BLOCK);
        }
        let mut gather = Gather {
            block: &mut self.block,
            parts: Vec::new(),
        };
        put_header(&mut gather, FrameType::Regular, id, ack, message.len());
        message.write(&mut gather);
        let frame = gather.finish();
        if let Some(out) = out {
            frame.write(out);
        }
        self.bytes += len + CHARGE;
        self.messages.push_back(Unacked {
            id,
            written: now,
            len,
            frame,
        });
    }

    /// Removes all messages up to `id`; returns whether there were any.
    pub(super) fn acknowledge(&mut self, id: u32) -> bool {
        let before = self.messages.len();
        while let Some(oldest) = self.messages.front().filter(|oldest| oldest.id <= id) {
            self.bytes -= oldest.len + CHARGE;
            self.messages.pop_front();
        }
        before != self.messages.len()
    }

    /// Writes all messages again, with their original ids and acks.
    pub(super) fn write_all(&mut self, now: Instant, out: &mut Chunks) {
        for message in &mut self.messages {
            message.written = now;
            message.frame.write(out);
        }
    }
}

impl Frame {
    fn write(&self, out: &mut Chunks) {
        match self {
            Self::One(bytes) => out.put_shared(bytes),
            Self::Many(parts) => parts.iter().for_each(|part| out.put_shared(part)),
        }
    }
}

/// Collects a frame in few slices.
struct Gather<'a> {
    block: &'a mut BytesMut,
    parts: Vec<Bytes>,
}

impl Gather<'_> {
    fn seal(&mut self) {
        if !self.block.is_empty() {
            self.parts.push(self.block.split().freeze());
        }
    }

    fn finish(mut self) -> Frame {
        if self.parts.is_empty() {
            return Frame::One(self.block.split().freeze());
        }
        self.seal();
        Frame::Many(self.parts)
    }
}

impl Out for Gather<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    fn put_shared(&mut self, bytes: &Bytes) {
        match bytes.len() {
            ..OWN_SLICE => self.put(bytes),
            _ => {
                self.seal();
                self.parts.push(bytes.clone());
            }
        }
    }
}
