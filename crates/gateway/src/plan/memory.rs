//! The memory that the sessions of one plan, or of several, share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use breakbulk_link::Budget;

/// What a session takes beside its messages: tasks, tables, the buffers of its sockets and pipes (measured: 45
/// to 75 KB for a WebSocket and a command).
const SESSION: usize = 80 << 10;

/// This part of the memory is for the holes between buffers that come and go, which the system's allocator
/// cannot use (measured with 1,000 sessions: 50 to 100 MB of 330).
const HOLES: usize = 8;

/// A quarter of the memory is divided among all sessions that may begin, so that those that need little do
/// not depend on what others do; at most another quarter is for what sessions take beside their messages;
/// an eighth is left to the allocator, and the rest is shared. Clones are the same memory.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    /// All of the memory, in bytes.
    bytes: AtomicUsize,
    shared: Budget,
    /// What each session has for itself.
    reserved: AtomicUsize,
}

impl Memory {
    /// Divides `bytes` among at most `sessions` sessions.
    pub(crate) fn new(bytes: usize, sessions: usize) -> Self {
        let memory = Self(Arc::new(Parts {
            bytes: AtomicUsize::new(0),
            shared: Budget::new(0),
            reserved: AtomicUsize::new(0),
        }));
        memory.resize(bytes, sessions);
        memory
    }

    /// Changes the size of the memory and the number of sessions. A session that has begun keeps what was
    /// reserved for it.
    pub(crate) fn resize(&self, bytes: usize, sessions: usize) {
        let sessions = sessions.max(1);
        let reserved = bytes / 4 / sessions;
        self.0.bytes.store(bytes, Ordering::Relaxed);
        self.0.reserved.store(reserved, Ordering::Relaxed);
        let beside = SESSION.saturating_mul(sessions).min(bytes / 4);
        self.0
            .shared
            .set_limit(bytes - reserved * sessions - beside - bytes / HOLES);
    }

    /// What all sessions share.
    pub(crate) fn shared(&self) -> &Budget {
        &self.0.shared
    }

    /// All of the memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// What each session that begins has for itself.
    pub(crate) fn reserved(&self) -> usize {
        self.0.reserved.load(Ordering::Relaxed)
    }

    /// The memory of a session that begins.
    pub(crate) fn of_session(&self) -> Budget {
        self.0.shared.share(self.reserved())
    }

    /// Whether both are the same memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    // OPS-3
    #[test]
    fn all_sessions_together_have_no_more_than_the_memory() {
        for (bytes, sessions, reserved, shared) in [
            (1 << 30, 256, 1 << 20, (5 << 27) - (256 * SESSION)),
            (1000, 3, 83, 376),
            (1000, 0, 250, 375),
            (0, 7, 0, 0),
        ] {
            let memory = Memory::new(bytes, sessions);
            assert_eq!(memory.shared().limit(), shared);
            let session = memory.of_session();
            let held = session.charge(reserved).unwrap();
            assert_eq!(memory.shared().used(), 0, "its own part comes first");
            drop(held);
        }
        // More sessions: less for each that begins, and what began before keeps its part.
        let memory = Memory::new(1000, 1);
        let before = memory.of_session();
        memory.resize(1000, 10);
        let _held = before.charge(250).unwrap();
        assert_eq!((memory.shared().used(), memory.shared().limit()), (0, 375));
        let _more = memory.of_session().charge(26).unwrap();
        assert_eq!(memory.shared().used(), 1);
    }
}
