//! Taps: called with every frame of a connection, in both directions, as its transport carries it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use breakbulk_link::{Closed, Frame};

use crate::observed::{Observed, Observer};
use crate::transport::{Incoming, Lost, Transport};

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// It came from the other end of the connection.
    Received,
    /// It is sent to the other end.
    Sent,
}

/// Who ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClosedBy {
    /// The other end, with a code of its own.
    Peer,
    /// This side.
    Us,
    /// Neither side: the transport failed.
    Lost,
}

/// Sees the frames of one connection. It is called by the tasks that read and write the connection, so it
/// must be quick and never wait.
pub trait Tap: Send + Sync {
    /// A frame came in, or is handed to the transport.
    fn frame(&self, direction: Direction, frame: &Frame);

    /// The connection ends; called once.
    fn closed(&self, _by: ClosedBy, _closed: &Closed) {}
}

/// A transport that shows its frames to a tap, and otherwise behaves like the one inside.
pub type Tapped<T> = Observed<T, TapObserver>;

/// Shows the frames of a transport to a tap.
pub fn tapped<T: Transport>(transport: T, tap: Arc<dyn Tap>) -> Tapped<T> {
    let observer = TapObserver {
        tap,
        closed: Arc::default(),
    };
    Observed::new(transport, observer)
}

/// The observer of a [`Tapped`] transport.
#[derive(Clone)]
pub struct TapObserver {
    tap: Arc<dyn Tap>,
    /// Whether the tap was told of the end. Both halves of the transport notice it.
    closed: Arc<AtomicBool>,
}

impl TapObserver {
    fn closed(&self, by: ClosedBy, closed: &Closed) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.tap.closed(by, closed);
        }
    }
}

impl std::fmt::Debug for TapObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TapObserver").finish_non_exhaustive()
    }
}

/// The code of a connection whose other end gave none.
const LOST: u16 = 1006;

impl Observer for TapObserver {
    fn received(&self, incoming: &Incoming) {
        match incoming {
            Incoming::Frame(frame) | Incoming::Posted(frame, _) => {
                self.tap.frame(Direction::Received, frame);
            }
            Incoming::Alive => {}
            Incoming::Closed(closed) if closed.code == LOST => self.closed(ClosedBy::Lost, closed),
            Incoming::Closed(closed) => self.closed(ClosedBy::Peer, closed),
            Incoming::Broken(closed) => self.closed(ClosedBy::Us, closed),
        }
    }

    fn handed_over(&self, frame: &Frame) {
        self.tap.frame(Direction::Sent, frame);
    }

    fn lost(&self, lost: &Lost) {
        let closed = Closed {
            code: LOST,
            reason: lost.0.clone(),
        };
        self.closed(ClosedBy::Lost, &closed);
    }

    fn closing(&self, code: u16, reason: &str) {
        let closed = Closed {
            code,
            reason: reason.to_owned(),
        };
        self.closed(ClosedBy::Us, &closed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::memory;
    use crate::transport::{Sink, Source};

    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Tap for Notes {
        fn frame(&self, direction: Direction, frame: &Frame) {
            let size = frame.bytes().len();
            self.0.lock().unwrap().push(format!("{direction:?} {size}"));
        }

        fn closed(&self, by: ClosedBy, closed: &Closed) {
            let Closed { code, reason } = closed;
            let line = format!("closed by {by:?} with {code} {reason}");
            self.0.lock().unwrap().push(line);
        }
    }

    #[tokio::test]
    async fn a_tap_sees_every_frame_both_ways_and_the_end_once() {
        for (ours_first, expected) in [
            (true, "closed by Us with 1000 enough"),
            (false, "closed by Peer with 4000 gone"),
        ] {
            let notes = Arc::new(Notes::default());
            let (near, far) = memory::pair(4);
            let (mut source, mut sink) = tapped(near, notes.clone()).split();
            let (mut far_source, mut far_sink) = far.split();
            sink.send(Frame::Text("abc".into())).await.unwrap();
            assert!(matches!(far_source.next().await, Incoming::Frame(_)));
            far_sink.send(Frame::Binary("ab".into())).await.unwrap();
            assert!(matches!(source.next().await, Incoming::Frame(_)));
            if ours_first {
                sink.close(1000, "enough").await;
            }
            far_sink.close(4000, "gone").await;
            assert!(matches!(source.next().await, Incoming::Closed(_)));
            sink.close(1001, "late").await;
            let seen = notes.0.lock().unwrap().clone();
            assert_eq!(seen, ["Sent 3", "Received 2", expected]);
        }
    }
}
