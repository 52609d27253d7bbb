//! What passed a path, for assertions.

use super::weather::Direction;

/// What a path did since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// What was handed on from clients to the target.
    pub from_client: Passed,
    /// What was handed on from the target to clients.
    pub from_target: Passed,
    /// Connections let in.
    pub accepted: u64,
    /// Connections reset at once: while refusing, or over the number allowed.
    pub refused: u64,
    /// Connections open now.
    pub open: u64,
    /// Connections whose target could not be reached.
    pub unreachable: u64,
    /// Connections ended because an HTTP head had no end in sight.
    pub long_heads: u64,
    /// Connections cut, at once or as set before.
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

/// What passed in one direction. A frame or message counts when its last byte was handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// Data frames, continuation frames included.
    pub frames: u64,
    /// Ping, pong and close frames.
    pub control_frames: u64,
    /// Whole messages.
    pub messages: u64,
    /// Bytes after the WebSocket handshake, frame headers included.
    pub bytes: u64,
    /// The payload of the largest data frame.
    pub largest_frame: u64,
    /// The payload of the largest message.
    pub largest_message: u64,
    /// Frames not let through because of a cap, or for being binary.
    pub struck: u64,
}

impl Passed {
    pub(super) fn add(&mut self, more: &Passed) {
        self.frames += more.frames;
        self.control_frames += more.control_frames;
        self.messages += more.messages;
        self.bytes += more.bytes;
        self.largest_frame = self.largest_frame.max(more.largest_frame);
        self.largest_message = self.largest_message.max(more.largest_message);
        self.struck += more.struck;
    }
}
