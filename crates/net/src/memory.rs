//! Frames within one process: [`pair`] is a transport with a short queue of frames, like a socket;
//! [`carry`] moves frames from one link to another directly.

use std::time::Instant;

use breakbulk_link::{Carries, Closed, Frame, FrameKind, Link, Transmit};
use tokio::sync::mpsc;

use crate::transport::{Incoming, Lost, Sink, Source, Transport};

/// One end of a [`pair`].
#[derive(Debug)]
pub struct Memory {
    source: MemorySource,
    sink: MemorySink,
}

/// The receiving half.
#[derive(Debug)]
pub struct MemorySource(mpsc::Receiver<Incoming>);

/// The sending half.
#[derive(Debug)]
pub struct MemorySink(mpsc::Sender<Incoming>);

/// Two connected ends; at most `frames` frames are queued in each direction.
///
/// # Panics
/// If `frames` is 0.
pub fn pair(frames: usize) -> (Memory, Memory) {
    let (to_left, left) = mpsc::channel(frames);
    let (to_right, right) = mpsc::channel(frames);
    let end = |receiver, sender| Memory {
        source: MemorySource(receiver),
        sink: MemorySink(sender),
    };
    (end(left, to_right), end(right, to_left))
}

impl Transport for Memory {
    type Source = MemorySource;
    type Sink = MemorySink;

    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn split(self) -> (MemorySource, MemorySink) {
        (self.source, self.sink)
    }
}

impl Source for MemorySource {
    async fn next(&mut self) -> Incoming {
        self.0.recv().await.unwrap_or(Incoming::Closed(Closed {
            code: 1006,
            reason: "the other end is gone".to_owned(),
        }))
    }
}

impl Sink for MemorySink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        self.push(Incoming::Frame(frame)).await
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        self.push(Incoming::Alive).await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        let reason = reason.to_owned();
        let _ = self.push(Incoming::Closed(Closed { code, reason })).await;
    }
}

impl MemorySink {
    async fn push(&mut self, incoming: Incoming) -> Result<(), Lost> {
        let gone = |_| Lost("the other end is gone".to_owned());
        self.0.send(incoming).await.map_err(gone)
    }
}

/// Moves every frame that `from` may send now to `to`, one at a time, and calls `look` with each.
///
/// Stops early when `to` is closed, or wants no frame until its messages are taken.
pub fn carry(from: &mut Link, to: &mut Link, now: Instant, mut look: impl FnMut(&Transmit, &[u8])) {
    let mut buffer = Vec::new();
    while to.wants_frame() {
        let Some(transmit) = from.poll_transmit(now, &mut buffer) else {
            break;
        };
        look(&transmit, &buffer);
        let bytes = bytes::Bytes::from(std::mem::take(&mut buffer));
        // A message in one frame keeps the memory of the frame.
        let shared = (transmit.kind != FrameKind::Whole).then(|| bytes.clone());
        let frame = match transmit.carries {
            Carries::Text => Frame::Text(bytes),
            Carries::Binary => Frame::Binary(bytes),
        };
        to.handle_frame(now, frame);
        // If the receiver kept no part of the frame, its memory is reused for the next one.
        if let Some(Ok(mut reclaimed)) = shared.map(bytes::Bytes::try_into_mut) {
            // Cleared before it becomes a vector: otherwise its bytes would be moved to the front.
            reclaimed.clear();
            buffer = Vec::from(reclaimed);
        }
    }
}
