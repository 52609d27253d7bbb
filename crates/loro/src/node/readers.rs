//! Finds peers that do not read what is queued for them.

use std::sync::Weak;
use std::time::{Duration, Instant};

use breakbulk_net::Connection;

use super::core::Core;

/// How often all connections are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// How long a peer may read nothing while others wait for the memory of its queue.
const WHILE_STARVED: Duration = Duration::from_secs(2);

/// How long a polling client may stay away: the original's number. Event streams have a deadline of
/// their own in the transport.
const POLLING: Duration = Duration::from_secs(120);

/// The slowest rate, in bytes per second, for a message that goes as one frame: the progress within a
/// frame is not known.
const SLOWEST: u64 = 16 << 10;

/// The slowest rate while others wait for the memory of the queue.
const SLOWEST_STARVED: u64 = 256 << 10;

/// When a connection last took a frame.
#[derive(Debug)]
pub(super) struct Reading {
    frames: u64,
    since: Instant,
}

impl Reading {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            frames: 0,
            since: now,
        }
    }

    /// Why the connection must be closed, if it must. `whole`: its messages are not cut.
    pub(super) fn check(
        &mut self,
        now: Instant,
        connection: &Connection,
        whole: bool,
        deadline: Duration,
        starved: bool,
    ) -> Option<String> {
        let (frames, messages, bytes) =
            connection.with(|link| (link.frames_made(), link.queued(), link.queued_bytes()));
        if frames != self.frames || messages == 0 {
            (self.frames, self.since) = (frames, now);
            return None;
        }
        let limit = match (starved, whole) {
            (true, _) => deadline.min(WHILE_STARVED),
            (false, true) => deadline.max(POLLING),
            (false, false) => deadline,
        };
        let extra = match (whole, starved) {
            (true, false) => Duration::from_secs(bytes as u64 / SLOWEST),
            (true, true) => Duration::from_secs(bytes as u64 / SLOWEST_STARVED),
            (false, _) => Duration::ZERO,
        };
        let stalled = now.saturating_duration_since(self.since);
        (stalled >= limit + extra).then(|| {
            let seconds = stalled.as_secs();
            format!("{bytes} bytes are queued and nothing was read for {seconds} s: reconnect and sync again")
        })
    }
}

/// Closes the connections of peers that do not read, while the node exists.
pub(super) async fn watch_readers(core: Weak<Core>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(core) = core.upgrade() else {
            return;
        };
        let deadline = core.config.write_deadline;
        let ended = core.drive(|state, now| {
            state.close_stalled(now, deadline);
            state.ended
        });
        if ended {
            return;
        }
    }
}
