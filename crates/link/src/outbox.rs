//! Outgoing messages: the lanes, which lane is next, and the state of each message.
//!
//! A lane is a queue of messages. A lane whose next message has not begun and may fit in one frame
//! is *fresh*. After each frame of a bulk transfer, all lanes that are fresh at that moment are
//! served: so a small message waits for at most one frame of a bulk transfer, however many there
//! are, and no flood of small messages starves the bulk transfers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::budget::Charge;
use crate::frame::{FrameId, FrameKind, Lane, TransferId};
use crate::message_table::MessageTable;
use crate::timers::TimerKey;
use crate::wire::{Announce, Part, Pieces, Plan, Wire};
use crate::{Cap, Key, SendError};

/// A message to send.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The content.
    pub bytes: Bytes,
    /// Its lane.
    pub lane: Lane,
    /// The key of its transfer, for formats in which the caller chooses it.
    pub key: Option<Key>,
    /// A number of the caller's choice, returned with each of its frames and events.
    pub tag: u64,
    /// False for a message that must be sent in one frame.
    pub may_cut: bool,
    /// Whether it is known to be UTF-8, so that planning need not check.
    pub known_text: bool,
    /// Frames of this message stay below this size, if it is smaller than the cap's own value.
    pub cut_above: Option<usize>,
    /// For a message that is relayed: its charge on the link that it came in by, held until it is sent.
    pub charge: Option<Arc<Charge>>,
}

impl Outgoing {
    /// A message in the ordered lane.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self {
            bytes: bytes.into(),
            lane: Lane::ORDERED,
            key: None,
            tag: 0,
            may_cut: true,
            known_text: false,
            cut_above: None,
            charge: None,
        }
    }

    /// A text in the ordered lane.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(text.into()).known_text()
    }

    /// The cap that applies to this message.
    #[inline]
    pub(crate) fn cap(&self, cap: &Cap) -> Cap {
        let soft = match (self.cut_above, cap.cut_above) {
            (Some(own), Some(general)) => Some(own.min(general)),
            (own, general) => own.or(general),
        };
        Cap {
            cut_above: soft,
            ..*cap
        }
    }

    /// Sets the lane.
    pub fn in_lane(mut self, lane: Lane) -> Self {
        self.lane = lane;
        self
    }

    /// Sets the key.
    pub fn with_key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// Sets the tag.
    pub fn tagged(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// Declares that the message is UTF-8, because it was checked before or made of text.
    pub fn known_text(mut self) -> Self {
        self.known_text = true;
        self
    }

    /// Requires the message to be sent in one frame.
    pub fn uncut(mut self) -> Self {
        self.may_cut = false;
        self
    }
}

/// A message in the outbox.
pub(crate) struct Entry {
    pub(crate) message: Outgoing,
    pub(crate) state: State,
    pub(crate) begun: Option<Instant>,
    pub(crate) last: Option<Instant>,
    pub(crate) timer: Option<TimerKey>,
    /// How many bytes were sent when progress was last reported.
    pub(crate) reported: usize,
}

impl Entry {
    pub(crate) fn new(message: Outgoing) -> Self {
        Self {
            message,
            state: State::Queued,
            begun: None,
            last: None,
            timer: None,
            reported: 0,
        }
    }

    /// Puts another message here, after [`clear`](Self::clear).
    pub(crate) fn set(&mut self, message: Outgoing) {
        debug_assert!(matches!(self.state, State::Queued));
        self.message = message;
        (self.begun, self.last, self.timer, self.reported) = (None, None, None, 0);
    }

    /// Releases the memory and the charge of the message.
    pub(crate) fn clear(&mut self) {
        self.message.bytes = Bytes::new();
        (self.message.key, self.message.charge) = (None, None);
        // Mostly the state is `Queued` already: assigning it again would run the drop code of every field.
        if !matches!(self.state, State::Queued) {
            self.state = State::Queued;
        }
    }

    /// How many frames of it were made.
    pub(crate) fn frames_made(&self) -> u64 {
        match &self.state {
            State::Sending(sending) => sending.made,
            State::Queued | State::Planning | State::Failed => 0,
        }
    }

    /// The key and the bytes sent of a message that is being sent in pieces.
    pub(crate) fn under_way(&self) -> Option<(&Key, usize)> {
        match &self.state {
            State::Sending(sending) if self.begun.is_some() => {
                Some((&sending.pieces()?.key, sending.offset))
            }
            _ => None,
        }
    }
}

