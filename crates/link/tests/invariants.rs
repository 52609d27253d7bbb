//! Tests of the invariants of ARCHITECTURE.md, by their numbers, and of what layers above the link rely on
//! besides. Each test fails if the code lacks what the test is named after.
//!
//! | | invariant | module |
//! |---|---|---|
//! | 1 | nothing is lost silently | `loss` |
//! | 2 | memory is bounded by numbers in the configuration | `memory` |
//! | 3 | one frame at a time is made | `frames` |
//! | 4 | order in a lane holds; lanes are fair | `lanes` |
//! | 5 | no frame exceeds the cap | `frames`, and properties.rs |
//! | 6 | pure rooms stay pure | `frames`, and properties.rs |
//! | 7 | a closed link stays closed; a fault's scope is data | `faults` |
//! | 8 | nothing is retried by itself | `confirm` |
//! | 9 | a slow reader harms itself alone | `memory` |
//!
//! `cargo test --release -p breakbulk-link --test invariants invariant_4` runs one of them.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "invariants/cancel.rs"]
mod cancel;
mod common;
#[path = "invariants/confirm.rs"]
mod confirm;
#[path = "invariants/faults.rs"]
mod faults;
#[path = "invariants/frames.rs"]
mod frames;
#[path = "invariants/lanes.rs"]
mod lanes;
#[path = "invariants/loss.rs"]
mod loss;
#[path = "invariants/memory.rs"]
mod memory;
#[path = "invariants/seams.rs"]
mod seams;
#[path = "invariants/timers.rs"]
mod timers;

use std::time::{Duration, Instant};

use breakbulk_link::{
    Budget, Cap, Config, Event, Frame, FrameId, FrameKind, Link, Outgoing, PeerLimits, PeerSupport,
    Received, SendError, Sent, TransferId,
};
use breakbulk_testkit::links::Clock;
use common::Kit;

const MESSAGE: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;

/// A JSON-RPC message of exactly `size` bytes.
fn message(size: usize) -> Vec<u8> {
    let frame = br#"{"jsonrpc":"2.0","id":1,"method":"m","params":[""]}"#;
    let (head, tail) = frame.split_at(frame.len() - 3);
    [head, &vec![b'x'; size - frame.len()], tail].concat()
}

/// A link to a peer that takes everything, under a cap of 1,000 bytes.
fn link(kit: Kit, change: impl FnOnce(&mut Config)) -> Link {
    let mut config = Config::new(kit.rules());
    config.progress = 0;
    change(&mut config);
    let mut link = Link::new(kit.wire(), kit.wire(), config, Budget::unlimited(), [1; 32]);
    link.set_cap(Cap::frame(1000));
    link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
    link
}

fn outgoing(kit: Kit, number: u64, size: usize) -> Outgoing {
    Outgoing::new(message(size))
        .with_key(kit.key(number))
        .tagged(number)
}

struct Bench {
    clock: Clock,
    link: Link,
    frames: Vec<FrameId>,
}

impl Bench {
    fn new(link: Link) -> Self {
        Self {
            clock: Clock::new(),
            link,
            frames: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn send(&mut self, message: Outgoing) -> TransferId {
        self.link.send(self.clock.now(), message).unwrap()
    }

    /// The tag and kind of the next frame.
    fn next(&mut self) -> Option<(u64, FrameKind)> {
        let mut frame = Vec::new();
        let transmit = self.link.poll_transmit(self.clock.now(), &mut frame)?;
        assert!(!frame.is_empty());
        self.frames.push(transmit.frame);
        Some((transmit.tag, transmit.kind))
    }

    fn tags(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.next())
            .map(|(tag, _)| tag)
            .collect()
    }

    /// The transport reports this outcome for the oldest frame that it has not reported on yet.
    fn confirm(&mut self, outcome: Sent) {
        let frame = self.frames.remove(0);
        self.link.handle_sent(self.clock.now(), frame, outcome);
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.link.poll_event()).collect()
    }

    fn words(&mut self) -> Vec<String> {
        self.events().iter().map(word).collect()
    }

    fn take(&mut self, frame: Frame) -> Received {
        self.link.handle_frame(self.clock.now(), frame)
    }

    fn pass(&mut self, time: Duration) {
        self.clock.advance(time);
        self.link.handle_timeout(self.clock.now());
    }
}

fn word(event: &Event) -> String {
    match event {
        Event::Message(message) => format!("message {}", message.bytes.len()),
        Event::Control(_) => "control".into(),
        Event::Sent { tag, .. } => format!("sent {tag}"),
        Event::SendFailed { tag, .. } => format!("send failed {tag}"),
        Event::Accepted { tag, .. } => format!("accepted {tag}"),
        Event::Opened(key) => format!("opened {key}"),
        Event::Progress { done, .. } => format!("progress {done}"),
        Event::Writable => "writable".into(),
        Event::Fault(fault) => format!("fault {}", fault.kind.name()),
        Event::TransferFailed(fault) => format!("failed {}", fault.kind.name()),
        Event::Closed(closed) => format!("closed {}", closed.code),
        other => format!("{other:?}"),
    }
}

fn send_error(events: &[Event]) -> Option<&SendError> {
    events.iter().find_map(|event| {
        if let Event::SendFailed { error, .. } = event {
            Some(error)
        } else {
            None
        }
    })
}
