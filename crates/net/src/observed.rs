//! A wrapper for a transport: forwards every call, and tells an observer what passes.

use std::convert::Infallible;

use breakbulk_link::{Budget, Carries, Frame};

use crate::transport::{Incoming, Lost, Sink, Source, Transport};

/// Is called with what passes through an [`Observed`] transport. Clones must share their state: each half of
/// the transport has one.
pub trait Observer: Clone + Send + Sync + 'static {
    /// Something came in.
    fn received(&self, _incoming: &Incoming) {}

    /// A frame is handed to the transport, and may still be held there.
    fn handed_over(&self, _frame: &Frame) {}

    /// All frames that were handed over so far have left this process, or the transport has failed.
    fn written(&self) {}

    /// The transport failed while it sent something.
    fn lost(&self, _lost: &Lost) {}

    /// This side closes the sending direction.
    fn closing(&self, _code: u16, _reason: &str) {}
}

/// A transport, or a half of one, and its observer.
#[derive(Debug)]
pub struct Observed<T, O> {
    inner: T,
    observer: O,
    /// The observer was already told of the frame that is sent next: the sink returned it instead of
    /// holding it.
    is_told: bool,
}

impl<T, O> Observed<T, O> {
    /// Tells the observer what passes through the transport.
    pub fn new(inner: T, observer: O) -> Self {
        Self {
            inner,
            observer,
            is_told: false,
        }
    }
}

impl<T: Transport, O: Observer> Transport for Observed<T, O> {
    type Source = Observed<T::Source, O>;
    type Sink = Observed<T::Sink, O>;

    fn carries(&self, carries: Carries) -> bool {
        self.inner.carries(carries)
    }

    fn limit_frames(&mut self, largest: usize) {
        self.inner.limit_frames(largest);
    }

    fn charge_to(&mut self, budget: &Budget) {
        self.inner.charge_to(budget);
    }

    fn split(self) -> (Self::Source, Self::Sink) {
        let (source, sink) = self.inner.split();
        let other = self.observer.clone();
        (
            Observed::new(source, other),
            Observed::new(sink, self.observer),
        )
    }
}

impl<S: Source, O: Observer> Source for Observed<S, O> {
    async fn next(&mut self) -> Incoming {
        let incoming = self.inner.next().await;
        self.observer.received(&incoming);
        incoming
    }

    async fn read_ahead(&mut self) -> Infallible {
        self.inner.read_ahead().await
    }

    fn charge_to(&mut self, budget: &Budget) {
        self.inner.charge_to(budget);
    }
}

impl<S: Sink, O: Observer> Sink for Observed<S, O> {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        if !std::mem::take(&mut self.is_told) {
            self.observer.handed_over(&frame);
        }
        let outcome = self.inner.send(frame).await;
        self.told(outcome)
    }

    fn hold(&mut self, frame: Frame) -> Option<Frame> {
        // The observer is told before the frame is held: telling it afterwards would need a clone of
        // each frame.
        self.observer.handed_over(&frame);
        let back = self.inner.hold(frame);
        self.is_told = back.is_some();
        back
    }

    async fn flush(&mut self) -> Result<(), Lost> {
        let outcome = self.inner.flush().await;
        self.told(outcome)
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        self.inner.ping().await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.observer.closing(code, reason);
        self.inner.close(code, reason).await;
    }
}

impl<S, O: Observer> Observed<S, O> {
    /// Tells the observer how a write ended, and returns the outcome.
    fn told(&self, outcome: Result<(), Lost>) -> Result<(), Lost> {
        self.observer.written();
        if let Err(lost) = &outcome {
            self.observer.lost(lost);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A sink and an observer that note every call.
    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<Vec<&'static str>>>);

    impl Notes {
        fn add(&self, word: &'static str) {
            self.0.lock().unwrap().push(word);
        }
    }

    impl Observer for Notes {
        fn handed_over(&self, frame: &Frame) {
            assert_eq!(frame.bytes(), "x");
            self.add("handed over");
        }

        fn closing(&self, _code: u16, _reason: &str) {
            self.add("closing");
        }

        fn written(&self) {
            self.add("written");
        }
    }

    impl Sink for Notes {
        async fn send(&mut self, _frame: Frame) -> Result<(), Lost> {
            self.add("send");
            Ok(())
        }

        fn hold(&mut self, _frame: Frame) -> Option<Frame> {
            self.add("hold");
            None
        }

        async fn flush(&mut self) -> Result<(), Lost> {
            self.add("flush");
            Ok(())
        }

        async fn ping(&mut self) -> Result<(), Lost> {
            self.add("ping");
            Ok(())
        }

        async fn close(&mut self, _code: u16, _reason: &str) {
            self.add("close");
        }
    }

    /// Small frames must still share a write if the transport inside supports that.
    #[tokio::test]
    async fn a_sink_that_is_observed_can_all_that_it_could() {
        let notes = Notes::default();
        let mut sink = Observed::new(notes.clone(), notes.clone());
        let frame = Frame::Text("x".into());
        assert_eq!(sink.hold(frame.clone()), None);
        sink.flush().await.unwrap();
        sink.send(frame).await.unwrap();
        sink.ping().await.unwrap();
        sink.close(1000, "").await;
        let expected = [
            "handed over",
            "hold",
            "flush",
            "written",
            "handed over",
            "send",
            "written",
            "ping",
            "closing",
            "close",
        ];
        assert_eq!(*notes.0.lock().unwrap(), expected);
    }

    /// A sink that holds no frames.
    struct Plain;

    impl Sink for Plain {
        async fn send(&mut self, _frame: Frame) -> Result<(), Lost> {
            Ok(())
        }

        async fn close(&mut self, _code: u16, _reason: &str) {}
    }

    #[tokio::test]
    async fn a_frame_that_is_handed_back_and_sent_is_told_once() {
        let notes = Notes::default();
        let mut sink = Observed::new(Plain, notes.clone());
        let frame = Frame::Text("x".into());
        let back = sink.hold(frame.clone()).unwrap();
        sink.send(back).await.unwrap();
        sink.send(frame).await.unwrap();
        let expected = ["handed over", "written", "handed over", "written"];
        assert_eq!(*notes.0.lock().unwrap(), expected);
    }
}
