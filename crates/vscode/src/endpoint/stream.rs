//! Drives an endpoint over a byte stream, in one hand-written future.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use breakbulk_message::vscode::ipc::Frame;
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::time::Sleep;

use super::Stream;
use super::engine::{Engine, Outgoing};
use super::inbox::now;
use super::status::Ended;
use crate::machine::Chunks;
use crate::machine::ipc::{FrameReader, PersistentEvent, PersistentProtocol, Protocol, Received};

/// Bytes in the write buffer above which messages stay queued in the machine.
const WRITE_AHEAD: usize = 256 << 10;

/// Rounds per poll, after which the task yields to others.
const ROUNDS: usize = 64;

/// How long a stream is still read after writing to it failed.
const READ_AFTER_WRITE_ERROR: Duration = Duration::from_secs(5);

/// Slices per vectored write.
const SLICES: usize = 64;

/// The framing of messages in the stream.
pub(super) enum Framing {
    Plain(Protocol),
    Persistent(Box<PersistentProtocol>),
}

pub(super) struct StreamDriver {
    engine: Engine,
    framing: Framing,
    stream: Option<Box<dyn Stream>>,
    frame_reader: FrameReader,
    /// Something was written since the last flush.
    unflushed: bool,
    /// The error after which nothing can be written; what the peer sent before may still be read.
    write_error: Option<String>,
    grace: Duration,
    /// When a session without a stream ends.
    give_up_at: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    sleeps_until: Option<Instant>,
}

impl StreamDriver {
    pub(super) fn new(
        engine: Engine,
        framing: Framing,
        stream: Box<dyn Stream>,
        limit: usize,
        grace: Duration,
    ) -> Self {
        Self {
            engine,
            framing,
            stream: Some(stream),
            frame_reader: FrameReader::new(limit),
            unflushed: false,
            write_error: None,
            grace,
            give_up_at: None,
            sleep: None,
            sleeps_until: None,
        }
    }

    /// One round: commands, timers, writing, reading. Returns whether anything was read or written.
    fn round(&mut self, context: &mut Context<'_>) -> bool {
        let now = now();
        let driver = self.engine.work(now, context);
        if let Some((number, stream)) = driver.stream {
            self.resume(now, number, stream);
        }
        self.timers(now);
        let wrote = self.write(now, context);
        let read = self.read(now, context);
        wrote | read
    }

    fn resume(&mut self, now: Instant, number: u64, stream: Box<dyn Stream>) {
        let Framing::Persistent(protocol) = &mut self.framing else {
            return; // a plain session ends with its stream
        };
        protocol.resume(now);
        self.frame_reader.reset();
        self.stream = Some(stream);
        self.give_up_at = None;
        self.engine.connected(number);
    }

    fn timers(&mut self, now: Instant) {
        if self.give_up_at.is_some_and(|at| now >= at) {
            if let Some(why) = self.write_error.take() {
                return self.engine.end(Ended::Lost(why));
            }
            let grace = self.grace.as_secs();
            let why = format!("no new connection within {grace} s; the session is given up");
            return self.engine.end(Ended::Failed(why));
        }
        let Framing::Persistent(protocol) = &mut self.framing else {
            return;
        };
        if protocol.poll_timeout().is_some_and(|(at, _)| now >= at) {
            protocol.handle_timeout(now);
        }
        let mut lost = None;
        while let Some(event) = protocol.poll_event() {
            match event {
                PersistentEvent::StreamTimeout { silence, .. } => {
                    lost = Some(format!("nothing received for {} s", silence.as_secs()));
                }
                PersistentEvent::Failed(error) => {
                    self.engine.end(Ended::Failed(error.to_string()));
                }
            }
        }
        if let Some(why) = lost {
            self.stream_lost(now, Ended::Lost(why));
        }
    }

