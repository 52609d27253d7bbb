//! The state machine. What goes out is in `send`, what comes in is in `receive`.

mod receive;
mod send;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::budget::{Budget, LinkBudget, MESSAGE_CHARGE};
use crate::cap::Cap;
use crate::event::{Event, Events};
use crate::frame::{Carries, MessageId, TransferId};
use crate::inbox::Inbox;
use crate::outbox::Outbox;
use crate::random::Random;
use crate::rules::Config;
use crate::timers::{Timer, Timers};
use crate::wire::{PeerSupport, Plan, PlanOptions, Wire};
use crate::{Closed, Fault, Key, SendError};

/// A close reason holds so many bytes on a WebSocket.
const REASON_MAX: usize = 123;

/// One connection. Feed it frames and the time, take from it frames and events.
pub struct Link {
    send: Arc<dyn Wire>,
    receive: Arc<dyn Wire>,
    config: Config,
    budget: LinkBudget,
    peer: PeerSupport,
    cap: Cap,
    /// Counts changes of peer and cap: a plan made elsewhere for an older one is made again.
    generation: u64,
    inbox: Inbox,
    outbox: Outbox,
    jobs: VecDeque<TransferId>,
    timers: Timers,
    events: Events,
    random: Random,
    closed: Option<Closed>,
    next_frame: u64,
    next_message: u64,
    was_full: bool,
    /// The last frame was an answer: a lane is next.
    replied: bool,
}

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// It completed this message.
    Done(MessageId),
    /// It is kept, and there is more to come.
    Pending,
    /// It changed nothing: late, discarded, or the same again.
    Ignored,
    /// It was wrong; the rules say what that ended.
    Fault(Fault),
}

/// What became of a frame of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is through.
    Ok,
    /// It was refused for its size.
    TooLarge,
    /// It is lost.
    Failed,
}

/// What cancelling came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// No frame of it had gone out.
    Unsent,
    /// It was under way and stopped.
    Stopped,
    /// It is out, or cannot be stopped any more.
    TooLate,
}

/// How far a transfer of the peer's has come.
#[derive(Clone, Copy, Debug)]
pub struct Unfinished<'a> {
    /// The transfer.
    pub key: &'a Key,
    /// Pieces that are here.
    pub pieces: u64,
    /// Pieces in all.
    pub count: u64,
    /// Bytes that are here.
    pub bytes: usize,
    /// Bytes in all, where they were declared.
    pub declared: Option<u64>,
}

/// The planning of one large message, to be run wherever it blocks nobody.
#[derive(Debug)]
pub struct PlanJob {
    id: TransferId,
    generation: u64,
    wire: Arc<dyn Wire>,
    message: bytes::Bytes,
    key: Option<Key>,
    may_cut: bool,
    known_text: bool,
    peer: PeerSupport,
    cap: Cap,
}

/// The outcome of a [`PlanJob`].
#[derive(Debug)]
pub struct Planned {
    id: TransferId,
    generation: u64,
    plan: Result<Plan, SendError>,
}

impl PlanJob {
    /// Does the work.
    pub fn run(self) -> Planned {
        let options = PlanOptions {
            key: self.key.as_ref(),
            may_cut: self.may_cut,
            known_text: self.known_text,
            peer: &self.peer,
            cap: &self.cap,
        };
        Planned {
            id: self.id,
            generation: self.generation,
            plan: self.wire.plan(&self.message, &options),
        }
    }
}

impl Link {
    /// A link that sends and receives by these wires. All its randomness comes from `seed`.
    pub fn new(
        send: Arc<dyn Wire>,
        receive: Arc<dyn Wire>,
        config: Config,
        budget: Budget,
        seed: [u8; 32],
    ) -> Self {
        let mut outbox = Outbox::new();
        outbox.small_first = config.small_first;
        Self {
            send,
            receive,
            budget: LinkBudget::new(config.limits.memory, budget),
            config,
            peer: PeerSupport::Unknown,
            cap: Cap::frame(usize::MAX),
            generation: 0,
            inbox: Inbox::default(),
            outbox,
            jobs: VecDeque::new(),
            timers: Timers::default(),
            events: Events::default(),
            random: Random::new(seed),
            closed: None,
            next_frame: 0,
            next_message: 0,
            was_full: false,
            replied: false,
        }
    }

    /// What the peer said it can take. It counts for all that is not under way yet.
    pub fn set_peer(&mut self, support: PeerSupport) {
        self.peer = support;
        self.generation += 1;
        self.outbox.one_frame = self.one_frame();
        self.outbox.wake_waiting();
    }

