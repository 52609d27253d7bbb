//! [`Link`], the state machine of one connection. Sending is in `send`, receiving in `receive`.

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
use crate::{Closed, Fault, FaultKind, Key, SendError};

/// The longest reason that fits in a WebSocket close frame.
const REASON_MAX: usize = 123;

/// The state of one connection. Its caller passes in frames and the time, and takes out frames and
/// events.
pub struct Link {
    send: Arc<dyn Wire>,
    receive: Arc<dyn Wire>,
    /// What the sending wire's frames are.
    sends: Carries,
    config: Config,
    budget: LinkBudget,
    peer: PeerSupport,
    cap: Cap,
    /// Counts changes of `peer` and `cap`: a plan that was made before the last change is made again.
    generation: u64,
    inbox: Inbox,
    outbox: Outbox,
    jobs: VecDeque<TransferId>,
    timers: Timers,
    events: Events,
    random: Random,
    closed: Option<Closed>,
    /// How many transfers of the peer were unfinished when the link was closed.
    cut_off: usize,
    next_frame: u64,
    next_message: u64,
    was_full: bool,
    /// The last frame accepted or aborted a transfer of the peer: a lane's frame is next.
    replied: bool,
}

/// What a link did with a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// It completed this message.
    Done(MessageId),
    /// It was stored; its message is not complete yet.
    Pending,
    /// It changed nothing: it was discarded, or a duplicate.
    Ignored,
    /// It changed nothing: it belongs to no open transfer.
    Unmatched(Unmatched),
    /// It was faulty; the rules say what that ended.
    Fault(Fault),
}

/// A frame that belongs to no open transfer: it came after the end of its transfer, or before the
/// frame that opens it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmatched {
    /// The transfer that it names.
    pub key: Key,
    /// If the frame is an abort, the peer's reason.
    pub abort: Option<String>,
    /// If this side has ended the transfer before it was complete, why.
    pub ended: Option<FaultKind>,
}

/// The transport's report on a frame that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It was delivered.
    Ok,
    /// It was refused because of its size.
    TooLarge,
    /// It was lost.
    Failed,
}

/// The result of cancelling a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// No frame of it had been sent.
    Unsent,
    /// It was partly sent, and stopped.
    Stopped,
    /// It was sent completely, or cannot be stopped any more.
    TooLate,
}

/// The progress of a transfer of the peer.
#[derive(Clone, Copy, Debug)]
pub struct Unfinished<'a> {
    /// The transfer.
    pub key: &'a Key,
    /// Pieces received.
    pub pieces: u64,
    /// Pieces in total.
    pub count: u64,
    /// Bytes received.
    pub bytes: usize,
    /// Bytes in total, if declared.
    pub declared: Option<u64>,
}

/// The progress of a message of this side that is being sent in pieces.
#[derive(Clone, Copy, Debug)]
pub struct UnderWay<'a> {
    /// Its transfer.
    pub key: &'a Key,
    /// Bytes given to the transport.
    pub bytes: usize,
    /// Bytes in total.
    pub total: usize,
}

/// The planning of one large message, to be run on a thread that may block.
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

/// The result of a [`PlanJob`].
#[derive(Debug)]
pub struct Planned {
    id: TransferId,
    generation: u64,
    plan: Result<Plan, SendError>,
}

