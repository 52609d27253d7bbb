//! A link with a task that drives it, and the handle by which an application uses it.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

use breakbulk_link::{
    Carries, Closed, Event, Frame, FrameId, Link, MessageId, Outgoing, PlanJob, Rejected,
    SendError, Sent, TransferId,
};
use tokio::sync::Notify;

use crate::driver::{self, Options};
use crate::receipt::{Receipts, Refusal};
use crate::transport::Transport;

/// A connection. Clones share it; when the last one is dropped it is closed with 1000.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    /// Closes with the last clone. The driver holds `shared` alone.
    _last: Arc<CloseOnDrop>,
}

impl Connection {
    /// Drives a link over a transport, in a task of its own. All that a link can ask for is served:
    /// messages that are planned elsewhere ([`Link::poll_plan`]), frames that are confirmed
    /// ([`Link::handle_sent`]), control words.
    ///
    /// # Errors
    /// If the transport does not carry the frames that the link's wires write or read.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn open(
        link: Link,
        mut transport: impl Transport,
        options: Options,
    ) -> Result<Self, Mismatch> {
        for (wire, carries) in link.wires() {
            if !transport.carries(carries) {
                return Err(Mismatch { wire, carries });
            }
        }
        // What is held of an unfinished frame is charged to nobody, so that it is held to the link's own
        // limit. A frame that is a little too large still reaches the link, whose words are better.
        let limit = link.frame_limit();
        transport.expect(limit.saturating_add(limit / 8));
        let shared = Arc::new(Shared::new(link));
        let (source, sink) = transport.split();
        tokio::spawn(driver::drive(shared.clone(), source, sink, options));
        Ok(Self {
            _last: Arc::new(CloseOnDrop(shared.clone())),
            shared,
        })
    }

    /// Queues a message, or hands it back at once: where the queue is full nothing waits.
    pub fn send(&self, message: Outgoing) -> Result<TransferId, Rejected> {
        self.shared.with(|link| link.send(now(), message))
    }

    /// Queues a message and waits for room where the queue is full. Cancelled before it returns, the
    /// message is not queued.
    pub async fn send_when_writable(&self, message: Outgoing) -> Result<TransferId, Rejected> {
        let mut message = message;
        loop {
            let room = self.shared.room.notified();
            tokio::pin!(room);
            // Room that is made between the attempt and the wait counts too.
            room.as_mut().enable();
            match self.send(message) {
                Err(rejected) if matches!(rejected.error, SendError::QueueFull { .. }) => {
                    message = *rejected.message;
                    room.await;
                }
                outcome => return outcome,
            }
        }
    }

    /// What happens next; `None` once the connection is closed and everything was told. Cancel-safe;
    /// for one caller at a time.
    pub async fn event(&self) -> Option<Event> {
        loop {
            let (event, closed) = self
                .shared
                .with(|link| (link.poll_event(), link.closed().is_some()));
            match event {
                // Told by waking whoever waits to send.
                Some(Event::Writable) => {}
                Some(event) => return Some(event),
                None if closed => return None,
                None => self.shared.events.notified().await,
            }
        }
    }

    /// A message was decoded and kept, or not and why. Where it came by HTTP its POST is answered now;
    /// what is never settled is answered when the connection ends. Elsewhere nobody waits for it.
    pub fn settle(&self, message: MessageId, outcome: Result<(), Refusal>) {
        self.shared.lock().receipts.settle(message, outcome);
    }

    /// Does something to the link itself, which nobody else touches meanwhile.
    pub fn with<R>(&self, work: impl FnOnce(&mut Link) -> R) -> R {
        self.shared.with(work)
    }

    /// Ends the connection now: what is queued is dropped.
    pub fn close(&self, code: u16, reason: &str) {
        self.shared.with(|link| link.close(code, reason));
    }

    /// Ends the connection once all that is queued is out.
    pub async fn finish(&self, code: u16, reason: &str) {
        self.drained().await;
        self.close(code, reason);
    }

    /// Waits until all that was queued is handed to the transport, or the connection is closed.
    pub async fn drained(&self) {
        self.shared.until(|state| state.is_drained()).await;
    }

    /// Waits for the end of the connection, and tells why it ended.
    pub async fn closed(&self) -> Closed {
        self.shared.until(State::is_closed).await;
        self.shared.lock().link.closed().cloned().unwrap_or(Closed {
            code: 1006,
            reason: String::new(),
        })
    }

    /// Waits until the transport is let go of: the last words are out.
    pub async fn ended(&self) {
        self.shared.until(|state| state.ended).await;
    }

    /// Whether a frame was still on its way when the end came: the other end has at most a part of it.
    pub fn broke_off(&self) -> bool {
        self.shared.lock().broke_off
    }

    /// Whether the other end closed, or the transport failed, rather than this side.
    pub fn closed_by_peer(&self) -> bool {
        self.shared.lock().by_peer
    }
}