    /// What the transport lets through. It counts for all that is not under way yet.
    pub fn set_cap(&mut self, cap: Cap) {
        self.cap = cap;
        self.generation += 1;
        self.outbox.one_frame = self.one_frame();
    }

    /// No message longer than this fits one frame.
    fn one_frame(&self) -> usize {
        match &self.peer {
            PeerSupport::Yes(limits) => self.cap.max.min(limits.frame),
            PeerSupport::Unknown | PeerSupport::No => self.cap.max,
        }
    }

    /// The names of both wires, the sending one first, and the kind of frames that each needs.
    pub fn wires(&self) -> [(&'static str, Carries); 2] {
        [&self.send, &self.receive].map(|wire| (wire.name(), wire.carries()))
    }

    /// Whether the transport's word on each frame is wanted ([`handle_sent`](Self::handle_sent)).
    pub fn confirms(&self) -> bool {
        self.config.confirm.is_some()
    }

    /// Bytes of the largest frame that is taken.
    pub fn frame_limit(&self) -> usize {
        self.config.limits.frame
    }

    /// Whether the peer's pieces are taken: once a negotiation says so.
    pub fn set_receives_pieces(&mut self, receives: bool) {
        self.config.receives_pieces = receives;
    }

    /// Ends the link: nothing goes out or comes in any more, and all that was queued is dropped.
    pub fn close(&mut self, code: u16, reason: &str) {
        if self.closed.is_some() {
            return;
        }
        let mut end = reason.len().min(REASON_MAX);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        let closed = Closed {
            code,
            reason: reason[..end].to_owned(),
        };
        self.inbox.clear();
        self.outbox.clear();
        self.jobs.clear();
        self.timers.clear();
        self.closed = Some(closed.clone());
        self.events.push(Event::Closed(closed));
    }

    /// Why the link is closed, once it is.
    pub fn closed(&self) -> Option<&Closed> {
        self.closed.as_ref()
    }

    /// What happened; take all of it after every other call.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Whether [`poll_event`](Self::poll_event) has something to tell.
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and why.
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.timers.next()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Incoming(serial) => self.expire(now, serial),
                Timer::Accept(id) => self.not_accepted(now, id),
                Timer::Outgoing(id) => self.too_slow(now, id),
            }
        }
    }

    /// False while the application has not taken what is done: the transport should stop reading.
    pub fn wants_frame(&self) -> bool {
        let (finished, limits) = (self.budget.finished(), &self.config.limits);
        // Room for one more message, where there is any message to wait for.
        let another = limits.message.saturating_add(MESSAGE_CHARGE);
        let room = finished == 0 || finished.saturating_add(another) <= limits.memory;
        self.closed.is_none()
            && room
            && self.events.messages() < limits.undelivered
            && !self.events.is_flooded()
    }

    /// Wakes this one when the application drops a message, once: that may make
    /// [`wants_frame`](Self::wants_frame) true without a call on the link.
    pub fn wake_when_dropped(&self, waker: &std::task::Waker) {
        self.budget.wake_when_dropped(waker);
    }

    /// The peer's unfinished transfers.
    pub fn open_transfers(&self) -> usize {
        self.inbox.len()
    }

    /// The peer's unfinished transfers one by one, oldest first.
    pub fn unfinished(&self) -> impl Iterator<Item = Unfinished<'_>> {
        self.inbox.iter().map(|assembly| Unfinished {
            key: &assembly.key,
            pieces: assembly.pieces(),
            count: assembly.count(),
            bytes: assembly.received(),
            declared: assembly.declared(),
        })
    }

    /// Received bytes of the peer's unfinished transfers.
    pub fn pending_bytes(&self) -> usize {
        self.inbox.pending_bytes()
    }

    /// Keys whose late frames are dropped.
    pub fn discarded(&self) -> usize {
        self.inbox.discarded()
    }

    /// Memory that is charged to this link: unfinished transfers, and messages that nobody dropped yet.
    pub fn memory(&self) -> usize {
        self.budget.used()
    }

    /// Faults that came too fast to be told one by one.
    pub fn unreported(&self) -> u64 {
        self.events.unreported()
    }

    /// Whether there is nothing left to send: no message, no answer to the peer, no control word.
    pub fn is_idle(&self) -> bool {
        let outbox = &self.outbox;
        outbox.messages.is_empty() && outbox.replies.is_empty() && outbox.controls.is_empty()
    }

    /// Whether an answer to the peer, or the end of a transfer of ours, is still to be said.
    pub fn has_replies(&self) -> bool {
        !self.outbox.replies.is_empty()
    }

    /// Bytes of messages that are not fully out yet.
    pub fn queued_bytes(&self) -> usize {
        self.outbox.bytes
    }
}
