//! What is counted of one direction at one end of a session.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::view::FlowView;

/// Messages and frames that go one way at one end. Only the tasks of one session write here: its pump
/// counts messages, and whoever reads or writes a connection counts frames.
#[derive(Debug, Default)]
pub(super) struct Flow {
    messages: AtomicU64,
    bytes: AtomicU64,
    longest: AtomicU64,
    frames: AtomicU64,
    frame_bytes: AtomicU64,
}

impl Flow {
    pub(super) fn message(&self, bytes: usize) {
        let bytes = bytes as u64;
        add_alone(&self.messages, 1);
        add_alone(&self.bytes, bytes);
        if bytes > self.longest.load(Relaxed) {
            self.longest.store(bytes, Relaxed);
        }
    }

    /// A tunnel may change from one connection to another while both count, so this adds atomically.
    pub(super) fn frame(&self, bytes: usize) {
        self.frames.fetch_add(1, Relaxed);
        self.frame_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn view(&self) -> FlowView {
        FlowView {
            messages: self.messages.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            longest: self.longest.load(Relaxed),
            frames: self.frames.load(Relaxed),
            frame_bytes: self.frame_bytes.load(Relaxed),
        }
    }
}

/// Adds to a counter that one task alone writes. An atomic addition would lock the cache line, which costs
/// several times as much.
pub(super) fn add_alone(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// Both directions at one end.
#[derive(Debug, Default)]
pub(super) struct Flows {
    pub(super) received: Flow,
    pub(super) sent: Flow,
}
