//! The seam between a tunnel and its carriers: a [`Line`] is one connection between two gateways, over
//! whatever carries frames, and a [`Dial`] opens the next one after it was lost.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use breakbulk_link::{Budget, Carries, Frame};
use breakbulk_net::{Incoming, Lost, Sink, Source, Transport, tapped};

use crate::error::OpenError;
use crate::watch::SessionTap;

/// A boxed future, for traits that are used as objects.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One connection between two gateways.
///
/// A carrier delivers frames whole and in the order they were sent, or ends: it repeats nothing, and it
/// leaves nothing out between two frames that arrive. When it ends, for whatever reason, its source yields
/// [`Incoming::Closed`]; the code 1009 says that a frame of this side was refused for its size (an HTTP
/// carrier maps 413 to it). A frame that comes by a POST may be [`Incoming::Posted`]: it is answered as
/// soon as it is taken. Text frames must pass on every line, since the tunnel's own frames are text.
pub struct Line {
    transport: Box<dyn AnyTransport>,
    pub(super) cap: Option<usize>,
    pub(super) pings: bool,
    tap: Arc<SessionTap>,
}

impl Line {
    /// A line over a transport that has pings and no cap of its own.
    pub fn new(transport: impl Transport) -> Self {
        let tap = SessionTap::unknown();
        Self {
            transport: Box::new(tapped(transport, tap.clone())),
            cap: None,
            pings: true,
            tap,
        }
    }

    /// Sets the largest frame that this line carries, in bytes, where the carrier knows it. The smallest
    /// of all known caps applies.
    pub fn capped(self, cap: usize) -> Self {
        Self {
            cap: Some(cap),
            ..self
        }
    }

    /// For a carrier whose [`Sink::ping`] does nothing: an acknowledgement is sent instead of a ping.
    pub fn without_pings(self) -> Self {
        Self {
            pings: false,
            ..self
        }
    }

    pub(super) fn carries(&self, carries: Carries) -> bool {
        self.transport.carries(carries)
    }

    /// The tap that counts and records the line's frames. It must be told the line's session, once that is
    /// known.
    pub(super) fn tap(&self) -> Arc<SessionTap> {
        self.tap.clone()
    }

    /// The halves of the line. What it holds of unfinished frames, of at most `largest` bytes each, is
    /// charged to the budget.
    pub(super) fn split(
        mut self,
        largest: usize,
        budget: &Budget,
    ) -> (Box<dyn LineSource>, Box<dyn LineSink>) {
        self.transport.charge_to(budget);
        self.transport.limit_frames(largest);
        self.transport.split()
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Line");
        shown.field("cap", &self.cap).field("pings", &self.pings);
        shown.finish_non_exhaustive()
    }
}

/// Opens lines to the other gateway: the first one, and another one whenever a line was lost.
pub trait Dial: Send + Sync + 'static {
    /// Opens a line. The future is dropped when it takes too long.
    fn dial(&self) -> Boxed<'_, Result<Line, OpenError>>;

    /// The path to the other gateway as `scheme://host:port/path`, without a query and without secrets:
    /// what is learned about a path is kept under this name, and log lines contain it.
    fn path(&self) -> String;
}

/// The client that opened a line which a listener accepted: only the same client may resume the line's
/// session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Whose token it sent, if the listener has several.
    pub holder: Option<String>,
    /// Its address, if the carrier knows it. A session may be resumed from another one.
    pub address: Option<IpAddr>,
}

trait AnyTransport: Send {
    fn carries(&self, carries: Carries) -> bool;
    fn charge_to(&mut self, budget: &Budget);
    fn limit_frames(&mut self, largest: usize);
    fn split(self: Box<Self>) -> (Box<dyn LineSource>, Box<dyn LineSink>);
}

impl<T: Transport> AnyTransport for T {
    fn carries(&self, carries: Carries) -> bool {
        Transport::carries(self, carries)
    }

    fn charge_to(&mut self, budget: &Budget) {
        Transport::charge_to(self, budget);
    }

    fn limit_frames(&mut self, largest: usize) {
        Transport::limit_frames(self, largest);
    }

    fn split(self: Box<Self>) -> (Box<dyn LineSource>, Box<dyn LineSink>) {
        let (source, sink) = Transport::split(*self);
        (Box::new(source), Box::new(sink))
    }
}

/// The receiving half of a line.
pub(crate) trait LineSource: Send {
    fn next(&mut self) -> Boxed<'_, Incoming>;
    fn charge_to(&mut self, budget: &Budget);
}

impl<S: Source> LineSource for S {
    fn next(&mut self) -> Boxed<'_, Incoming> {
        Box::pin(Source::next(self))
    }

    fn charge_to(&mut self, budget: &Budget) {
        Source::charge_to(self, budget);
    }
}

/// The sending half of a line.
pub(crate) trait LineSink: Send {
    fn send(&mut self, frame: Frame) -> Boxed<'_, Result<(), Lost>>;
    fn hold(&mut self, frame: Frame) -> Option<Frame>;
    fn flush(&mut self) -> Boxed<'_, Result<(), Lost>>;
    fn ping(&mut self) -> Boxed<'_, Result<(), Lost>>;
    fn close<'a>(&'a mut self, code: u16, reason: &'a str) -> Boxed<'a, ()>;
}

impl<S: Sink> LineSink for S {
    fn send(&mut self, frame: Frame) -> Boxed<'_, Result<(), Lost>> {
        Box::pin(Sink::send(self, frame))
    }

    fn hold(&mut self, frame: Frame) -> Option<Frame> {
        Sink::hold(self, frame)
    }

    fn flush(&mut self) -> Boxed<'_, Result<(), Lost>> {
        Box::pin(Sink::flush(self))
    }

    fn ping(&mut self) -> Boxed<'_, Result<(), Lost>> {
        Box::pin(Sink::ping(self))
    }

    fn close<'a>(&'a mut self, code: u16, reason: &'a str) -> Boxed<'a, ()> {
        Box::pin(Sink::close(self, code, reason))
    }
}
