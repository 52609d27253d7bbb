//! Messages on their way out: lanes, whose turn it is, and one frame at a time.
//!
//! A lane holds messages in their order. A lane whose next message has not begun and may fit one
//! frame is *fresh*. After each frame of a bulk transfer all lanes that are fresh at that moment are
//! served: so a small message waits for one frame of a bulk transfer, however many there are, and
//! no flood of small messages starves the bulk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::budget::Charge;
use crate::frame::{FrameId, FrameKind, Lane, TransferId};
use crate::timers::TimerKey;
use crate::wire::{Announce, Part, Pieces, Plan, Wire};
use crate::{Cap, Key, SendError};

/// A message to be sent.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// What it says.
    pub bytes: Bytes,
    /// Its lane.
    pub lane: Lane,
    /// The transfer's name, where the format takes the caller's.
    pub key: Option<Key>,
    /// Comes back with each of its frames and its outcome.
    pub tag: u64,
    /// False for a message that must arrive in one frame.
    pub may_cut: bool,
    /// Whether it is known to be UTF-8, so that planning need not look.
    pub known_text: bool,
    /// Pieces of this message stay below this size, if it is smaller than what the cap says.
    pub cut_above: Option<usize>,
    /// What a message that is passed on was charged where it came in, until it is out.
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

    /// The cap that counts for it.
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

    /// The same in another lane.
    pub fn in_lane(mut self, lane: Lane) -> Self {
        self.lane = lane;
        self
    }

    /// The same with a key of the caller's.
    pub fn with_key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// The same with a tag.
    pub fn tagged(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// The same, known to be UTF-8: it was checked where it came in, or made of text.
    pub fn known_text(mut self) -> Self {
        self.known_text = true;
        self
    }

    /// The same, but it may not be cut.
    pub fn uncut(mut self) -> Self {
        self.may_cut = false;
        self
    }
}

pub(crate) struct Out {
    pub(crate) message: Outgoing,
    pub(crate) state: State,
    pub(crate) begun: Option<Instant>,
    pub(crate) last: Option<Instant>,
    pub(crate) timer: Option<TimerKey>,
    pub(crate) told: usize,
}

impl Out {
    pub(crate) fn new(message: Outgoing) -> Self {
        Self {
            message,
            state: State::Queued,
            begun: None,
            last: None,
            timer: None,
            told: 0,
        }
    }
}

#[expect(
    clippy::large_enum_variant,
    reason = "most messages are sent at once; a box would cost each an allocation"
)]
pub(crate) enum State {
    /// Not planned yet: that happens when its turn comes.
    Queued,
    /// Somebody else is planning it.
    Planning,
    /// It could not go out, and holds its place.
    Failed,
    /// Under way.
    Sending(Sending),
}

pub(crate) struct Sending {
    pub(crate) plan: Plan,
    pub(crate) cursor: Cursor,
    pub(crate) offset: usize,
    /// Frames that were made, and so the number of the next.
    pub(crate) made: u64,
    /// Frames that are out and of which the transport has not spoken, by their numbers.
    pub(crate) unconfirmed: BTreeSet<u64>,
    /// Whether it counts among the transfers that the peer holds open.
    pub(crate) counted: bool,
    /// For which peer and cap it was planned.
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
    /// All frames are out; the transport has not spoken of all of them.
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

    /// Whether the next frame may go out, given what the transport has confirmed.
    pub(crate) fn may_go(&self, confirm: Option<u32>) -> bool {
        match (self.cursor, confirm) {
            (Cursor::AwaitAccept | Cursor::Settling, _) => false,
            (_, None) => true,
            // The opening and the first piece must be through before others follow; all before the close.
            (Cursor::Piece(0 | 1) | Cursor::Close, Some(_)) => self.unconfirmed.is_empty(),
            // Not how many count but how far the next would be ahead: one that is slow may be missing
            // at the receiver, whose window that is.
            (_, Some(window)) => self
                .unconfirmed
                .first()
                .is_none_or(|oldest| self.made - oldest < u64::from(window.max(1))),
        }
    }

