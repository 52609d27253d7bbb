//! The frames that arrived: which are taken, which wait for the application, and when to acknowledge them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use breakbulk_link::{Budget, Charge, Frame, Held, SubBudget};
use breakbulk_message::tunnel::Received;
use bytes::Bytes;

use super::outbox::{FEW, cost};
use super::{Settings, Violation};

/// An acknowledgement is sent at the latest after so much was taken, or a quarter of the window.
const ACK_BYTES: usize = 256 << 10;

/// An acknowledgement is sent at the latest after this time, if anything was taken.
const ACK_TIME: Duration = Duration::from_secs(1);

/// The incoming frames of a session.
#[derive(Debug)]
pub(super) struct Inbox {
    window: usize,
    frame_limit: usize,
    binary: bool,
    /// How many frames arrived.
    received: u64,
    /// How many of them the application took.
    taken: u64,
    /// Frames that arrived while the application took none.
    stash: VecDeque<(Frame, Charge)>,
    stash_cost: usize,
    /// How much the frames that were taken since the last acknowledgement count.
    unacknowledged: usize,
    ack_at: Option<Instant>,
    /// The frame whose parts arrive.
    parts: Option<Parts>,
    memory: SubBudget,
    budget: Budget,
}

#[derive(Debug)]
struct Parts {
    bytes: Vec<u8>,
    charge: Held,
    /// Whether these parts came by an earlier line: then the first part on this line says where it continues.
    earlier: bool,
}

impl Inbox {
    /// What waits is charged to `memory`, a part of the budget.
    pub(super) fn new(settings: &Settings, memory: SubBudget) -> Self {
        Self {
            window: settings.window,
            frame_limit: settings.frame_limit,
            binary: settings.binary,
            received: 0,
            taken: 0,
            stash: VecDeque::new(),
            stash_cost: 0,
            unacknowledged: 0,
            ack_at: None,
            parts: None,
            memory,
            budget: settings.budget.clone(),
        }
    }

    /// How many frames arrived, and how many bytes of the next one.
    pub(super) fn received(&self) -> Received {
        let bytes = self.parts.as_ref().map_or(0, |parts| parts.bytes.len());
        Received {
            frames: self.received,
            bytes: bytes as u64,
        }
    }

    /// A whole frame arrived; it is for [`take`](Self::take) or [`stash`](Self::stash).
    pub(super) fn arrived(&mut self) -> Result<(), Violation> {
        match self.parts.take() {
            // The frame's parts came by an earlier line: a gateway that cannot continue them sends the frame
            // again, perhaps as a whole.
            None | Some(Parts { earlier: true, .. }) => {}
            Some(_) => {
                return Err(Violation::Protocol(
                    "a frame came between the parts of another",
                ));
            }
        }
        self.received += 1;
        Ok(())
    }

    /// The application takes a frame that did not wait.
    pub(super) fn take(&mut self, now: Instant, frame: &Frame) {
        self.taken += 1;
        self.unacknowledged += cost(frame.bytes().len());
        match self.unacknowledged >= ACK_BYTES.min(self.window / 4) {
            true => self.ack_at = Some(now),
            false => _ = self.ack_at.get_or_insert(now + ACK_TIME),
        }
    }

    /// Keeps a frame until the application takes it. Returns whether there is room for another one.
    pub(super) fn stash(&mut self, frame: Frame) -> Result<bool, Violation> {
        let cost = cost(frame.bytes().len());
        if self.stash.len() >= FEW && self.stash_cost + cost > self.window {
            return Err(Violation::Protocol(
                "more frames came than the window allows",
            ));
        }
        let charge = self.memory.charge(cost);
        let has_room = charge.is_some();
        // The frame is in memory already, so it is charged anyway; no other one is read until there is room.
        let charge = charge.unwrap_or_else(|| self.memory.charge_allocated(cost));
        self.stash_cost += cost;
        self.stash.push_back((frame, charge));
        Ok(has_room)
    }

    /// The application takes the first frame that waits.
    pub(super) fn take_stashed(&mut self, now: Instant) -> Option<Frame> {
        let (frame, _) = self.stash.pop_front()?;
        self.stash_cost -= cost(frame.bytes().len());
        self.take(now, &frame);
        Some(frame)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.stash.is_empty()
    }

    /// When the next acknowledgement is due.
    pub(super) fn ack_at(&self) -> Option<Instant> {
        self.ack_at
    }

    /// The number of frames to acknowledge now.
    pub(super) fn acknowledge(&mut self) -> u64 {
        self.ack_at = None;
        self.unacknowledged = 0;
        self.taken
    }

    /// Adds a part of a frame, which begins at byte `at` if it is the first part on its line. Returns the
    /// frame if this is its last part.
    pub(super) fn part(
        &mut self,
        at: u64,
        last: bool,
        data: Vec<u8>,
    ) -> Result<Option<Frame>, Violation> {
        let parts = match self.parts.take() {
            // The parts came by an earlier line: a gateway that cannot continue them begins with the first
            // part again.
            Some(parts) if parts.earlier && at == 0 => None,
            parts => parts,
        };
        let has = parts.as_ref().map_or(0, |parts| parts.bytes.len());
        let is_first = parts.as_ref().is_none_or(|parts| parts.earlier);
        if is_first && at != has as u64 {
            return Err(Violation::Protocol(
                "a part of a frame continues at bytes that did not arrive",
            ));
        }
        let mut parts = match parts {
            Some(parts) => parts,
            None => Parts {
                bytes: Vec::new(),
                charge: self.budget.charge(0).ok_or(Violation::Memory)?,
                earlier: false,
            },
        };
        parts.earlier = false;
        let size = parts.bytes.len() + data.len();
        if size > self.frame_limit {
            return Err(Violation::Protocol(
                "the parts of a frame are larger than a frame may be",
            ));
        }
        if data.is_empty() && !last {
            return Err(Violation::Protocol("a part of a frame is empty"));
        }
        if parts.bytes.is_empty() {
            parts.bytes = data;
        } else {
            // Grows by a half, so that many parts cost no more copies than few.
            let room = size.max(parts.bytes.len() / 2 * 3);
            parts.bytes.reserve_exact(room - parts.bytes.len());
            parts.bytes.extend_from_slice(&data);
        }
        if !parts.charge.grow_to(parts.bytes.capacity()) {
            return Err(Violation::Memory);
        }
        if !last {
            self.parts = Some(parts);
            return Ok(None);
        }
        self.received += 1;
        let bytes = Bytes::from(parts.bytes.into_boxed_slice());
        Ok(Some(match self.binary {
            true => Frame::Binary(bytes),
            false => Frame::Text(bytes),
        }))
    }

    /// A new line begins: parts may continue on it, and what was taken is acknowledged again.
    pub(super) fn new_line(&mut self, now: Instant) {
        if let Some(parts) = &mut self.parts {
            parts.earlier = true;
        }
        if self.taken > 0 {
            self.ack_at = Some(now);
        }
    }
}