    /// Passes messages to the framing and bytes to the stream, until one of them is full.
    fn write(&mut self, now: Instant, context: &mut Context<'_>) -> bool {
        let mut moved = false;
        loop {
            if self.write_error.is_some() {
                break;
            }
            moved |= self.fill(now);
            let Some(out) = outgoing(&mut self.framing, now) else {
                break;
            };
            let Some(stream) = &mut self.stream else {
                break;
            };
            match write_some(out, stream, context) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) => {
                    self.unflushed = true;
                    moved = true;
                }
                Poll::Ready(Err(error)) => {
                    self.write_failed(now, &error);
                    return true;
                }
            }
        }
        if self.unflushed
            && self.write_error.is_none()
            && let Some(stream) = &mut self.stream
        {
            match Pin::new(stream).poll_flush(context) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => {
                    self.write_failed(now, &error);
                    return true;
                }
            }
        }
        moved
    }

    fn fill(&mut self, now: Instant) -> bool {
        let mut moved = false;
        while has_room(&mut self.framing, now) {
            let Some(message) = self.engine.next() else {
                break;
            };
            moved = true;
            if let Err(why) = self.framing.send(now, &message) {
                self.engine.end(Ended::Failed(why));
            }
        }
        moved
    }

    /// Reads and handles what is available, as long as the engine wants messages.
    fn read(&mut self, now: Instant, context: &mut Context<'_>) -> bool {
        let mut moved = false;
        loop {
            if self.engine.ended().is_some() {
                return moved;
            }
            if !self.engine.wants_message() {
                if let Framing::Persistent(protocol) = &mut self.framing {
                    protocol.reading_paused(now);
                }
                return moved;
            }
            match self.frame_reader.next_frame() {
                Ok(Some(frame)) => {
                    moved = true;
                    self.receive(now, frame, context);
                    continue;
                }
                Ok(None) => {}
                Err(error) => {
                    self.engine.end(Ended::Failed(error.to_string()));
                    return true;
                }
            }
            // One read per round, so that the answers to it go into one write.
            if moved {
                return true;
            }
            let Some(stream) = &mut self.stream else {
                return moved;
            };
            // `read_buf` is cancel-safe, so its future may be dropped after one poll.
            let read = self
                .frame_reader
                .fill(|room| pin!(stream.read_buf(room)).poll(context));
            match read {
                Poll::Pending => return moved,
                Poll::Ready(Ok(0)) => {
                    let ended = match self.frame_reader.is_inside_frame() {
                        true => Ended::Lost("the stream ended inside a message".to_owned()),
                        false => Ended::Left,
                    };
                    self.stream_lost(now, ended);
                    return true;
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => {
                    self.stream_lost(now, Ended::Lost(error.to_string()));
                    return true;
                }
            }
        }
    }

    fn receive(&mut self, now: Instant, frame: Frame, context: &mut Context<'_>) {
        match self.framing.receive(now, frame) {
            Received::Message(message) => self.engine.receive(now, message, context),
            Received::Disconnect => self.engine.end(Ended::Left),
            Received::Control(_) => {
                tracing::debug!("control message from the peer dropped: none is known")
            }
            Received::Nothing => {}
        }
    }

    /// A persistent session replays the messages on the next stream. A plain one goes on reading for a
    /// while, since replies may already be in the stream.
    fn write_failed(&mut self, now: Instant, error: &io::Error) {
        match self.framing {
            Framing::Plain(_) => {
                self.write_error = Some(error.to_string());
                self.give_up_at = Some(now + READ_AFTER_WRITE_ERROR);
            }
            Framing::Persistent(_) => self.stream_lost(now, Ended::Lost(error.to_string())),
        }
    }

    fn stream_lost(&mut self, now: Instant, ended: Ended) {
        self.stream = None;
        self.unflushed = false;
        match &mut self.framing {
            Framing::Plain(_) => self.engine.end(ended),
            Framing::Persistent(protocol) => {
                protocol.stream_lost();
                self.frame_reader.reset();
                self.give_up_at = Some(now + self.grace);
                self.engine.disconnected();
            }
        }
    }

    /// Whether everything is written and flushed, or nothing can be written.
    fn is_written(&mut self) -> bool {
        let is_out = !self.unflushed && outgoing(&mut self.framing, now()).is_none();
        self.write_error.is_some() || (is_out && self.stream.is_some())
    }

    /// Sends the disconnect of a persistent session, as far as that does not block.
    fn send_disconnect(&mut self, context: &mut Context<'_>) {
        if self.engine.ended() == Some(&Ended::Disposed)
            && let Framing::Persistent(protocol) = &mut self.framing
            && let Some(stream) = &mut self.stream
        {
            protocol.send_disconnect();
            if let Some(out) = protocol.outgoing(now()) {
                while let Poll::Ready(Ok(())) = write_some(out, stream, context) {
                    if out.is_empty() {
                        break;
                    }
                }
            }
        }
    }

    /// Sets the timer to the next deadline. True if it is due already.
    fn set_timer(&mut self, context: &mut Context<'_>) -> bool {
        let framing = match &self.framing {
            Framing::Plain(_) => None,
            Framing::Persistent(protocol) => protocol.poll_timeout().map(|(at, _)| at),
        };
        let due = [framing, self.engine.poll_timeout(), self.give_up_at];
        let Some(due) = due.into_iter().flatten().min() else {
            self.sleeps_until = None;
            return false;
        };
        // Waking too early is cheaper than resetting the timer for each call.
        let early = self.sleeps_until.is_some_and(|at| at <= due && at > now());
        let sleep = match &mut self.sleep {
            Some(sleep) if early => sleep,
            Some(sleep) => {
                sleep.as_mut().reset(due.into());
                self.sleeps_until = Some(due);
                sleep
            }
            none => {
                self.sleeps_until = Some(due);
                none.insert(Box::pin(tokio::time::sleep_until(due.into())))
            }
        };
        sleep.as_mut().poll(context).is_ready()
    }
}

