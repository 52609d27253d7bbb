//! A session over NATS as a transport.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use async_nats::{PublishErrorKind, Subscriber};
use breakbulk_link::{Budget, Carries, Closed, Frame};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use super::MESSAGE_COST;
use super::bus::Bus;
use super::keeper::{Arrived, Keeper, TOO_LARGE};
use super::message::{MESSAGE_HEAD, Message, cost};
use super::opening::Side;
use crate::transport::{Incoming, Lost, Sink, Source, Transport};

/// A session with a program at the same NATS servers.
#[derive(Debug)]
pub struct NatsTransport {
    source: NatsSource,
    sink: NatsSink,
    probe: bool,
}

/// What both halves and the keeper of a session share.
pub(super) struct Line {
    pub(super) bus: Bus,
    /// The subject that this side subscribes to.
    own: String,
    /// The subject that the other side subscribes to.
    to: String,
    max_payload: usize,
    window: u64,
    /// The number of the last frame that was sent.
    sent: AtomicU64,
    /// How much the other side has taken, as [`cost`] counts it.
    pub(super) taken_there: watch::Sender<u64>,
    /// How much this side has taken, as [`cost`] counts it.
    pub(super) taken_here: watch::Sender<u64>,
    /// How the session ended.
    over: watch::Sender<Option<Closed>>,
    /// The budget for frames that wait here to be taken.
    pub(super) budget: OnceLock<Budget>,
    /// The listener's permit for one session.
    _permit: Option<OwnedSemaphorePermit>,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

impl NatsTransport {
    /// A session with another side; `own` is the subject that this side subscribes to.
    pub(super) fn new(
        bus: Bus,
        (own, subscriber): (String, Subscriber),
        other: Side,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let probe = other.probe;
        let line = Arc::new(Line {
            own,
            to: other.subject,
            max_payload: other.max_payload.min(bus.client.max_payload()),
            window: other.window,
            sent: AtomicU64::new(0),
            taken_there: watch::Sender::new(0),
            taken_here: watch::Sender::new(0),
            over: watch::Sender::new(None),
            budget: OnceLock::new(),
            _permit: permit,
            bus,
        });
        // Room for as many frames as the window allows, however small they are.
        let room = line.bus.options.window / MESSAGE_COST;
        let (out, arrived) = mpsc::channel(usize::try_from(room).unwrap_or(usize::MAX / 4) + 16);
        tokio::spawn(Keeper::new(line.clone(), subscriber, out).run());
        Self {
            source: NatsSource {
                line: line.clone(),
                arrived,
            },
            sink: NatsSink { line, sent_cost: 0 },
            probe,
        }
    }

    /// Whether the side that opened the session only probes which messages pass.
    pub fn is_probe(&self) -> bool {
        self.probe
    }

    /// A short name for logs: the beginning of the random part of the other side's subject. The rest
    /// stays secret.
    pub fn name(&self) -> String {
        let to = &self.sink.line.to;
        let own = to.rsplit('.').next().unwrap_or_default();
        own.chars().take(8).collect()
    }

    /// The subjects that this side and the other one subscribe to. Both are secret and belong to this
    /// session alone.
    pub fn subjects(&self) -> (&str, &str) {
        (&self.sink.line.own, &self.sink.line.to)
    }

    /// The largest frame that fits in a message.
    pub fn max_frame(&self) -> usize {
        self.sink.max_frame()
    }

    /// Sends the first heartbeat.
    pub(super) async fn greet(&self) -> Result<(), Lost> {
        self.sink.line.say_here().await
    }

    /// Waits for the first message of the other side; true if it is a heartbeat, as it must be.
    pub(super) async fn first_message(&mut self) -> bool {
        matches!(self.source.arrived.recv().await, Some(Arrived::Alive))
    }
}

impl Line {
    /// Ends the session; only the first call sets the reason.
    pub(super) fn end(&self, closed: Closed) {
        self.over.send_if_modified(|over| {
            let first = over.is_none();
            if first {
                *over = Some(closed);
            }
            first
        });
    }

