//! A transport that is watched: every call is forwarded, and an observer is told what passed.

use std::convert::Infallible;

use breakbulk_link::{Budget, Carries, Frame};

use crate::transport::{Incoming, Lost, Sink, Source, Transport};

/// Is told what passes through an [`Observed`] transport. Clones observe together: both halves of the
/// transport have one.
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
pub struct Observed<T, O>(pub T, pub O);

impl<T: Transport, O: Observer> Transport for Observed<T, O> {
    type Source = Observed<T::Source, O>;
    type Sink = Observed<T::Sink, O>;

    fn carries(&self, carries: Carries) -> bool {
        self.0.carries(carries)
    }

    fn limit_frames(&mut self, largest: usize) {
        self.0.limit_frames(largest);
    }

    fn charge_to(&mut self, budget: &Budget) {
        self.0.charge_to(budget);
    }

    fn split(self) -> (Self::Source, Self::Sink) {
        let (source, sink) = self.0.split();
        (Observed(source, self.1.clone()), Observed(sink, self.1))
    }
}

impl<S: Source, O: Observer> Source for Observed<S, O> {
    async fn next(&mut self) -> Incoming {
        let incoming = self.0.next().await;
        self.1.received(&incoming);
        incoming
    }

    async fn read_ahead(&mut self) -> Infallible {
        self.0.read_ahead().await
    }

    fn charge_to(&mut self, budget: &Budget) {
        self.0.charge_to(budget);
    }
}

impl<S: Sink, O: Observer> Sink for Observed<S, O> {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        self.1.handed_over(&frame);
        let outcome = self.0.send(frame).await;
        self.told(outcome)
    }

    fn hold(&mut self, frame: Frame) -> Option<Frame> {
        // Its bytes are shared, not copied.
        let shown = frame.clone();
        let back = self.0.hold(frame);
        if back.is_none() {
            self.1.handed_over(&shown);
        }
        back
    }

    async fn flush(&mut self) -> Result<(), Lost> {
        let outcome = self.0.flush().await;
        self.told(outcome)
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        self.0.ping().await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.1.closing(code, reason);
        self.0.close(code, reason).await;
    }
}

impl<S, O: Observer> Observed<S, O> {
    /// Tells how a write ended.
    fn told(&self, outcome: Result<(), Lost>) -> Result<(), Lost> {
        self.1.written();
        if let Err(lost) = &outcome {
            self.1.lost(lost);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Notes what it is asked for and told.
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

    /// Small frames share a write where the transport can: that must not end here.
    #[tokio::test]
    async fn a_sink_that_is_observed_can_all_that_it_could() {
        let notes = Notes::default();
        let mut sink = Observed(notes.clone(), notes.clone());
        let frame = Frame::Text("x".into());
        assert_eq!(sink.hold(frame.clone()), None);
        sink.flush().await.unwrap();
        sink.send(frame).await.unwrap();
        sink.ping().await.unwrap();
        sink.close(1000, "").await;
        let expected = [
            "hold",
            "handed over",
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
}