pub(crate) enum State {
    /// Not planned yet: it is planned when its turn comes.
    Queued,
    /// Being planned on another thread.
    Planning,
    /// It failed, and keeps its place in the lane.
    Failed,
    /// Planned; its frames are being sent.
    Sending(Sending),
}

pub(crate) struct Sending {
    pub(crate) plan: Plan,
    pub(crate) cursor: Cursor,
    pub(crate) offset: usize,
    /// How many frames were made, and the number of the next one.
    pub(crate) made: u64,
    /// The numbers of sent frames that the transport has not confirmed.
    pub(crate) unconfirmed: BTreeSet<u64>,
    /// Whether it counts as one of the peer's open transfers.
    pub(crate) counted: bool,
    /// The generation of the peer's support and the cap that it was planned for.
    pub(crate) generation: u64,
}

/// Which frame is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cursor {
    Whole,
    Open,
    AwaitAccept,
    Piece(u64),
    Close,
    /// All frames were sent; the transport has not confirmed all of them.
    Settling,
}

impl Sending {
    pub(crate) fn new(plan: Plan, generation: u64) -> Self {
        let cursor = match &plan {
            Plan::Whole => Cursor::Whole,
            Plan::Pieces(pieces) if pieces.opening == Announce::Not => Cursor::Piece(0),
            Plan::Pieces(_) => Cursor::Open,
        };
        Self {
            plan,
            cursor,
            offset: 0,
            made: 0,
            unconfirmed: BTreeSet::new(),
            counted: false,
            generation,
        }
    }

    /// Whether the next frame may be sent, given what the transport has confirmed.
    pub(crate) fn may_send(&self, confirm: Option<u32>) -> bool {
        match (self.cursor, confirm) {
            (Cursor::AwaitAccept | Cursor::Settling, _) => false,
            (_, None) => true,
            // The opening and the first piece must be confirmed before others follow, and all pieces
            // before the closing frame.
            (Cursor::Piece(0 | 1) | Cursor::Close, Some(_)) => self.unconfirmed.is_empty(),
            // The distance to the oldest unconfirmed frame counts, not their number: the receiver may
            // be missing that one, and has a window of this size.
            (_, Some(window)) => self
                .unconfirmed
                .first()
                .is_none_or(|oldest| self.made - oldest < u64::from(window.max(1))),
        }
    }