/// A link over a transport that cannot carry its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the wire {wire} needs {} frames, which this transport does not carry; use another wire or another transport", name(*carries))]
pub struct Mismatch {
    /// The wire.
    pub wire: &'static str,
    /// What it needs.
    pub carries: Carries,
}

fn name(carries: Carries) -> &'static str {
    match carries {
        Carries::Text => "text",
        Carries::Binary => "binary",
    }
}

/// A seed for a link: from the system's own hasher, which is seeded anew in every process. Keys of
/// transfers are no secrets.
pub fn fresh_seed() -> [u8; 32] {
    use std::hash::{BuildHasher, RandomState};
    let mut seed = [0; 32];
    for (number, word) in seed.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&RandomState::new().hash_one(number).to_be_bytes());
    }
    seed
}

/// The time, which a test may have paused. All endpoints have it from here.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// What the handle and the driver share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// The writer may have something to do.
    pub(crate) outbound: Notify,
    /// A deadline moved closer.
    pub(crate) deadline: Notify,
    /// The application may have something to take.
    events: Notify,
    /// The queue may have room.
    room: Notify,
    /// Something that [`until`](Self::until) may wait for.
    changed: Notify,
}

pub(crate) struct State {
    pub(crate) link: Link,
    /// Whole messages whose senders wait for a word.
    pub(crate) receipts: Receipts,
    /// The reader, while it waits for the application.
    reader: Option<Waker>,
    /// A frame is between the link and the transport.
    pub(crate) sending: bool,
    pub(crate) ping_due: bool,
    /// When something last came in.
    pub(crate) heard: Instant,
    /// When the other end was last asked for a word.
    pub(crate) asked: Instant,
    /// What the clock is set for.
    pub(crate) armed: Option<Instant>,
    pub(crate) by_peer: bool,
    /// A frame was on its way when the transport failed or time was up.
    pub(crate) broke_off: bool,
    pub(crate) ended: bool,
}

impl State {
    pub(crate) fn is_closed(&self) -> bool {
        self.link.closed().is_some()
    }

    fn is_drained(&self) -> bool {
        self.is_closed() || (self.link.is_idle() && !self.sending)
    }

    /// Whether the reader waits for the application, so that silence is not the peer's.
    pub(crate) fn is_paused(&self) -> bool {
        self.reader.is_some()
    }
}

/// What the writer does next.
pub(crate) enum Next {
    /// Its number, where the link wants to hear that it is out.
    Frame(Option<FrameId>, Frame),
    Ping,
    Close(Closed),
    Wait,
}

impl Shared {
    fn new(link: Link) -> Self {
        Self {
            state: Mutex::new(State {
                link,
                receipts: Receipts::default(),
                reader: None,
                sending: false,
                ping_due: false,
                heard: now(),
                asked: now(),
                armed: None,
                by_peer: false,
                broke_off: false,
                ended: false,
            }),
            outbound: Notify::new(),
            deadline: Notify::new(),
            events: Notify::new(),
            room: Notify::new(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Link) -> R) -> R {
        self.update(|state| work(&mut state.link))
    }

    /// Changes the state and wakes whom it concerns.
    pub(crate) fn update<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        self.change(true, work)
    }

