//! The traits that a transport implements: [`Transport`], which splits into a [`Source`] that the
//! driver's read loop uses and a [`Sink`] that its write loop uses.

use std::convert::Infallible;
use std::future::Future;

use breakbulk_link::{Budget, Carries, Closed, Frame};

use crate::receipt::Receipt;

/// Something that moves frames. Its two halves are used at the same time and never wait for each other.
pub trait Transport: Send + 'static {
    /// Where frames come in.
    type Source: Source;
    /// Where frames go out.
    type Sink: Sink;

    /// Whether this transport carries text or binary frames; a wire that needs a kind that it does not
    /// carry is a configuration error.
    fn carries(&self, carries: Carries) -> bool;

    /// Sets the size of the largest frame that the link accepts. A transport may refuse a larger one
    /// instead of buffering it.
    fn limit_frames(&mut self, _largest: usize) {}

    /// Sets the budget that what the transport holds of unfinished frames is charged to.
    fn charge_to(&mut self, _budget: &Budget) {}

    /// Splits the transport into its receiving and its sending half.
    fn split(self) -> (Self::Source, Self::Sink);
}

/// The receiving half of a transport.
pub trait Source: Send + 'static {
    /// Waits for the next frame or event. Cancel-safe; not called again after [`Incoming::Closed`].
    fn next(&mut self) -> impl Future<Output = Incoming> + Send;

    /// Runs while the link wants no frame, and is dropped when it wants one. A transport that must receive
    /// more than frames (such as acknowledgements) keeps reading here, and keeps the frames that it finds;
    /// other transports do nothing.
    fn read_ahead(&mut self) -> impl Future<Output = Infallible> + Send {
        std::future::pending()
    }

    /// Sets the budget of [`Transport::charge_to`] again.
    fn charge_to(&mut self, _budget: &Budget) {}
}

/// The sending half of a transport.
pub trait Sink: Send + 'static {
    /// Sends one frame, and returns once it has left this process.
    fn send(&mut self, frame: Frame) -> impl Future<Output = Result<(), Lost>> + Send;

    /// Buffers a small frame so that it shares one write with the next one (where a
    /// write costs more than copying a few bytes), or returns the frame if this sink does not
    /// buffer. The caller must call [`send`](Self::send), [`flush`](Self::flush) or
    /// [`close`](Self::close) right after; a frame that was returned is the one to send.
    fn hold(&mut self, frame: Frame) -> Option<Frame> {
        Some(frame)
    }

    /// Writes out the frames that [`hold`](Self::hold) buffered.
    fn flush(&mut self) -> impl Future<Output = Result<(), Lost>> + Send {
        async { Ok(()) }
    }

    /// Sends a ping, if the transport has one.
    fn ping(&mut self) -> impl Future<Output = Result<(), Lost>> + Send {
        async { Ok(()) }
    }

    /// Closes the sending direction, with the code and reason if the transport can carry them.
    fn close(&mut self, code: u16, reason: &str) -> impl Future<Output = ()> + Send;
}

/// What a [`Source`] yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A frame.
    Frame(Frame),
    /// A frame that came by an HTTP POST, whose answer waits for the receipt.
    Posted(Frame, Receipt),
    /// The other end is alive, but sent no frame: a ping, a pong, or part of a large message.
    Alive,
    /// The other end closed, or the transport failed. The code is 1006 if the other end gave none.
    Closed(Closed),
    /// The other end violated the transport's protocol; the connection is closed with this code and
    /// reason.
    Broken(Closed),
}

/// The transport failed while it sent a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the transport failed: {0}")]
pub struct Lost(pub String);