    /// Writes the next frame and advances the cursor.
    pub(crate) fn write(
        &mut self,
        wire: &dyn Wire,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> FrameKind {
        let Plan::Pieces(pieces) = &self.plan else {
            wire.write(Part::Whole(message), out);
            self.cursor = Cursor::Settling;
            self.offset = message.len();
            return FrameKind::Whole;
        };
        match self.cursor {
            Cursor::Open => {
                wire.write(Part::Open(pieces), out);
                self.cursor = match pieces.opening {
                    Announce::Wait => Cursor::AwaitAccept,
                    _ => next_cursor(pieces, None),
                };
                FrameKind::Open
            }
            Cursor::Piece(index) => {
                let end = wire.cut(pieces, message, self.offset);
                wire.write(
                    Part::Piece {
                        pieces,
                        index,
                        data: &message[self.offset..end],
                    },
                    out,
                );
                self.offset = end;
                self.cursor = next_cursor(pieces, Some(index));
                FrameKind::Piece
            }
            Cursor::Whole | Cursor::AwaitAccept | Cursor::Close | Cursor::Settling => {
                wire.write(Part::Close(pieces), out);
                self.cursor = Cursor::Settling;
                FrameKind::Close
            }
        }
    }

    /// Handles the peer's accept; returns false if none was waited for.
    pub(crate) fn accept(&mut self) -> bool {
        if let (Cursor::AwaitAccept, Plan::Pieces(pieces)) = (self.cursor, &self.plan) {
            self.cursor = next_cursor(pieces, None);
            return true;
        }
        false
    }

    pub(crate) fn pieces(&self) -> Option<&Pieces> {
        match &self.plan {
            Plan::Pieces(pieces) => Some(pieces),
            Plan::Whole => None,
        }
    }

    /// A sequence number above all that this transfer has used, for an abort.
    pub(crate) fn unused_seq(&self) -> u64 {
        self.pieces().map_or(1, |pieces| match self.cursor {
            Cursor::Piece(index) => pieces.first + index,
            _ => pieces.first + pieces.count + 1,
        })
    }
}

/// What follows piece `index`, or the opening frame (`None`).
fn next_cursor(pieces: &Pieces, index: Option<u64>) -> Cursor {
    let next = index.map_or(0, |index| index + 1);
    if next < pieces.count {
        Cursor::Piece(next)
    } else if pieces.closing {
        Cursor::Close
    } else {
        Cursor::Settling
    }
}

/// A queued frame that accepts or aborts a transfer.
pub(crate) struct Reply {
    pub(crate) kind: FrameKind,
    pub(crate) key: Key,
    pub(crate) seq: u64,
    pub(crate) reason: String,
    /// Charged, because a peer can cause many of them.
    pub(crate) _charge: Charge,
}

/// A sent frame that the transport has not confirmed.
pub(crate) struct Unconfirmed {
    pub(crate) message: TransferId,
    /// Its number among the frames of that message.
    pub(crate) number: u64,
    pub(crate) size: usize,
}

#[derive(Default)]
pub(crate) struct Outbox {
    pub(crate) messages: MessageTable,
    pub(crate) replies: VecDeque<Reply>,
    /// Control messages to send.
    pub(crate) controls: VecDeque<Bytes>,
    /// Frames that the transport has not confirmed, and the messages that they belong to.
    pub(crate) frames: BTreeMap<FrameId, Unconfirmed>,
    /// The message that must be finished first, if frames of several messages must not be mixed.
    pub(crate) burst: Option<TransferId>,
    /// How many transfers of this side the peer holds open.
    pub(crate) counted: usize,
    pub(crate) bytes: usize,
    lanes: BTreeMap<Lane, Queue>,
    fresh: VecDeque<Lane>,
    bulk: VecDeque<Lane>,
    /// How many fresh lanes are served before the next bulk lane.
    fresh_left: usize,
    /// A message longer than this cannot fit in one frame, and is bulk.
    pub(crate) one_frame: usize,
    /// Whether a message of one frame is sent before the first frame of a larger one.
    pub(crate) small_first: bool,
    /// Lanes whose next message waits until the peer may hold another transfer open.
    waiting_for_slot: BTreeSet<Lane>,
}

/// How many lanes are kept that have no messages, and the capacity of the queue of one.
const KEPT_LANES: usize = 8;
const KEPT_QUEUE: usize = 64;

/// The messages of a lane.
#[derive(Default)]
struct Queue {
    ids: VecDeque<TransferId>,
    /// Whether it is among the fresh or the bulk lanes.
    ready: bool,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self {
            one_frame: usize::MAX,
            small_first: true,
            ..Self::default()
        }
    }

    pub(crate) fn push(&mut self, message: Outgoing) -> TransferId {
        let (lane, size) = (message.lane, message.bytes.len());
        self.bytes += size;
        let id = self.messages.insert(message);
        let queue = self.lanes.entry(lane).or_default();
        queue.ids.push_back(id);
        if queue.ids.len() == 1 && !std::mem::replace(&mut queue.ready, true) {
            if self.small_first && size <= self.one_frame {
                self.fresh.push_back(lane);
            } else {
                self.bulk.push_back(lane);
            }
        }
        id
    }

    /// Takes the next ready lane and its first message.
    pub(crate) fn pick(&mut self) -> Option<(Lane, TransferId)> {
        loop {
            let lane = if self.bulk.is_empty() || self.fresh_left > 0 && !self.fresh.is_empty() {
                self.fresh_left = self.fresh_left.saturating_sub(1);
                self.fresh.pop_front()?
            } else {
                self.fresh_left = self.fresh.len();
                self.bulk.pop_front()?
            };
            let Some(queue) = self.lanes.get_mut(&lane) else {
                continue;
            };
            queue.ready = false;
            if let Some(&id) = queue.ids.front() {
                return Some((lane, id));
            }
            self.forget_if_empty(lane);
        }
    }

    /// Marks a lane as ready, after the others.
    pub(crate) fn wake(&mut self, lane: Lane) {
        let Some(queue) = self.lanes.get_mut(&lane) else {
            return;
        };
        let Some(&next) = queue.ids.front() else {
            return;
        };
        if std::mem::replace(&mut queue.ready, true) {
            return;
        }
        let one_frame =
            |out: &Entry| out.begun.is_none() && out.message.bytes.len() <= self.one_frame;
        let fresh = self.small_first && self.messages.get(next).is_some_and(one_frame);
        if fresh {
            &mut self.fresh
        } else {
            &mut self.bulk
        }
        .push_back(lane);
    }

    pub(crate) fn wait_for_slot(&mut self, lane: Lane) {
        self.waiting_for_slot.insert(lane);
    }

