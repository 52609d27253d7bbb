//! What a host allows, and what it tells its bridge of that.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Budget, Cap, Limits, Link};
use breakbulk_wire::{Stream, Tywrap};

/// A line of the original may have so many bytes.
const LINE: usize = 100 << 20;

/// What a line has beside its data.
const ENVELOPE: usize = 1024;

/// How a host deals with its bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of data in one frame; a longer message is cut. The bridge is asked for the same, and the
    /// smaller of both counts. At least 4.
    pub frame: usize,
    /// Bytes of a message, either way. The bridge gets the same limits for what it reads and writes.
    pub message: usize,
    /// Bytes of a line that comes in; by default 100 MiB, or more where a message or a frame needs it.
    pub line: Option<usize>,
    /// Bytes of a line that goes out, envelope and escapes included; by default only the data counts, as
    /// in the original.
    pub line_out: Option<usize>,
    /// How long a call may take, from its writing to the last frame of its answer; `None`: for ever.
    pub timeout: Option<Duration>,
    /// How long a bridge may take to say what it is; `None`: it is not asked, and frames are taken for
    /// granted, as version 0.9 and later do.
    pub probe: Option<Duration>,
    /// How long a line may be stuck in the pipe after its call was given up, and how long a bridge may
    /// take to end, before it is killed.
    pub grace: Duration,
    /// Whether output that is no message (a stray `print`) is logged and skipped. Otherwise it fails
    /// all calls and the bridge is restarted, since it may have torn a message.
    pub tolerant: bool,
    /// Whether the frames of an answer may have another id than the answer, as the original lets pass.
    pub ids_may_differ: bool,
    /// So many characters of the bridge's standard error are kept for errors.
    pub stderr: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            frame: 1 << 20,
            message: 10 << 20,
            line: None,
            line_out: None,
            timeout: Some(Duration::from_secs(30)),
            probe: Some(Duration::from_secs(30)),
            grace: Duration::from_secs(3),
            tolerant: false,
            ids_may_differ: false,
            stderr: 8192,
        }
    }
}

impl Settings {
    /// The same for messages of so many bytes; all that depends on it moves along.
    pub fn with_message(mut self, bytes: usize) -> Self {
        self.message = bytes;
        self
    }

    /// Bytes of the longest line that is read.
    pub fn line_limit(&self) -> usize {
        // A character of the data may become six in a frame.
        let frame = self.frame.min(self.message).saturating_mul(6);
        let needed = frame.max(self.message).saturating_add(ENVELOPE);
        self.line.unwrap_or(needed.max(LINE))
    }

    /// What goes out in one line to a bridge that takes frames.
    pub fn cap(&self) -> Cap {
        match self.line_out {
            Some(line) => Cap::frame(line).lines(),
            None => Cap::piece(self.frame).lines(),
        }
    }

    /// What goes out in one line to a bridge that does not: all that a line may hold.
    pub fn cap_unframed(&self) -> Cap {
        Cap::frame(self.line_out.unwrap_or(self.line_limit())).lines()
    }

    /// A link to a bridge that has not said yet what it takes. `seed`: 32 random bytes.
    pub fn link(&self, seed: [u8; 32]) -> Link {
        let wire = Tywrap {
            expects: Some(Stream::Response),
            ..Tywrap::default()
        };
        let mut config = Tywrap::config();
        config.limits = Limits {
            message: self.message,
            frame: self.line_limit(),
            // Answers of several calls may be mixed, and buffers have a quarter of spare room.
            memory: self.message.saturating_mul(4).saturating_add(16 << 20),
            // What waits to go out is bounded where calls begin.
            queued: usize::MAX,
            queued_bytes: usize::MAX,
            ..config.limits
        };
        let wire = Arc::new(wire);
        let budget = Budget::unlimited();
        let mut link = Link::new(wire.clone(), wire, config, budget, seed);
        link.set_cap(self.cap_unframed());
        link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_move_together() {
        let default = Settings::default();
        assert_eq!(default.line_limit(), 100 << 20);
        assert_eq!(default.link([0; 32]).frame_limit(), 100 << 20);
        let large = default.with_message(300 << 20);
        assert_eq!(large.line_limit(), (300 << 20) + 1024);
        let mut wide = large;
        wide.frame = 64 << 20;
        assert_eq!(wide.line_limit(), (384 << 20) + 1024);
        wide.line = Some(1000);
        assert_eq!(wide.line_limit(), 1000);
    }
}
