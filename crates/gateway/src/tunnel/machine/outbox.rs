//! The frames that the other end has not acknowledged, in order, and how far they are on the line.

use std::collections::VecDeque;

use breakbulk_link::{Charge, Frame, SubBudget};
use breakbulk_message::tunnel::{Control, Received, part_room};
use bytes::Bytes;

/// This many frames are kept, and stashed by the receiver, however large they are: otherwise a path whose
/// frames are larger than its window would stop.
pub(crate) const FEW: usize = 2;

/// What each frame counts against a window in addition to its bytes, so that empty frames are not free.
const FRAME_COST: usize = 128;

/// What a frame counts against a window. Both ends count alike.
pub(crate) fn cost(bytes: usize) -> usize {
    bytes.saturating_add(FRAME_COST)
}

/// The outgoing frames of a session.
#[derive(Debug)]
pub(super) struct Outbox {
    kept: VecDeque<Kept>,
    /// How much the kept frames count against the window.
    cost: usize,
    window: usize,
    /// The number of the first frame that is kept, which is also the number of frames that are acknowledged.
    acknowledged: u64,
    /// The number of the next frame for the current line.
    cursor: u64,
    /// How much of that frame has gone in parts.
    offset: usize,
    /// Whether the next part continues a frame that began on an earlier line, which its receiver must be
    /// told.
    continues: bool,
    memory: SubBudget,
}

#[derive(Debug)]
struct Kept {
    frame: Frame,
    _charge: Charge,
}

impl Outbox {
    pub(super) fn new(window: usize, memory: SubBudget) -> Self {
        Self {
            kept: VecDeque::new(),
            cost: 0,
            window,
            acknowledged: 0,
            cursor: 0,
            offset: 0,
            continues: false,
            memory,
        }
    }

    /// Keeps the next frame, or hands it back if it has to wait for an acknowledgement.
    pub(super) fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        let cost = cost(frame.bytes().len());
        let charge = match self.kept.len() < FEW {
            // The frame is in memory already, so it is charged anyway; if none were kept, none would ever be
            // acknowledged.
            true => Some(self.memory.charge_allocated(cost)),
            false if self.cost + cost > self.window => None,
            false => self.memory.charge(cost),
        };
        let Some(charge) = charge else {
            return Err(frame);
        };
        self.cost += cost;
        self.kept.push_back(Kept {
            frame,
            _charge: charge,
        });
        Ok(())
    }

    /// The next frame for the line, with at most `cap` bytes: a frame of the session, or a part of one.
    pub(super) fn next(&mut self, cap: usize) -> Option<Frame> {
        let place = usize::try_from(self.cursor - self.acknowledged).ok()?;
        let frame = &self.kept.get(place)?.frame;
        if self.offset == 0 && goes_whole(frame, cap) {
            self.cursor += 1;
            return Some(frame.clone());
        }
        let bytes = frame.bytes();
        let end = bytes.len().min(self.offset + part_room(cap));
        let last = end == bytes.len();
        let data = bytes[self.offset..end].to_vec();
        let at = match std::mem::take(&mut self.continues) {
            true => self.offset as u64,
            false => 0,
        };
        if last {
            self.cursor += 1;
            self.offset = 0;
        } else {
            self.offset = end;
        }
        let part = Control::Part { at, last, data }.to_json();
        Some(Frame::Text(Bytes::from(part)))
    }

    /// Whether all frames are on the line.
    pub(super) fn is_sent(&self) -> bool {
        self.cursor == self.end()
    }

    /// How many frames are not acknowledged.
    pub(super) fn unacknowledged(&self) -> usize {
        self.kept.len()
    }

    /// How many frames are acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// The other end took `taken` frames; calls `each` with every frame of those that is newly acknowledged.
    /// False if it was not sent that many.
    pub(super) fn acknowledge(&mut self, taken: u64, mut each: impl FnMut(&Frame)) -> bool {
        if taken > self.cursor {
            return false;
        }
        while self.acknowledged < taken {
            let Some(kept) = self.kept.pop_front() else {
                return false;
            };
            self.acknowledged += 1;
            self.cost -= cost(kept.frame.bytes().len());
            each(&kept.frame);
        }
        true
    }

    /// Begins a new line with what did not arrive. False if that is not kept any more, or was never made.
    pub(super) fn resume_at(&mut self, received: Received) -> bool {
        let Received { frames, bytes } = received;
        if frames < self.acknowledged || frames > self.end() {
            return false;
        }
        let offset = match (bytes, self.kept(frames)) {
            (0, _) => Some(0),
            (bytes, Some(frame)) => usize::try_from(bytes)
                .ok()
                .filter(|bytes| *bytes <= frame.bytes().len()),
            (_, None) => None,
        };
        let Some(offset) = offset else { return false };
        self.cursor = frames;
        self.offset = offset;
        self.continues = offset > 0;
        true
    }

    fn kept(&self, number: u64) -> Option<&Frame> {
        let place = usize::try_from(number.checked_sub(self.acknowledged)?).ok()?;
        Some(&self.kept.get(place)?.frame)
    }

    /// Whether frames are kept that did not arrive, where `received` did.
    pub(super) fn has_more_than(&self, received: Received) -> bool {
        received.frames < self.end()
    }

    /// The frame of this number, if at least a part of it was put on the last line.
    pub(super) fn on_the_line(&self, number: u64) -> Option<&Frame> {
        let began = number < self.cursor || number == self.cursor && self.offset > 0;
        self.kept(number).filter(|_| began)
    }

    fn end(&self) -> u64 {
        self.acknowledged + self.kept.len() as u64
    }
}

/// Whether a frame travels as it is. One that would be mistaken for a control frame does not.
pub(super) fn goes_whole(frame: &Frame, cap: usize) -> bool {
    let control = match frame {
        Frame::Text(text) => Control::is_control(text),
        Frame::Binary(_) => false,
    };
    frame.bytes().len() <= cap && !control
}

/// The size of the largest frame on the line when a frame of the session is sent with this cap.
pub(super) fn size_on_line(frame: &Frame, cap: usize) -> usize {
    match goes_whole(frame, cap) {
        true => frame.bytes().len(),
        false => cap.min(frame.bytes().len().div_ceil(3) * 4 + 80),
    }
}
