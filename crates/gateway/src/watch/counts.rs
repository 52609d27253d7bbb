//! Counters for each direction at one end of a session.
//!
//! Every counter here has one writer, and the counters of different tasks lie in different cache lines: on a
//! machine with several processors an addition costs a nanosecond then. Where two tasks write to one line,
//! or with an atomic addition, it costs many times as much, for every message and frame.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use breakbulk_link::lock;
use breakbulk_net::Direction;

use super::view::{FlowView, SideView};

/// Messages that go one way at one end. Only the pump of the session writes here.
#[derive(Debug, Default)]
pub(super) struct Flow {
    messages: AtomicU64,
    bytes: AtomicU64,
    longest: AtomicU64,
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

    fn view(&self, frames: Frames) -> FlowView {
        FlowView {
            messages: self.messages.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            longest: self.longest.load(Relaxed),
            frames: frames.count,
            frame_bytes: frames.bytes,
        }
    }
}

/// Adds to a counter that one task alone writes. An atomic addition would lock the cache line, which costs
/// several times as much.
pub(super) fn add_alone(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// How many frames there were, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Frames {
    count: u64,
    bytes: u64,
}

impl std::ops::AddAssign for Frames {
    fn add_assign(&mut self, more: Self) {
        self.count += more.count;
        self.bytes += more.bytes;
    }
}

/// The frames that one connection received and sent. Its reader writes `received` and its writer `sent`.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct ConnectionFrames {
    received: FrameCounter,
    sent: FrameCounter,
}

#[derive(Debug, Default)]
struct FrameCounter {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl FrameCounter {
    fn view(&self) -> Frames {
        Frames {
            count: self.count.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }
}

impl ConnectionFrames {
    /// A frame of so many bytes passed.
    pub(super) fn frame(&self, direction: Direction, bytes: usize) {
        let counter = match direction {
            Direction::Received => &self.received,
            Direction::Sent => &self.sent,
        };
        add_alone(&counter.count, 1);
        add_alone(&counter.bytes, bytes as u64);
    }
}

/// Both directions at one end.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Flows {
    pub(super) received: Flow,
    pub(super) sent: Flow,
    connections: Mutex<Connections>,
}

/// The connections of one end: a tunnel has one after another, and two for a moment.
#[derive(Debug, Default)]
struct Connections {
    open: Vec<Arc<ConnectionFrames>>,
    /// The frames that closed connections received and sent.
    gone: [Frames; 2],
}

impl Flows {
    /// A connection begins to count its frames.
    pub(super) fn connect(&self) -> Arc<ConnectionFrames> {
        let frames = Arc::<ConnectionFrames>::default();
        lock(&self.connections).open.push(frames.clone());
        frames
    }

    /// A connection is gone: what it counted is kept.
    pub(super) fn disconnect(&self, frames: &Arc<ConnectionFrames>) {
        let mut connections = lock(&self.connections);
        let before = connections.open.len();
        connections.open.retain(|open| !Arc::ptr_eq(open, frames));
        if connections.open.len() < before {
            connections.gone[0] += frames.received.view();
            connections.gone[1] += frames.sent.view();
        }
    }

    pub(super) fn view(&self) -> SideView {
        let connections = lock(&self.connections);
        let [mut received, mut sent] = connections.gone;
        for open in &connections.open {
            received += open.received.view();
            sent += open.sent.view();
        }
        SideView {
            received: self.received.view(received),
            sent: self.sent.view(sent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_connections_that_are_gone_still_count_and_count_once() {
        let flows = Flows::default();
        let (first, second) = (flows.connect(), flows.connect());
        first.frame(Direction::Received, 10);
        second.frame(Direction::Received, 5);
        second.frame(Direction::Sent, 7);
        let counted = || {
            let SideView { received, sent } = flows.view();
            let of = |flow: FlowView| (flow.frames, flow.frame_bytes);
            (of(received), of(sent))
        };
        assert_eq!(counted(), ((2, 15), (1, 7)));
        flows.disconnect(&first);
        flows.disconnect(&first);
        assert_eq!(counted(), ((2, 15), (1, 7)));
        second.frame(Direction::Sent, 1);
        flows.disconnect(&second);
        assert_eq!(counted(), ((2, 15), (2, 8)));
        assert!(lock(&flows.connections).open.is_empty());
    }
}