impl PlanJob {
    /// Plans the message.
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
    /// A link that sends and receives with these wires. All its randomness comes from `seed`.
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
            sends: send.carries(),
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
            cut_off: 0,
            next_frame: 0,
            next_message: 0,
            was_full: false,
            replied: false,
        }
    }

    /// Sets what the peer supports. It applies to messages of which no frame was sent yet.
    pub fn set_peer(&mut self, support: PeerSupport) {
        self.peer = support;
        self.generation += 1;
        self.outbox.one_frame = self.one_frame();
        self.outbox.wake_waiting();
    }

    /// Sets the cap of the path, or that of a [`Preset`](crate::Preset). It applies to messages of which
    /// no frame was sent yet.
    pub fn set_cap(&mut self, cap: impl Into<Cap>) {
        self.cap = cap.into();
        self.generation += 1;
        self.outbox.one_frame = self.one_frame();
    }

    /// A message longer than this does not fit in one frame.
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

    /// Whether the transport must report each sent frame by [`handle_sent`](Self::handle_sent).
    pub fn confirms(&self) -> bool {
        self.config.confirm.is_some()
    }

    /// The largest frame that is accepted, in bytes.
    pub fn frame_limit(&self) -> usize {
        self.config.limits.frame
    }

    /// Sets whether pieces are accepted, for formats that negotiate it.
    pub fn set_receives_pieces(&mut self, receives: bool) {
        self.config.receives_pieces = receives;
    }

    /// Closes the link: nothing is sent or received any more, and everything queued is dropped.
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
        self.cut_off = self.inbox.len();
        self.inbox.clear();
        self.outbox.clear();
        self.jobs.clear();
        self.timers.clear();
        self.closed = Some(closed.clone());
        self.events.push(Event::Closed(closed));
    }

    /// Why the link is closed; `None` while it is open.
    pub fn closed(&self) -> Option<&Closed> {
        self.closed.as_ref()
    }

    /// The next event; call it until it returns `None` after every other call.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Whether [`poll_event`](Self::poll_event) has an event.
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and why.
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.timers.next()
    }

    /// Handles all timers that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Incoming(serial) => self.expire(now, serial),
                Timer::Accept(id) => self.not_accepted(now, id),
                Timer::Outgoing(id) => self.too_slow(now, id),
            }
        }
    }

    /// Whether the link accepts a frame. False while the application has too many complete messages
    /// to take or drop: the transport should stop reading.
    pub fn wants_frame(&self) -> bool {
        let (finished, limits) = (self.budget.finished(), &self.config.limits);
        // There must be room for one more message, unless no message is held.
        let another = limits.message.saturating_add(MESSAGE_CHARGE);
        let room = finished == 0 || finished.saturating_add(another) <= limits.memory;
        self.closed.is_none()
            && room
            && self.events.messages() < limits.undelivered
            && !self.events.is_flooded()
    }

    /// Wakes the waker once, when the application drops a message: that may make
    /// [`wants_frame`](Self::wants_frame) true without a call on the link.
    pub fn wake_when_dropped(&self, waker: &std::task::Waker) {
        self.budget.wake_when_dropped(waker);
    }

    /// How many transfers of the peer are unfinished.
    pub fn open_transfers(&self) -> usize {
        self.inbox.len()
    }

    /// How many transfers of the peer were unfinished when the link was closed: none of them became a
    /// message.
    pub fn cut_off(&self) -> usize {
        self.cut_off
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

    /// This side's messages that are being sent in pieces, one by one, oldest first.
    pub fn under_way(&self) -> impl Iterator<Item = UnderWay<'_>> {
        self.outbox.under_way().filter_map(|out| {
            let (key, bytes) = out.under_way()?;
            let total = out.message.bytes.len();
            Some(UnderWay { key, bytes, total })
        })
    }

    /// Received bytes of the peer's unfinished transfers.
    pub fn pending_bytes(&self) -> usize {
        self.inbox.pending_bytes()
    }

    /// How many keys are in the set of discarded ones.
    pub fn discarded(&self) -> usize {
        self.inbox.discarded()
    }

    /// The memory that is charged to this link: unfinished transfers, and messages that the
    /// application has not dropped yet.
    pub fn memory(&self) -> usize {
        self.budget.used()
    }

    /// The budget that this link shares with others, for what its transport holds.
    pub fn shared_budget(&self) -> &Budget {
        self.budget.process()
    }

    /// How many reports were dropped because too many were queued.
    pub fn unreported(&self) -> u64 {
        self.events.unreported()
    }

    /// Whether there is nothing left to send: no message, no accept or abort, no control message.
    pub fn is_idle(&self) -> bool {
        let outbox = &self.outbox;
        outbox.messages.is_empty() && outbox.replies.is_empty() && outbox.controls.is_empty()
    }

    /// Whether a frame that accepts or aborts a transfer is still to be sent.
    pub fn has_replies(&self) -> bool {
        !self.outbox.replies.is_empty()
    }

    /// The number of messages that are not completely sent yet.
    pub fn queued(&self) -> usize {
        self.outbox.messages.len()
    }

    /// The number of frames that were made: while messages are queued it grows as the transport takes them.
    pub fn frames_made(&self) -> u64 {
        self.next_frame
    }

    /// The size of all messages that are not completely sent yet.
    pub fn queued_bytes(&self) -> usize {
        self.outbox.bytes
    }
}
