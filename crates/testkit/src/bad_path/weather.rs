//! What a path does to what passes, as data.

use std::time::Duration;

/// The lasting properties of a path. The default is a good path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weather {
    /// What happens on the way from the client to the target.
    pub from_client: Way,
    /// What happens on the way from the target to the client.
    pub from_target: Way,
    /// How many connections may be open at once; more are reset.
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
/// What breaks a cap is not forwarded: both sides get a WebSocket Close (1009, or 1003 for binary)
/// and the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Way {
    /// The most bytes in one WebSocket frame's payload. Well-formed control frames always pass.
    pub frame_cap: Option<u64>,
    /// The most bytes in one WebSocket message, over all its frames.
    pub message_cap: Option<u64>,
    /// Whether binary messages are refused.
    pub text_only: bool,
    /// How long every byte is under way at least. At most 4 MiB are under way at a time.
    pub delay: Duration,
    /// The most bytes in a second, handshake and headers included.
    pub pace: Option<u64>,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the target.
    FromClient,
    /// From the target to the client.
    FromTarget,
}

/// A cut to come. It falls when the last counted byte has been handed on, and nothing more passes
/// on that connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// When it falls.
    pub after: After,
    /// What counts: one direction, or both together.
    pub counting: Option<Direction>,
    /// Where it counts.
    pub over: Over,
    /// What the ends see.
    pub how: How,
}

impl Cut {
    /// After `frames` data frames, both directions together, over the whole path, by a reset.
    pub fn frames(frames: u64) -> Self {
        Self {
            after: After::Frames(frames),
            counting: None,
            over: Over::Path,
            how: How::Reset,
        }
    }

    /// After `bytes` bytes, both directions together, over the whole path, by a reset.
    pub fn bytes(bytes: u64) -> Self {
        Self {
            after: After::Bytes(bytes),
            ..Self::frames(0)
        }
    }
}

/// How much passes before a cut. The WebSocket handshake does not count and is never cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// So many WebSocket data frames; control frames do not count.
    Frames(u64),
    /// So many bytes, headers and control frames included; it can fall within a frame.
    Bytes(u64),
}

/// Where a cut counts, and how often it falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// On each connection from its start, and each is cut.
    EachConnection,
    /// Over all connections since the cut was set; the one that brings the count there is cut, once.
    Path,
}

/// What both ends see of a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// A reset. It may destroy what the system still holds, as resets do.
    Reset,
    /// The end of the stream without a WebSocket Close; what was forwarded arrives.
    End,
}