    /// Writes the next frame and moves on.
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
                    _ => after(pieces, None),
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
                self.cursor = after(pieces, Some(index));
                FrameKind::Piece
            }
            Cursor::Whole | Cursor::AwaitAccept | Cursor::Close | Cursor::Settling => {
                wire.write(Part::Close(pieces), out);
                self.cursor = Cursor::Settling;
                FrameKind::Close
            }
        }
    }

    /// The peer gave leave.
    pub(crate) fn accept(&mut self) -> bool {
        if let (Cursor::AwaitAccept, Plan::Pieces(pieces)) = (self.cursor, &self.plan) {
            self.cursor = after(pieces, None);
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

    /// A number above all that this transfer has used.
    pub(crate) fn beyond(&self) -> u64 {
        self.pieces().map_or(1, |pieces| match self.cursor {
            Cursor::Piece(index) => pieces.first + index,
            _ => pieces.first + pieces.count + 1,
        })
    }
}

fn after(pieces: &Pieces, index: Option<u64>) -> Cursor {
    let next = index.map_or(0, |index| index + 1);
    if next < pieces.count {
        Cursor::Piece(next)
    } else if pieces.closing {
        Cursor::Close
    } else {
        Cursor::Settling
    }
}

/// A frame that answers a transfer of the peer's, or ends one of ours.
pub(crate) struct Reply {
    pub(crate) kind: FrameKind,
    pub(crate) key: Key,
    pub(crate) seq: u64,
    pub(crate) reason: String,
    /// A peer can cause many of them.
    pub(crate) _charge: Charge,
}

/// A frame of which the transport has not spoken.
pub(crate) struct Unconfirmed {
    pub(crate) message: TransferId,
    /// Its number among the frames of that message.
    pub(crate) number: u64,
    pub(crate) size: usize,
}

#[derive(Default)]
pub(crate) struct Outbox {
    pub(crate) messages: BTreeMap<TransferId, Out>,
    pub(crate) replies: VecDeque<Reply>,
    /// Words of the transport's own that are still to be said.
    pub(crate) controls: VecDeque<Bytes>,
    /// Which message the transport's outcomes belong to.
    pub(crate) frames: BTreeMap<FrameId, Unconfirmed>,
    /// The message that must be finished before another begins, where frames may not be mixed.
    pub(crate) burst: Option<TransferId>,
    /// Transfers of ours that the peer holds open.
    pub(crate) counted: usize,
    pub(crate) bytes: usize,
    lanes: BTreeMap<Lane, VecDeque<TransferId>>,
    fresh: VecDeque<Lane>,
    bulk: VecDeque<Lane>,
    ready: BTreeSet<Lane>,
    /// Fresh lanes that are served before the bulk goes on.
    fresh_left: usize,
    /// What is longer than this is bulk, without a look at it.
    pub(crate) one_frame: usize,
    /// Whether a message of one frame goes before the first frame of a larger one.
    pub(crate) small_first: bool,
    /// Lanes whose next message waits until the peer holds one transfer less.
    waiting_for_slot: BTreeSet<Lane>,
    next_id: u64,
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
        self.next_id += 1;
        let id = TransferId(self.next_id);
        let lane = message.lane;
        self.bytes += message.bytes.len();
        self.messages.insert(id, Out::new(message));
        let queue = self.lanes.entry(lane).or_default();
        queue.push_back(id);
        if queue.len() == 1 {
            self.wake(lane);
        }
        id
    }

    /// The lane whose turn it is; it is no longer among the ready ones.
    pub(crate) fn pick(&mut self) -> Option<(Lane, TransferId)> {
        loop {
            let lane = if self.bulk.is_empty() || self.fresh_left > 0 && !self.fresh.is_empty() {
                self.fresh_left = self.fresh_left.saturating_sub(1);
                self.fresh.pop_front()?
            } else {
                self.fresh_left = self.fresh.len();
                self.bulk.pop_front()?
            };
            self.ready.remove(&lane);
            if let Some(&id) = self.lanes.get(&lane).and_then(VecDeque::front) {
                return Some((lane, id));
            }
        }
    }

    /// The lane may go on, after the others.
    pub(crate) fn wake(&mut self, lane: Lane) {
        let Some(next) = self.lanes.get(&lane).and_then(VecDeque::front) else {
            return;
        };
        if !self.ready.insert(lane) {
            return;
        }
        let one_frame =
            |out: &Out| out.begun.is_none() && out.message.bytes.len() <= self.one_frame;
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

    /// The peer holds one transfer less, or may hold more.
    pub(crate) fn wake_waiting(&mut self) {
        for lane in std::mem::take(&mut self.waiting_for_slot) {
            self.wake(lane);
        }
    }

    /// A message is no longer under way: others may go on in its stead.
    pub(crate) fn release(&mut self, id: TransferId) -> Option<&mut Out> {
        if self.free(id) {
            self.wake_waiting();
        }
        self.messages.get_mut(&id)
    }

    /// Takes a message out, whatever its state, and lets its lane go on.
    pub(crate) fn remove(&mut self, id: TransferId) -> Option<Out> {
        let freed = self.free(id);
        let out = self.messages.remove(&id)?;
        self.bytes -= out.message.bytes.len();
        let lane = out.message.lane;
        if let Some(queue) = self.lanes.get_mut(&lane) {
            if queue.front() == Some(&id) {
                queue.pop_front();
            } else {
                queue.retain(|&other| other != id);
            }
            if queue.is_empty() {
                self.lanes.remove(&lane);
            } else {
                self.wake(lane);
            }
        }
        if freed {
            self.wake_waiting();
        }
        Some(out)
    }

    /// Gives back what a message under way holds; true if the peer holds one transfer less now.
    fn free(&mut self, id: TransferId) -> bool {
        if self.burst == Some(id) {
            self.burst = None;
        }
        let Some(out) = self.messages.get_mut(&id) else {
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

    /// The message of ours that is under way with this key.
    pub(crate) fn by_key(&self, key: &Key) -> Option<TransferId> {
        // Only the heads of lanes are under way, and lanes are few.
        let heads = self.lanes.values().filter_map(|queue| queue.front());
        heads
            .copied()
            .find(|id| match self.messages.get(id).map(|out| &out.state) {
                Some(State::Sending(sending)) => {
                    sending.pieces().is_some_and(|pieces| pieces.key == *key)
                }
                _ => false,
            })
    }

    pub(crate) fn clear(&mut self) {
        let (next_id, one_frame) = (self.next_id, self.one_frame);
        *self = Self {
            next_id,
            one_frame,
            ..Self::default()
        };
    }
}

/// Why a message was not taken, with the message.
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
