//! A session as a transport: the link above it does not notice that lines come and go.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use breakbulk_link::{Budget, Carries, Closed, Frame};
use breakbulk_net::{Incoming, Lost, Sink, Source, Transport, Verdict, now};

use super::lines::LineSource;
use super::machine::{Heard, Violation};
use super::session::Session;

/// A session of a tunnel, which survives the loss of its line.
pub(crate) struct Resuming {
    session: Arc<Session>,
    binary: bool,
}

impl Resuming {
    pub(super) fn new(session: Arc<Session>, binary: bool) -> Self {
        Self { session, binary }
    }
}

impl Transport for Resuming {
    type Source = ResumingSource;
    type Sink = ResumingSink;

    fn carries(&self, carries: Carries) -> bool {
        (carries == Carries::Binary) == self.binary
    }

    /// The lines were given their budget when they were opened.
    fn charge_to(&mut self, _budget: &Budget) {}

    fn split(self) -> (ResumingSource, ResumingSink) {
        let source = ResumingSource {
            session: self.session.clone(),
            line: None,
            told_broken: false,
        };
        let finish = Finish(self.session.clone());
        let sink = ResumingSink {
            session: self.session,
            _finish: finish,
        };
        (source, sink)
    }
}

/// Ends the session's task when the transport is dropped.
struct Finish(Arc<Session>);

impl Drop for Finish {
    fn drop(&mut self) {
        self.0.update(|machine| machine.finish());
    }
}

/// The receiving half.
pub(crate) struct ResumingSource {
    session: Arc<Session>,
    /// The line that is read, with its number.
    line: Option<(u64, Box<dyn LineSource>)>,
    told_broken: bool,
}

impl Source for ResumingSource {
    async fn next(&mut self) -> Incoming {
        loop {
            // Mostly there is nothing, and `look` costs less than `update`.
            if self
                .session
                .look(|machine| machine.has_stashed() || machine.is_over())
                && let Some(incoming) = self.stashed_or_end()
            {
                return incoming;
            }
            let (line, incoming) = self.read().await;
            if let Some(frame) = self.handle(line, incoming, true) {
                return Incoming::Frame(frame);
            }
        }
    }

    async fn read_ahead(&mut self) -> Infallible {
        loop {
            if !self.session.look(|machine| machine.reads_ahead()) {
                return pending().await;
            }
            let (line, incoming) = self.read().await;
            if let Some(frame) = self.handle(line, incoming, false) {
                let kept = self.session.update(|machine| machine.stash(frame));
                if let Err(violation) = kept {
                    self.violated(line, violation);
                }
            }
            if self.session.look(|machine| machine.is_over()) {
                return pending().await;
            }
        }
    }
}

impl ResumingSource {
    /// A frame that waited, or the end of the session.
    fn stashed_or_end(&mut self) -> Option<Incoming> {
        let (stashed, ended) = self.session.update(|machine| {
            let stashed = machine.take_stashed(now());
            let ended = stashed.is_none().then(|| machine.ended()).flatten();
            (stashed, ended)
        });
        if let Some(frame) = stashed {
            return Some(Incoming::Frame(frame));
        }
        let (closed, is_broken) = ended?;
        match is_broken && !std::mem::replace(&mut self.told_broken, true) {
            true => Some(Incoming::Broken(closed)),
            false => Some(Incoming::Closed(closed)),
        }
    }

    /// Reads the next thing from the current line; returns early when the line changes.
    async fn read(&mut self) -> (u64, Incoming) {
        let (current, over) = self.session.renew(&mut self.line);
        let changed = self
            .session
            .until(|machine| machine.line() != current || machine.is_over() != over);
        let incoming = async {
            match &mut self.line {
                Some((_, source)) => source.next().await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            incoming = incoming => (current, incoming),
            () = changed => (current, Incoming::Alive),
        }
    }

    /// Handles what a line brought. Returns a frame of the session; `takes` says whether the application
    /// takes it at once.
    fn handle(&self, line: u64, incoming: Incoming, takes: bool) -> Option<Frame> {
        let frame = match incoming {
            Incoming::Frame(frame) => frame,
            Incoming::Posted(frame, receipt) => {
                receipt.answer(Verdict::Settled(Ok(())));
                frame
            }
            Incoming::Alive => {
                self.session
                    .update(|machine| machine.handle_alive(now(), line));
                return None;
            }
            Incoming::Closed(closed) => {
                self.session
                    .update(|machine| machine.line_down(now(), line, closed));
                return None;
            }
            Incoming::Broken(closed) => {
                self.session.line_broken(line, closed);
                return None;
            }
        };
        let heard = self.session.update(|machine| {
            let now = now();
            let heard = machine.handle_frame(now, line, frame);
            if let (Ok(Heard::Frame(frame)), true) = (&heard, takes) {
                machine.take(now, frame);
            }
            heard
        });
        match heard {
            Ok(Heard::Frame(frame)) => Some(frame),
            Ok(Heard::Handled) => None,
            Err(violation) => {
                self.violated(line, violation);
                None
            }
        }
    }

    fn violated(&self, line: u64, violation: Violation) {
        match violation {
            Violation::Protocol(rule) => self.session.update(|machine| machine.broken(rule)),
            Violation::Memory => self.session.line_broken(
                line,
                Closed {
                    code: 1013,
                    reason: "no memory for a frame in parts at the moment: try again later"
                        .to_owned(),
                },
            ),
        }
    }
}

/// The sending half.
pub(crate) struct ResumingSink {
    session: Arc<Session>,
    _finish: Finish,
}

impl Sink for ResumingSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let mut frame = frame;
        loop {
            let (pushed, acknowledged, over) = self.session.update(|machine| {
                let over = machine.is_over();
                (machine.push(frame), machine.acknowledged(), over)
            });
            if over {
                return Err(Lost("the session has ended".to_owned()));
            }
            match pushed {
                Ok(()) => break,
                Err(back) => frame = back,
            }
            // Frames that were pushed must be written first: otherwise none would be acknowledged.
            self.session.write_out().await;
            let moved = self
                .session
                .until(|machine| machine.acknowledged() != acknowledged || machine.is_over());
            moved.await;
        }
        self.session.write_out().await;
        Ok(())
    }

    fn hold(&mut self, frame: Frame) -> Option<Frame> {
        self.session.push(frame).err()
    }

    async fn flush(&mut self) -> Result<(), Lost> {
        self.session.write_out().await;
        Ok(())
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.session.update(|machine| machine.close(code, reason));
        self.session.wake();
        self.session.until(|machine| machine.is_closed()).await;
        self.session.close_line(code, reason).await;
    }
}
