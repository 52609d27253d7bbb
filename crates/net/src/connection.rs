//! [`Connection`], the application's handle to a link that a task drives over a transport, and the
//! state that the handle shares with that task.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Poll, Waker};
use std::time::Instant;

use breakbulk_link::lock;
use breakbulk_link::{
    Carries, Closed, Event, Frame, FrameId, Held, Link, MessageId, Outgoing, PlanJob, Rejected,
    SendError, Sent, TransferId,
};
use tokio::sync::Notify;

use crate::driver::{self, ByOthers, Handler, Inline, Options};
use crate::receipt::{Receipts, Refusal};
use crate::transport::Transport;

/// How many bytes a connection may hold without charging them: as many as one read of small frames brings.
pub(crate) const UNCHARGED: usize = 16 << 10;

/// A handle to a connection. Clones share the connection; dropping the last one closes it with code
/// 1000.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    /// Closes the connection when the last clone is dropped; the driver task holds only `shared`.
    _close_on_drop: Arc<CloseOnDrop>,
}

impl Connection {
    /// Spawns a task that drives a link over a transport. It serves everything that a link can ask for:
    /// planning large messages on another thread ([`Link::poll_plan`]), confirming sent frames
    /// ([`Link::handle_sent`]) and control messages.
    ///
    /// # Errors
    /// If the transport does not carry the frames that the link's wires write or read.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn open(link: Link, transport: impl Transport, options: Options) -> Result<Self, Mismatch> {
        let unstarted = Self::prepare(link, transport, options)?;
        Ok(unstarted.start(ByOthers))
    }

    /// Like [`open`](Self::open), but for a connection whose events are all handled by the task that drives
    /// it ([`Unstarted::handle_events`]): waking another task for them would cost more than the work that a
    /// small message causes.
    ///
    /// # Errors
    /// If the transport does not carry the frames that the link's wires write or read.
    pub fn prepare<T: Transport>(
        link: Link,
        mut transport: T,
        options: Options,
    ) -> Result<Unstarted<T>, Mismatch> {
        for (wire, carries) in link.wires() {
            if !transport.carries(carries) {
                return Err(Mismatch { wire, carries });
            }
        }
        transport.charge_to(link.shared_budget());
        // Limits a frame while it is being received. The margin lets a frame that is slightly too large reach
        // the link, whose error message is more precise than the transport's.
        let limit = link.frame_limit();
        transport.limit_frames(limit.saturating_add(limit / 8));
        let shared = Arc::new(Shared::new(link));
        Ok(Unstarted {
            connection: Self {
                _close_on_drop: Arc::new(CloseOnDrop(shared.clone())),
                shared,
            },
            transport,
            options,
        })
    }

    /// Queues a message without waiting. If the queue is full, the error returns the message.
    pub fn send(&self, message: Outgoing) -> Result<TransferId, Rejected> {
        self.shared.with(|link| link.send(now(), message))
    }

    /// Queues a message, and waits while the queue is full. If this future is dropped before it
    /// completes, the message is not queued.
    pub async fn send_when_writable(&self, message: Outgoing) -> Result<TransferId, Rejected> {
        let mut message = message;
        loop {
            let room = self.shared.room.notified();
            tokio::pin!(room);
            // Registers before the attempt, so that a notification in between is not missed.
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

    /// Waits until the queue has at most this many messages and bytes, or the connection is closed;
    /// returns how many it has. Cancel-safe.
    pub async fn queued_at_most(&self, messages: usize, bytes: usize) -> (usize, usize) {
        loop {
            let room = self.shared.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            let (queue, closed) = {
                let state = self.shared.lock();
                let queue = (state.link.queued(), state.link.queued_bytes());
                (queue, state.is_closed())
            };
            if closed || (queue.0 <= messages && queue.1 <= bytes) {
                return queue;
            }
            room.await;
        }
    }

    /// Waits for the next event; `None` once the connection is closed and all events were returned.
    /// Cancel-safe; for one caller at a time.
    pub async fn event(&self) -> Option<Event> {
        loop {
            if let Some(event) = self.try_event() {
                return Some(event);
            }
            if self.shared.lock().is_closed() {
                // It may have been closed in between.
                return self.try_event();
            }
            self.shared.events.notified().await;
        }
    }

    /// The next event, if there is one already. Taking it wakes the read loop alone: nothing else waits for
    /// room in the queue of events.
    pub fn try_event(&self) -> Option<Event> {
        let mut state = self.shared.lock();
        let event = loop {
            match state.link.poll_event() {
                // `send_when_writable` is woken through `room` instead.
                Some(Event::Writable) => {}
                event => break event,
            }
        };
        let reader = match event.is_some() && state.link.wants_frame() {
            true => state.reader.take(),
            false => None,
        };
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        event
    }

    /// Reports that the application decoded and kept a message, or why it refused it. If the
    /// message came by an HTTP POST, the POST is answered now (a message that is never settled is
    /// answered when the connection ends). On other transports this does nothing.
    pub fn settle(&self, message: MessageId, outcome: Result<(), Refusal>) {
        self.shared.lock().receipts.settle(message, outcome);
    }

    /// Calls `work` with exclusive access to the link.
    pub fn with<R>(&self, work: impl FnOnce(&mut Link) -> R) -> R {
        self.shared.with(work)
    }

    /// Calls `work` with shared access to the link: it does not change, so no task is woken.
    pub fn look<R>(&self, work: impl FnOnce(&Link) -> R) -> R {
        work(&self.shared.lock().link)
    }

    /// Access to the link that does not keep the connection open.
    pub fn downgrade(&self) -> WeakConnection {
        WeakConnection(Arc::downgrade(&self.shared))
    }

    /// Closes the connection now; queued messages are dropped.
    pub fn close(&self, code: u16, reason: &str) {
        self.shared.with(|link| link.close(code, reason));
    }

    /// Closes the connection once all queued messages were sent.
    pub async fn finish(&self, code: u16, reason: &str) {
        self.drained().await;
        self.close(code, reason);
    }

    /// Waits until the transport has taken all queued messages, or the connection is closed.
    pub async fn drained(&self) {
        self.shared.until(|state| state.is_drained()).await;
    }

    /// Whether the connection is closed.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().is_closed()
    }

    /// Waits until the connection is closed, and returns why.
    pub async fn closed(&self) -> Closed {
        self.shared.until_closed().await;
        self.shared.lock().link.closed().cloned().unwrap_or(Closed {
            code: 1006,
            reason: String::new(),
        })
    }

    /// Waits until the driver task has dropped the transport: the close was sent, or timed out.
    pub async fn ended(&self) {
        self.shared.until(|state| state.ended).await;
    }

    /// Whether the connection ended while a frame was being sent: the other end got at most a part
    /// of it.
    pub fn broke_off(&self) -> bool {
        self.shared.lock().broke_off.is_some()
    }

    /// Why the frame that was being sent when the connection ended was not sent in full; `None`: there
    /// was none.
    pub fn why_broke_off(&self) -> Option<String> {
        self.shared.lock().broke_off.clone()
    }

    /// The size of the largest frame that was sent, in bytes.
    pub fn largest_frame(&self) -> usize {
        self.shared.lock().largest_frame
    }

    /// Whether the other end closed the connection or the transport failed, rather than this side
    /// closing.
    pub fn closed_by_peer(&self) -> bool {
        self.shared.lock().by_peer
    }
}