impl Future for StreamDriver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let driver = &mut *self;
        for _ in 0..ROUNDS {
            let moved = driver.round(context);
            if driver.engine.is_finished() && driver.is_written() {
                driver.engine.end(Ended::Disposed);
            }
            if driver.engine.ended().is_some() {
                driver.send_disconnect(context);
                return Poll::Ready(());
            }
            if !moved && !driver.set_timer(context) && driver.engine.sleep(context) {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Framing {
    fn send(&mut self, now: Instant, message: &Outgoing) -> Result<(), String> {
        match self {
            Self::Plain(protocol) => protocol.send(message).map_err(|error| error.to_string()),
            Self::Persistent(protocol) => {
                let sent = protocol.send(now, message);
                sent.map_err(|error| error.to_string())
            }
        }
    }

    fn receive(&mut self, now: Instant, frame: Frame) -> Received {
        match self {
            Self::Plain(protocol) => {
                let message: Option<Bytes> = protocol.handle_frame(frame);
                message.map_or(Received::Nothing, Received::Message)
            }
            Self::Persistent(protocol) => protocol.handle_frame(now, frame),
        }
    }
}

fn has_room(framing: &mut Framing, now: Instant) -> bool {
    let room = match framing {
        Framing::Plain(_) => true,
        Framing::Persistent(protocol) => protocol.has_room(),
    };
    room && outgoing(framing, now).is_none_or(|out| out.len() < WRITE_AHEAD)
}

/// The bytes to write.
fn outgoing(framing: &mut Framing, now: Instant) -> Option<&mut Chunks> {
    match framing {
        Framing::Plain(protocol) => Some(protocol.outgoing()).filter(|out| !out.is_empty()),
        Framing::Persistent(protocol) => protocol.outgoing(now),
    }
}

fn write_some(
    out: &mut Chunks,
    stream: &mut Box<dyn Stream>,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let filled = out.slices(&mut slices);
    let written = Pin::new(stream).poll_write_vectored(context, &slices[..filled]);
    match written {
        Poll::Pending => Poll::Pending,
        Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        Poll::Ready(Ok(count)) => {
            out.advance(count);
            Poll::Ready(Ok(()))
        }
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
    }
}
