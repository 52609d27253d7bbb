//! What is counted of one direction at one end of a session.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::view::FlowView;

/// Messages and frames that go one way at one end. Only the tasks of one session write here.
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
        self.messages.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        if bytes > self.longest.load(Relaxed) {
            self.longest.fetch_max(bytes, Relaxed);
        }
    }

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

/// Both directions at one end.
#[derive(Debug, Default)]
pub(super) struct Flows {
    pub(super) received: Flow,
    pub(super) sent: Flow,
}
