//! Watches the lines to and from a bridge: whether one is still being written, and the last one
//! received that was not a JSON object.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use breakbulk_link::{Carries, Frame};
use breakbulk_net::{Incoming, Lost, Sink, Source, Transport};
use tokio::sync::Notify;

use crate::machine::excerpt;

/// What was observed. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct LineWatch(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    begun: AtomicU64,
    done: AtomicU64,
    moved: Notify,
    stray: Mutex<String>,
}

impl LineWatch {
    /// The number of the line that is being written.
    pub(super) fn writing(&self) -> Option<u64> {
        let done = self.0.done.load(Ordering::Acquire);
        let begun = self.0.begun.load(Ordering::Acquire);
        (begun > done).then_some(begun)
    }

    /// Waits until this line is written.
    pub(super) async fn passed(&self, line: u64) {
        loop {
            let moved = self.0.moved.notified();
            tokio::pin!(moved);
            // Registered before the check, so that a line written in between is not missed.
            moved.as_mut().enable();
            if self.0.done.load(Ordering::Acquire) >= line {
                return;
            }
            moved.await;
        }
    }

    /// All lines up to this one are written.
    fn written(&self, line: u64) {
        self.0.done.store(line, Ordering::Release);
        self.0.moved.notify_waiters();
    }

    /// The beginning of the last line received that was not a JSON object.
    pub(super) fn stray(&self) -> String {
        let stray = self.0.stray.lock();
        stray.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A transport whose lines are watched.
pub(super) struct Watched<T>(pub(super) T, pub(super) LineWatch);

impl<T: Transport> Transport for Watched<T> {
    type Source = Watched<T::Source>;
    type Sink = Watched<T::Sink>;

    fn carries(&self, carries: Carries) -> bool {
        self.0.carries(carries)
    }

    fn limit_frames(&mut self, largest: usize) {
        self.0.limit_frames(largest);
    }

    fn split(self) -> (Self::Source, Self::Sink) {
        let (source, sink) = self.0.split();
        (Watched(source, self.1.clone()), Watched(sink, self.1))
    }
}

impl<S: Source> Source for Watched<S> {
    async fn next(&mut self) -> Incoming {
        let incoming = self.0.next().await;
        if let Incoming::Frame(Frame::Text(line)) = &incoming
            && line.first() != Some(&b'{')
        {
            let stray = self.1.0.stray.lock();
            *stray.unwrap_or_else(PoisonError::into_inner) = excerpt(line);
        }
        incoming
    }
}

impl<S: Sink> Sink for Watched<S> {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let number = self.1.0.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let outcome = self.0.send(frame).await;
        self.1.written(number);
        outcome
    }

    fn hold(&mut self, frame: Frame) -> Option<Frame> {
        let back = self.0.hold(frame);
        if back.is_none() {
            self.1.0.begun.fetch_add(1, Ordering::AcqRel);
        }
        back
    }

    async fn flush(&mut self) -> Result<(), Lost> {
        let number = self.1.0.begun.load(Ordering::Acquire);
        let outcome = self.0.flush().await;
        self.1.written(number);
        outcome
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        self.0.ping().await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.0.close(code, reason).await;
    }
}