/// A connection that no task drives yet.
pub struct Unstarted<T> {
    connection: Connection,
    transport: T,
    options: Options,
}

impl<T: Transport> Unstarted<T> {
    /// The connection. What is sent now waits until the connection is started.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Spawns a task that drives the connection and calls `handler` with each event, the last of which is
    /// [`Event::Closed`]. [`Connection::event`] must not be called then. The handler must not wait for
    /// anything: nothing is read or written meanwhile.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn handle_events(self, handler: impl FnMut(Event) + Send + 'static) {
        self.start(Inline::new(handler));
    }

    fn start(self, handler: impl Handler) -> Connection {
        let shared = self.connection.shared.clone();
        let (source, sink) = self.transport.split();
        tokio::spawn(driver::drive(shared, source, sink, self.options, handler));
        self.connection
    }
}

/// Access to the link of a connection that does not keep the connection open.
#[derive(Clone)]
pub struct WeakConnection(Weak<Shared>);

impl WeakConnection {
    /// Calls `work` with exclusive access to the link, if the connection still exists.
    pub fn with<R>(&self, work: impl FnOnce(&mut Link) -> R) -> Option<R> {
        Some(self.0.upgrade()?.with(work))
    }
}

/// The transport cannot carry the frames of the link's wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the wire {wire} needs {} frames, which this transport does not carry; use another wire or another transport", name(*carries))]
pub struct Mismatch {
    /// The wire.
    pub wire: &'static str,
    /// The kind of frames it needs.
    pub carries: Carries,
}

fn name(carries: Carries) -> &'static str {
    match carries {
        Carries::Text => "text",
        Carries::Binary => "binary",
    }
}

/// A seed for a link, from the standard library's hasher, which is seeded randomly in every process.
/// That is random enough for the keys of transfers, which are no secrets.
pub fn fresh_seed() -> [u8; 32] {
    use std::hash::{BuildHasher, RandomState};
    let mut seed = [0; 32];
    for (number, word) in seed.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&RandomState::new().hash_one(number).to_be_bytes());
    }
    seed
}

