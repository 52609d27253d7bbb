//! What goes by on its way to and from a bridge: whether a line is stuck, and what was no message.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use breakbulk_link::{Carries, Frame};
use breakbulk_net::{Incoming, Lost, Sink, Source, Transport};
use tokio::sync::Notify;

use crate::machine::excerpt;

/// What was seen. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tap(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    begun: AtomicU64,
    done: AtomicU64,
    moved: Notify,
    stray: Mutex<String>,
}

impl Tap {
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
            // A line that ends between the look and the wait counts too.
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

    /// The beginning of the last line that was no object.
    pub(super) fn stray(&self) -> String {
        let stray = self.0.stray.lock();
        stray.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A transport whose lines are noticed.
pub(super) struct Tapped<T>(pub(super) T, pub(super) Tap);

impl<T: Transport> Transport for Tapped<T> {
    type Source = Tapped<T::Source>;
    type Sink = Tapped<T::Sink>;

    fn carries(&self, carries: Carries) -> bool {
        self.0.carries(carries)
    }

    fn limit_frames(&mut self, largest: usize) {
        self.0.limit_frames(largest);
    }

    fn split(self) -> (Self::Source, Self::Sink) {
        let (source, sink) = self.0.split();
        (Tapped(source, self.1.clone()), Tapped(sink, self.1))
    }
}

impl<S: Source> Source for Tapped<S> {
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

impl<S: Sink> Sink for Tapped<S> {
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
