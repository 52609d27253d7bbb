//! Counts of what a proxy has done, for assertions.

use super::weather::Direction;

/// What a proxy has done since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// What was forwarded from clients to the target.
    pub from_client: Passed,
    /// What was forwarded from the target to clients.
    pub from_target: Passed,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections reset immediately: while refusing, or over the limit.
    pub refused: u64,
    /// Connections open now.
    pub open: u64,
    /// Connections that ended because the target could not be reached.
    pub unreachable: u64,
    /// Connections ended because an HTTP head was too long.
    pub long_heads: u64,
    /// Connections cut, immediately or as scheduled.
    pub cuts: u64,
}

impl Counts {
    pub(super) fn passed(&mut self, direction: Direction) -> &mut Passed {
        match direction {
            Direction::FromClient => &mut self.from_client,
            Direction::FromTarget => &mut self.from_target,
        }
    }
}

/// What was forwarded in one direction. A frame or message counts when its last byte was forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// Data frames, including continuation frames.
    pub frames: u64,
    /// Ping, pong and close frames.
    pub control_frames: u64,
    /// Complete messages.
    pub messages: u64,
    /// Bytes after the WebSocket handshake, including frame headers.
    pub bytes: u64,
    /// The payload of the largest data frame.
    pub largest_frame: u64,
    /// The payload of the largest message.
    pub largest_message: u64,
    /// Frames not forwarded because they exceeded a cap or were binary.
    pub blocked: u64,
    /// The size of the largest frame or message that exceeded a cap.
    pub largest_blocked: u64,
}

impl Passed {
    pub(super) fn add(&mut self, more: &Passed) {
        self.frames += more.frames;
        self.control_frames += more.control_frames;
        self.messages += more.messages;
        self.bytes += more.bytes;
        self.largest_frame = self.largest_frame.max(more.largest_frame);
        self.largest_message = self.largest_message.max(more.largest_message);
        self.blocked += more.blocked;
        self.largest_blocked = self.largest_blocked.max(more.largest_blocked);
    }

    /// Counts a frame of this size that is not forwarded.
    pub(super) fn block(&mut self, size: u64) {
        self.blocked += 1;
        self.largest_blocked = self.largest_blocked.max(size);
    }
}