    /// Marks the lanes as ready that wait because the peer held too many transfers.
    pub(crate) fn wake_waiting(&mut self) {
        for lane in std::mem::take(&mut self.waiting_for_slot) {
            self.wake(lane);
        }
    }

    /// Releases what other messages wait for while this one is being sent, so that they may be sent.
    pub(crate) fn release(&mut self, id: TransferId) -> Option<&mut Entry> {
        if self.free(id) {
            self.wake_waiting();
        }
        self.messages.get_mut(id)
    }

    /// Removes the first message of a lane after it was sent in one frame: no other message waits for what it
    /// holds. Its lane continues with the next message.
    pub(crate) fn remove_sent(&mut self, lane: Lane, id: TransferId, size: usize) {
        self.bytes -= size;
        self.messages.remove(id);
        let Some(queue) = self.lanes.get_mut(&lane) else {
            return;
        };
        queue.ids.pop_front();
        if !queue.ids.is_empty() {
            self.wake(lane);
        } else if queue.ids.capacity() > KEPT_QUEUE || self.lanes.len() > KEPT_LANES {
            self.forget_if_empty(lane);
        }
    }

    /// Removes a message in any state; its lane continues with the next one. Returns its tag and its timer.
    pub(crate) fn remove(&mut self, id: TransferId) -> Option<(u64, Option<TimerKey>)> {
        let freed = self.free(id);
        let out = self.messages.get(id)?;
        let (lane, tag, timer) = (out.message.lane, out.message.tag, out.timer);
        self.bytes -= out.message.bytes.len();
        self.messages.remove(id);
        if let Some(queue) = self.lanes.get_mut(&lane) {
            if queue.ids.front() == Some(&id) {
                queue.ids.pop_front();
            } else {
                queue.ids.retain(|&other| other != id);
            }
            let (empty, large) = (queue.ids.is_empty(), queue.ids.capacity() > KEPT_QUEUE);
            if !empty {
                self.wake(lane);
            } else if large || self.lanes.len() > KEPT_LANES {
                self.forget_if_empty(lane);
            }
        }
        if freed {
            self.wake_waiting();
        }
        Some((tag, timer))
    }

    /// Removes a lane without messages, unless there are few; one that is ready is removed once it is picked.
    fn forget_if_empty(&mut self, lane: Lane) {
        let many = self.lanes.len() > KEPT_LANES;
        let unused = |queue: &Queue| {
            queue.ids.is_empty() && !queue.ready && (many || queue.ids.capacity() > KEPT_QUEUE)
        };
        if self.lanes.get(&lane).is_some_and(unused) {
            self.lanes.remove(&lane);
        }
    }

    /// Releases what other messages wait for while this one is being sent; returns true if the peer then
    /// holds one open transfer less.
    fn free(&mut self, id: TransferId) -> bool {
        if self.burst == Some(id) {
            self.burst = None;
        }
        let Some(out) = self.messages.get_mut(id) else {
            return false;
        };
        let State::Sending(sending) = &mut out.state else {
            return false;
        };
        if !sending.unconfirmed.is_empty() {
            self.frames.retain(|_, frame| frame.message != id);
        }
        let counted = std::mem::take(&mut sending.counted);
        self.counted -= usize::from(counted);
        counted
    }

    /// The message that is being sent with this key.
    pub(crate) fn by_key(&self, key: &Key) -> Option<TransferId> {
        // Only the first message of each lane can be, and there are few lanes.
        self.heads()
            .find(|&id| match self.messages.get(id).map(|out| &out.state) {
                Some(State::Sending(sending)) => {
                    sending.pieces().is_some_and(|pieces| pieces.key == *key)
                }
                _ => false,
            })
    }

    /// The first message of each lane.
    fn heads(&self) -> impl Iterator<Item = TransferId> {
        let queues = self.lanes.values();
        queues.filter_map(|queue| queue.ids.front().copied())
    }

    /// The messages that are being sent in pieces, oldest first.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = &Entry> {
        let mut heads: Vec<_> = self.heads().collect();
        heads.sort_unstable();
        heads.into_iter().filter_map(|id| self.messages.get(id))
    }

    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        *self = Self {
            messages: std::mem::take(&mut self.messages),
            one_frame: self.one_frame,
            ..Self::default()
        };
    }
}

/// A message that was not queued, and why.
#[derive(Debug)]
pub struct Rejected {
    /// Why.
    pub error: SendError,
    /// The message.
    pub message: Box<Outgoing>,
}

impl std::fmt::Display for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Rejected {}