/// The current time by tokio's clock, which a test can pause. All endpoints take it from here.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The state that the handle and the driver task share, and the notifications between them.
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
    /// The link is closed. Apart from `changed`, because the driver task always waits for this one: each
    /// wake that changes nothing for it costs as much as a small message.
    closed: Notify,
    /// A condition that [`until`](Self::until) waits for may hold now.
    changed: Notify,
}

/// Which tasks a change of the state may wake.
#[derive(Clone, Copy)]
pub(crate) struct Wakes {
    /// The write loop. It must not wake itself: a failed message that keeps its place in the queue would
    /// make it spin.
    pub(crate) writer: bool,
    /// The task that takes the events, unless the caller takes them next.
    pub(crate) events: bool,
}

pub(crate) struct State {
    pub(crate) link: Link,
    /// Receipts of complete messages that the application has not settled yet.
    pub(crate) receipts: Receipts,
    /// The read loop's waker, while it waits for the application to take messages.
    reader: Option<Waker>,
    /// The link gave out a frame that the transport has not finished sending.
    pub(crate) sending: bool,
    pub(crate) ping_due: bool,
    /// When something last came in.
    pub(crate) last_received: Instant,
    /// When the last ping was sent.
    pub(crate) last_ping: Instant,
    /// The deadline that the timer loop sleeps until.
    pub(crate) timer_set_for: Option<Instant>,
    pub(crate) by_peer: bool,
    /// A frame was being sent when the transport failed or the grace period ended: why.
    pub(crate) broke_off: Option<String>,
    /// The size of the largest frame that was made.
    largest_frame: usize,
    pub(crate) ended: bool,
}

impl State {
    pub(crate) fn is_closed(&self) -> bool {
        self.link.closed().is_some()
    }

    fn is_drained(&self) -> bool {
        self.is_closed() || (self.link.is_idle() && !self.sending)
    }

    /// Whether the read loop waits for the application, so that receiving nothing is not the peer's
    /// fault.
    pub(crate) fn is_paused(&self) -> bool {
        self.reader.is_some()
    }
}

/// The parts of the state that tasks may wait for, as they were before a change.
struct Before {
    /// Messages in the queue, and their bytes.
    queued: (usize, usize),
    event: bool,
    closed: bool,
    drained: bool,
    ended: bool,
}

impl Before {
    fn of(state: &State) -> Self {
        Self {
            queued: (state.link.queued(), state.link.queued_bytes()),
            event: state.link.has_event(),
            closed: state.is_closed(),
            drained: state.is_drained(),
            ended: state.ended,
        }
    }
}

/// What the writer does next.
pub(crate) enum Next {
    /// A frame to send.
    Frame(NextFrame),
    Ping,
    Close(Closed),
    Wait,
}

