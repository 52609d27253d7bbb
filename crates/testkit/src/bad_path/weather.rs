//! The conditions of a path, as data: caps, delay, rate, cuts.

use std::time::Duration;

/// The conditions of a path. The default is a good path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weather {
    /// The direction from the client to the target.
    pub from_client: Way,
    /// The direction from the target to the client.
    pub from_target: Way,
    /// How many connections may be open at once; further ones are reset.
    pub connections: usize,
}

impl Weather {
    /// A message of more than so many bytes ends its connection with 1009, whichever way it goes.
    pub fn capped(bytes: u64) -> Self {
        Self::both_ways(Way {
            message_cap: Some(bytes),
            ..Way::default()
        })
    }

    /// The same in both directions.
    pub fn both_ways(way: Way) -> Self {
        Self {
            from_client: way,
            from_target: way,
            ..Self::default()
        }
    }

    pub(super) fn way(&self, direction: Direction) -> &Way {
        match direction {
            Direction::FromClient => &self.from_client,
            Direction::FromTarget => &self.from_target,
        }
    }
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            from_client: Way::default(),
            from_target: Way::default(),
            connections: 64,
        }
    }
}

/// One direction of a path.
///
/// A frame that exceeds a cap is not forwarded; `refusal` says what its sender and receiver see of that. A
/// binary frame on a path for text closes both sides with 1003.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Way {
    /// The largest payload of a WebSocket frame, in bytes. Valid control frames are always forwarded.
    pub frame_cap: Option<u64>,
    /// The largest WebSocket message, in bytes over all its frames.
    pub message_cap: Option<u64>,
    /// What happens to a frame that exceeds a cap.
    pub refusal: Refusal,
    /// Whether binary messages are refused.
    pub text_only: bool,
    /// The delay of every byte. At most 4 MiB are delayed at a time.
    pub delay: Duration,
    /// The rate limit in bytes per second, including handshake and headers.
    pub pace: Option<u64>,
}

/// What both sides see of a frame that exceeds a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A WebSocket Close with this code, after which the connection ends.
    Close(u16),
    /// The end of the stream without a WebSocket Close.
    End,
    /// A reset.
    Reset,
    /// Nothing: from this frame on nothing more is forwarded in its direction, and the connection stays.
    Silence,
    /// Nothing: this frame is left out, and what follows is forwarded. For messages of one frame.
    Drop,
    /// A shorter message: what is over the cap is cut off, and what follows is forwarded.
    Truncate,
}

impl Default for Refusal {
    fn default() -> Self {
        Self::Close(1009)
    }
}

/// A direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the target.
    FromClient,
    /// From the target to the client.
    FromTarget,
}

/// A scheduled cut. It happens when the last counted byte was forwarded; nothing more is forwarded
/// on that connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// When it happens.
    pub after: After,
    /// The direction that counts; `None` counts both together.
    pub counting: Option<Direction>,
    /// Which connections count.
    pub over: Over,
    /// What both sides see.
    pub how: How,
}

impl Cut {
    /// A reset after `frames` data frames of both directions, counted over all connections.
    pub fn frames(frames: u64) -> Self {
        Self {
            after: After::Frames(frames),
            counting: None,
            over: Over::Path,
            how: How::Reset,
        }
    }

    /// A reset after `bytes` bytes of both directions, counted over all connections.
    pub fn bytes(bytes: u64) -> Self {
        Self {
            after: After::Bytes(bytes),
            ..Self::frames(0)
        }
    }
}

/// How much is forwarded before a cut. The WebSocket handshake does not count and is never cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// This many WebSocket data frames; control frames do not count.
    Frames(u64),
    /// This many bytes, including headers and control frames; the cut may be within a frame.
    Bytes(u64),
}

/// Which connections a cut counts, and how often it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Each connection is counted from its start, and each is cut.
    EachConnection,
    /// All connections are counted together since the cut was scheduled; the one that reaches the
    /// count is cut, once.
    Path,
}

/// What both sides see of a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// A reset. It may destroy bytes that the system has not delivered yet.
    Reset,
    /// The end of the stream without a WebSocket Close; forwarded bytes arrive.
    End,
}
