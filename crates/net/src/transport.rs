//! What a transport is to the driver: two halves, each used by one loop.

use std::future::Future;

use breakbulk_link::{Carries, Closed, Frame};

use crate::receipt::Receipt;

/// Something that moves frames, in two halves that never wait for each other.
pub trait Transport: Send + 'static {
    /// Where frames come in.
    type Source: Source;
    /// Where frames go out.
    type Sink: Sink;

    /// Whether frames of this kind can travel; a wire that needs another is a configuration error.
    fn carries(&self, carries: Carries) -> bool;

    /// Nobody takes a frame larger than this: more of one need not be held.
    fn expect(&mut self, _largest: usize) {}

    /// The two halves.
    fn split(self) -> (Self::Source, Self::Sink);
}

/// The half that frames come in by.
pub trait Source: Send + 'static {
    /// The next thing that comes in. Cancel-safe; after [`Incoming::Closed`] it is not called again.
    fn next(&mut self) -> impl Future<Output = Incoming> + Send;
}

/// The half that frames go out by.
pub trait Sink: Send + 'static {
    /// Hands over one frame, and returns once it is out of this process.
    fn send(&mut self, frame: Frame) -> impl Future<Output = Result<(), Lost>> + Send;

    /// Takes a small frame that goes out with the next one, or hands it back: where a write costs more
    /// than what is written, frames that follow each other share one. Whoever hands one over sees to it
    /// that [`send`](Self::send), [`flush`](Self::flush) or [`close`](Self::close) follows at once.
    fn hold(&mut self, frame: Frame) -> Option<Frame> {
        Some(frame)
    }

    /// Sends what is held.
    fn flush(&mut self) -> impl Future<Output = Result<(), Lost>> + Send {
        async { Ok(()) }
    }

    /// Asks the other end for a sign of life, where the transport has such a thing.
    fn ping(&mut self) -> impl Future<Output = Result<(), Lost>> + Send {
        async { Ok(()) }
    }

    /// Says why this is the end, where the transport has words for it, and closes this direction.
    fn close(&mut self, code: u16, reason: &str) -> impl Future<Output = ()> + Send;
}

/// What comes in by a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A frame.
    Frame(Frame),
    /// A frame whose sender waits to hear what became of it.
    Posted(Frame, Receipt),
    /// A word of the transport's own (a ping, a pong): the other end lives.
    Life,
    /// There is nothing more, and why. 1006 where the other end did not say.
    Closed(Closed),
    /// The other end broke a rule of the transport: close with this.
    Broken(Closed),
}

/// The transport failed under a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the transport failed: {0}")]
pub struct Lost(pub String);