/// A frame that is made and not sent.
pub(crate) struct NextFrame {
    pub(crate) frame: Frame,
    /// Its id, if the link wants a confirmation that it was sent.
    pub(crate) id: Option<FrameId>,
    /// Its charge. The link no longer holds the message whose last frame this is, and a peer that does not
    /// read may leave it here for long.
    pub(crate) charge: Option<Held>,
    /// Whether another frame is likely to follow.
    pub(crate) more: bool,
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
                last_received: now(),
                last_ping: now(),
                timer_set_for: None,
                by_peer: false,
                broke_off: None,
                largest_frame: 0,
                ended: false,
            }),
            outbound: Notify::new(),
            deadline: Notify::new(),
            events: Notify::new(),
            room: Notify::new(),
            closed: Notify::new(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Link) -> R) -> R {
        self.update(|state| work(&mut state.link))
    }

    /// Changes the state, and wakes the tasks that wait for what changed.
    pub(crate) fn update<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        let all = Wakes {
            writer: true,
            events: true,
        };
        self.change(all, work)
    }

    /// Like [`update`](Self::update), but wakes only these tasks.
    pub(crate) fn change<R>(&self, wakes: Wakes, work: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let before = Before::of(&state);
        let result = work(&mut state);
        let closed = state.is_closed();
        let reader = if closed || state.link.wants_frame() {
            state.reader.take()
        } else {
            None
        };
        let sooner = match (state.link.poll_timeout(), state.timer_set_for) {
            (Some((at, _)), Some(set_for)) => at < set_for,
            (Some(_), None) => true,
            (None, _) => false,
        };
        let outbound = closed || state.ping_due || !state.link.is_idle();
        // The other tasks are woken when their condition becomes true, and not for as long as it holds: even
        // a notification that wakes nobody costs a part of what a small message does.
        let closes = closed && !before.closed;
        let events = state.link.has_event() && !before.event;
        let room = closes
            || state.link.queued_bytes() < before.queued.1
            || state.link.queued() < before.queued.0;
        let changed =
            closes || state.ended && !before.ended || state.is_drained() && !before.drained;
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        // The task that takes the events also waits for the end of the connection.
        if events && wakes.events || closes {
            self.events.notify_one();
        }
        if outbound && wakes.writer {
            self.outbound.notify_one();
        }
        if sooner || closed {
            self.deadline.notify_one();
        }
        if room {
            self.room.notify_waiters();
        }
        if closes {
            self.closed.notify_waiters();
        }
        if changed {
            self.changed.notify_waiters();
        }
        result
    }

    /// Waits until the link wants a frame; returns false once it is closed.
    pub(crate) async fn readable(&self) -> bool {
        poll_fn(|context| {
            let mut state = self.lock();
            if state.is_closed() {
                return Poll::Ready(false);
            }
            if !state.link.wants_frame() {
                // Registers before checking again, so that a message dropped in between is not missed.
                state.link.wake_when_dropped(context.waker());
                state.reader = Some(context.waker().clone());
            }
            if state.link.wants_frame() {
                if state.reader.take().is_some() {
                    // This side did not read: the pause must not count as the peer's silence.
                    state.last_received = now();
                }
                return Poll::Ready(true);
            }
            Poll::Pending
        })
        .await
    }

    /// What the write loop does next. Frames are made only here, when the transport can take one.
    /// `holds` says that the sink has buffered frames that are not flushed yet.
    pub(crate) fn next(self: &Arc<Self>, holds: bool, wake_events: bool) -> Next {
        let (mut buffer, mut jobs) = (Vec::new(), Vec::new());
        let wakes = Wakes {
            writer: false,
            events: wake_events,
        };
        let next = self.change(wakes, |state| {
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
                    state.largest_frame = state.largest_frame.max(buffer.len());
                    let budget = state.link.shared_budget();
                    let charge = (buffer.len() > UNCHARGED)
                        .then(|| budget.charge_allocated(buffer.capacity()));
                    let bytes = std::mem::take(&mut buffer).into();
                    let id = state.link.confirms().then_some(transmit.frame);
                    let frame = match transmit.carries {
                        Carries::Text => Frame::Text(bytes),
                        Carries::Binary => Frame::Binary(bytes),
                    };
                    let more = !state.link.is_idle();
                    Next::Frame(NextFrame {
                        frame,
                        id,
                        charge,
                        more,
                    })
                }
            }
        });
        self.plan_on_pool(jobs);
        next
    }

    /// Tells the link that the transport has sent these frames.
    pub(crate) fn confirm_sent(&self, frames: &mut Vec<FrameId>) {
        if frames.is_empty() {
            return;
        }
        self.update(|state| {
            for frame in frames.drain(..) {
                state.link.handle_sent(now(), frame, Sent::Ok);
            }
        });
    }

    /// Plans large messages on the blocking thread pool.
    fn plan_on_pool(self: &Arc<Self>, jobs: Vec<PlanJob>) {
        for job in jobs {
            let shared = self.clone();
            tokio::task::spawn_blocking(move || {
                let planned = job.run();
                shared.with(|link| link.handle_planned(planned));
            });
        }
    }

    /// Waits until the link is closed.
    pub(crate) async fn until_closed(&self) {
        wait(&self.closed, || self.lock().is_closed()).await;
    }

    /// The next event, if the driver task itself handles the events. Taking it wakes neither the write loop,
    /// which then has nothing to do, nor a task that takes events, since there is none.
    pub(crate) fn take_event(&self) -> Option<Event> {
        let wakes = Wakes {
            writer: false,
            events: false,
        };
        self.change(wakes, |state| state.link.poll_event())
    }

    /// Waits until there may be an event; false once the link is closed and has none.
    pub(crate) async fn has_event(&self) -> bool {
        {
            let state = self.lock();
            if state.is_closed() && !state.link.has_event() {
                return false;
            }
        }
        self.events.notified().await;
        true
    }

    /// Waits until the condition holds.
    pub(crate) async fn until(&self, holds: impl Fn(&State) -> bool) {
        wait(&self.changed, || holds(&self.lock())).await;
    }
}

async fn wait(told: &Notify, holds: impl Fn() -> bool) {
    loop {
        let told = told.notified();
        tokio::pin!(told);
        // Registers before the check, so that a change in between is not missed.
        told.as_mut().enable();
        if holds() {
            return;
        }
        told.await;
    }
}

struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.with(|link| link.close(1000, ""));
    }
}