    /// Waits for the end.
    pub(super) async fn ended(&self) -> Closed {
        let mut over = self.over.subscribe();
        let over = over.wait_for(Option::is_some).await;
        over.ok().and_then(|over| over.clone()).unwrap_or(Closed {
            code: 1006,
            reason: String::new(),
        })
    }

    /// Sends a message, and ends the session if that fails.
    async fn publish(&self, message: Message) -> Result<(), Lost> {
        let bytes = message.write();
        let size = bytes.len();
        if size > self.max_payload {
            return Err(self.too_large(size));
        }
        match self.bus.client.publish(self.to.clone(), bytes).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                Err(self.too_large(size))
            }
            Err(error) => Err(self.fail(1006, format!("NATS took no message: {error}"))),
        }
    }

    fn too_large(&self, size: usize) -> Lost {
        let (size, fits) = (
            size - MESSAGE_HEAD,
            self.max_payload.saturating_sub(MESSAGE_HEAD),
        );
        let reason = format!("a frame of {size} bytes is too large: {fits} fit in a message");
        self.fail(TOO_LARGE, reason)
    }

    fn fail(&self, code: u16, reason: String) -> Lost {
        let lost = Lost(reason.clone());
        self.end(Closed { code, reason });
        lost
    }

    /// Sends a heartbeat: how much this side has sent and taken.
    pub(super) async fn say_here(&self) -> Result<(), Lost> {
        let message = Message::Here {
            sent: self.sent.load(Relaxed),
            taken: *self.taken_here.borrow(),
        };
        self.publish(message).await
    }

    /// Sends this side's close.
    pub(super) async fn say_close(&self, code: u16, reason: &str) {
        let number = self.sent.load(Relaxed) + 1;
        if self
            .publish(Message::close(number, code, reason))
            .await
            .is_ok()
        {
            let _ = self.bus.client.flush().await;
        }
    }
}

impl Transport for NatsTransport {
    type Source = NatsSource;
    type Sink = NatsSink;

    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn charge_to(&mut self, budget: &Budget) {
        // A session has only one budget.
        let _ = self.source.line.budget.set(budget.clone());
    }

    fn split(self) -> (NatsSource, NatsSink) {
        (self.source, self.sink)
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct NatsSource {
    line: Arc<Line>,
    arrived: mpsc::Receiver<Arrived>,
}

impl Source for NatsSource {
    async fn next(&mut self) -> Incoming {
        match self.arrived.recv().await {
            Some(Arrived::Frame(frame, _held)) => {
                let cost = cost(&frame);
                self.line.taken_here.send_modify(|taken| *taken += cost);
                Incoming::Frame(frame)
            }
            Some(Arrived::Alive) => Incoming::Alive,
            None => Incoming::Closed(self.line.ended().await),
        }
    }
}

/// The sending half.
#[derive(Debug)]
pub struct NatsSink {
    line: Arc<Line>,
    /// What all frames so far count in the other side's window.
    sent_cost: u64,
}

impl NatsSink {
    /// The largest frame that fits in a message.
    pub fn max_frame(&self) -> usize {
        self.line.max_payload.saturating_sub(MESSAGE_HEAD)
    }
}

impl Sink for NatsSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let (line, sent) = (&self.line, self.sent_cost);
        let mut taken = line.taken_there.subscribe();
        tokio::select! {
            biased;
            closed = line.ended() => return Err(Lost(closed.reason)),
            _ = taken.wait_for(|taken| sent.saturating_sub(*taken) < line.window) => {}
        }
        let number = line.sent.load(Relaxed) + 1;
        let cost = cost(&frame);
        line.publish(Message::Frame(number, frame)).await?;
        // Counted only now: a call that was cancelled before this point has sent nothing.
        line.sent.store(number, Relaxed);
        self.sent_cost += cost;
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Lost> {
        let flushed = self.line.bus.client.flush().await;
        flushed.map_err(|error| Lost(error.to_string()))
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        self.line.say_here().await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.line.say_close(code, reason).await;
        self.line.end(Closed {
            code,
            reason: reason.to_owned(),
        });
    }
}