    /// The writer does not wake itself: a failed message that holds its place would keep it busy.
    fn change<R>(&self, wake_writer: bool, work: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let queued = state.link.queued_bytes();
        let was_closed = state.is_closed();
        let result = work(&mut state);
        let closed = state.is_closed();
        let reader = if closed || state.link.wants_frame() {
            state.reader.take()
        } else {
            None
        };
        let sooner = match (state.link.poll_timeout(), state.armed) {
            (Some((at, _)), Some(armed)) => at < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        let events = state.link.has_event() || closed;
        let outbound = closed || state.ping_due || !state.link.is_idle();
        let room = closed || state.link.queued_bytes() < queued || state.link.is_idle();
        let changed = closed != was_closed || state.ended || state.is_drained();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        if events {
            self.events.notify_one();
        }
        if outbound && wake_writer {
            self.outbound.notify_one();
        }
        if sooner || closed {
            self.deadline.notify_one();
        }
        if room {
            self.room.notify_waiters();
        }
        if changed {
            self.changed.notify_waiters();
        }
        result
    }

    /// Waits until the link wants a frame; false once it is closed.
    pub(crate) async fn readable(&self) -> bool {
        poll_fn(|context| {
            let mut state = self.lock();
            if state.is_closed() {
                return Poll::Ready(false);
            }
            if !state.link.wants_frame() {
                // Before looking again: a message dropped in between must not be missed.
                state.link.wake_when_dropped(context.waker());
                state.reader = Some(context.waker().clone());
            }
            if state.link.wants_frame() {
                if state.reader.take().is_some() {
                    // The peer was kept waiting, not silent.
                    state.heard = now();
                }
                return Poll::Ready(true);
            }
            Poll::Pending
        })
        .await
    }

    /// Whether another frame is likely to follow.
    pub(crate) fn has_more(&self) -> bool {
        !self.lock().link.is_idle()
    }

    /// The writer's next task. A frame is made only here, when the transport can take it; `holds`: the
    /// transport holds some that are not out yet.
    pub(crate) fn next(self: &Arc<Self>, holds: bool) -> Next {
        let (mut buffer, mut jobs) = (Vec::new(), Vec::new());
        let next = self.change(false, |state| {
            state.sending = holds;
            if let Some(closed) = state.link.closed() {
                return Next::Close(closed.clone());
            }
            if std::mem::take(&mut state.ping_due) {
                return Next::Ping;
            }
            let transmit = state.link.poll_transmit(now(), &mut buffer);
            jobs.extend(std::iter::from_fn(|| state.link.poll_plan()));
            match transmit {
                None => match state.link.closed() {
                    Some(closed) => Next::Close(closed.clone()),
                    None => Next::Wait,
                },
                Some(transmit) => {
                    state.sending = true;
                    let bytes = std::mem::take(&mut buffer).into();
                    let id = state.link.confirms().then_some(transmit.frame);
                    let frame = match transmit.carries {
                        Carries::Text => Frame::Text(bytes),
                        Carries::Binary => Frame::Binary(bytes),
                    };
                    Next::Frame(id, frame)
                }
            }
        });
        self.plan_elsewhere(jobs);
        next
    }

    /// The transport has taken these frames.
    pub(crate) fn handed_over(&self, frames: &mut Vec<FrameId>) {
        if frames.is_empty() {
            return;
        }
        self.update(|state| {
            for frame in frames.drain(..) {
                state.link.handle_sent(now(), frame, Sent::Ok);
            }
        });
    }

    /// Plans large messages where it holds up nobody.
    fn plan_elsewhere(self: &Arc<Self>, jobs: Vec<PlanJob>) {
        for job in jobs {
            let shared = self.clone();
            tokio::task::spawn_blocking(move || {
                let planned = job.run();
                shared.with(|link| link.handle_planned(planned));
            });
        }
    }

    /// Waits until the state is such.
    pub(crate) async fn until(&self, holds: impl Fn(&State) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if holds(&self.lock()) {
                return;
            }
            changed.await;
        }
    }
}

struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.with(|link| link.close(1000, ""));
    }
}
