//! Limits and timeouts of a host, and the link to its bridge.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Budget, Cap, Link};
use breakbulk_wire::{Stream, Tywrap};

/// The original's limit on a line.
const LINE: usize = 100 << 20;

/// Bytes of a frame's line in addition to its data.
const ENVELOPE: usize = 1024;

/// The configuration of a host: limits, timeouts, and how strict it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The numbers that bound what is sent and received.
    pub limits: Limits,
    /// How long a call may take, from writing it to the last frame of its answer; `None`: for ever.
    pub timeout: Option<Duration>,
    /// How long a bridge may take to answer `meta`, but at most a third of `timeout`: one that is silent
    /// leaves time for the call. `None`: `meta` is not sent, and support for frames is assumed, as hosts
    /// of version 0.9 and later do.
    pub probe: Option<Duration>,
    /// The bridge is killed if it takes longer than this to end, or to read the rest of a line whose call
    /// was given up.
    pub grace: Duration,
    /// Whether output that is not a message (a stray `print`) is logged and skipped. Otherwise all calls
    /// fail and the bridge is restarted, since the output may have split a message.
    pub tolerant: bool,
    /// Whether the bridge's standard error is this process's own, instead of being kept for error texts.
    pub inherit_stderr: bool,
    /// Whether the frames of an answer may have another id than the answer, as the original allows.
    pub ids_may_differ: bool,
}

/// The limits of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of data in one frame; a longer message is cut. The bridge is asked for the same; the
    /// smaller of the two applies. At least 4.
    pub frame: usize,
    /// Bytes of a message, in both directions. The bridge is started with the same limits.
    pub message: usize,
    /// Bytes of a received line; by default 100 MiB, or more if a message or a frame needs it.
    pub line: Option<usize>,
    /// Bytes of a sent line, envelope and escapes included; by default only the data is limited, as in
    /// the original.
    pub line_out: Option<usize>,
    /// Characters of the bridge's standard error that are kept for error texts.
    pub stderr: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            timeout: Some(Duration::from_secs(30)),
            probe: Some(Duration::from_secs(10)),
            grace: Duration::from_secs(3),
            tolerant: false,
            inherit_stderr: false,
            ids_may_differ: false,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame: 1 << 20,
            message: 10 << 20,
            line: None,
            line_out: None,
            stderr: 8192,
        }
    }
}

breakbulk_link::with!(Config, Limits);

impl Config {
    /// How long to wait for the answer to `meta`.
    pub fn probe_time(&self) -> Option<Duration> {
        let third = self.timeout.map_or(Duration::MAX, |timeout| timeout / 3);
        self.probe.map(|probe| probe.min(third))
    }

    /// Bytes of the longest line that is accepted.
    pub fn line_limit(&self) -> usize {
        // JSON may escape one byte of the data as six.
        let frame = self.limits.frame.min(self.limits.message).saturating_mul(6);
        let needed = frame.max(self.limits.message).saturating_add(ENVELOPE);
        self.limits.line.unwrap_or(needed.max(LINE))
    }

    /// The cap of a line to a bridge that accepts frames.
    pub fn cap(&self) -> Cap {
        match self.limits.line_out {
            Some(line) => Cap::frame(line).lines(),
            None => Cap::piece(self.limits.frame).lines(),
        }
    }

    /// The cap of a line to a bridge that does not: a whole message in one line.
    pub fn cap_unframed(&self) -> Cap {
        Cap::frame(self.limits.line_out.unwrap_or(self.line_limit())).lines()
    }

    /// A link to a bridge whose support for frames is not known yet. `seed`: 32 random bytes.
    pub fn link(&self, seed: [u8; 32]) -> Link {
        let wire = Tywrap {
            expects: Some(Stream::Response),
            ..Tywrap::default()
        };
        let mut link_config = Tywrap::config();
        let limits = &mut link_config.limits;
        limits.message = self.limits.message;
        limits.frame = self.line_limit();

        // Frames of several answers may be interleaved, and buffers have up to a quarter to spare.
        limits.memory = self
            .limits
            .message
            .saturating_mul(4)
            .saturating_add(16 << 20);

        // The host bounds what is queued before it sends a call.
        limits.queued = usize::MAX;
        limits.queued_bytes = usize::MAX;
        let wire = Arc::new(wire);
        let budget = Budget::unlimited();
        let mut link = Link::new(wire.clone(), wire, link_config, budget, seed);
        link.set_cap(self.cap_unframed());
        link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_move_together() {
        let default = Config::default();
        assert_eq!(default.line_limit(), 100 << 20);
        assert_eq!(default.link([0; 32]).frame_limit(), 100 << 20);
        let large = default.with(|config| config.limits.message = 300 << 20);
        assert_eq!(large.line_limit(), (300 << 20) + 1024);
        let mut wide = large;
        wide.limits.frame = 64 << 20;
        assert_eq!(wide.line_limit(), (384 << 20) + 1024);
        wide.limits.line = Some(1000);
        assert_eq!(wide.line_limit(), 1000);
    }
}
