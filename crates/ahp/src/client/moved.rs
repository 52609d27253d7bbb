//! When a frame last moved, either way: a call does not time out while its pieces are on their way.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use breakbulk_link::{Carries, Frame};
pub(crate) use breakbulk_net::now;
use breakbulk_net::{Incoming, Lost, Sink, Source, Transport};

/// When frames last moved. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Moved(Arc<Mutex<(Instant, Instant)>>);

impl Moved {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new((now(), now()))))
    }

    /// When a frame last came in.
    pub(crate) fn incoming(&self) -> Instant {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// When the transport last took a frame.
    pub(crate) fn outgoing(&self) -> Instant {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// A transport whose frames are noticed.
pub(crate) struct Watched<T>(pub(crate) T, pub(crate) Moved);

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
        if matches!(incoming, Incoming::Frame(_)) {
            self.1.0.lock().unwrap_or_else(PoisonError::into_inner).0 = now();
        }
        incoming
    }
}

impl<S: Sink> Sink for Watched<S> {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let outcome = self.0.send(frame).await;
        self.1.0.lock().unwrap_or_else(PoisonError::into_inner).1 = now();
        outcome
    }

    fn hold(&mut self, frame: Frame) -> Option<Frame> {
        self.0.hold(frame)
    }

    async fn flush(&mut self) -> Result<(), Lost> {
        let outcome = self.0.flush().await;
        self.1.0.lock().unwrap_or_else(PoisonError::into_inner).1 = now();
        outcome
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        self.0.ping().await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.0.close(code, reason).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes what it is asked for.
    #[derive(Default)]
    struct Notes(Vec<&'static str>);

    impl Sink for Notes {
        async fn send(&mut self, _frame: Frame) -> Result<(), Lost> {
            self.0.push("send");
            Ok(())
        }

        fn hold(&mut self, _frame: Frame) -> Option<Frame> {
            self.0.push("hold");
            None
        }

        async fn flush(&mut self) -> Result<(), Lost> {
            self.0.push("flush");
            Ok(())
        }

        async fn ping(&mut self) -> Result<(), Lost> {
            self.0.push("ping");
            Ok(())
        }

        async fn close(&mut self, _code: u16, _reason: &str) {
            self.0.push("close");
        }
    }

    /// Small frames share a write where the transport can: that must not end here.
    #[tokio::test(start_paused = true)]
    async fn a_sink_that_is_watched_can_all_that_it_could() {
        let mut sink = Watched(Notes::default(), Moved::new());
        let (frame, began) = (Frame::Text("x".into()), now());
        assert_eq!(sink.hold(frame.clone()), None);
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        sink.flush().await.unwrap();
        assert!(sink.1.outgoing() > began, "what is flushed has moved");
        sink.send(frame).await.unwrap();
        sink.ping().await.unwrap();
        sink.close(1000, "").await;
        assert_eq!(sink.0.0, ["hold", "flush", "send", "ping", "close"]);
    }
}
