//! One link with a naive model of the messages that it has to deliver.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use breakbulk_link::{
    Cancelled, Cap, Config, Event, Frame, FrameId, FrameKind, Key, Limits, Link, Message, Outgoing,
    Received, SendError, Sent, TransferId, Transmit, Wire,
};
use bytes::Bytes;

use super::pieces::Seen;

pub(super) struct Side {
    pub(super) link: Link,
    /// Whether nothing invented, lost or repeated came in, and nothing that came was refused.
    pub(super) undisturbed: bool,
    wire: Arc<dyn Wire>,
    limits: Limits,
    /// Whether the link waits for the transport to confirm its frames.
    confirms: bool,
    /// Whether the link answers the peer's transfers with frames of its own.
    answers: bool,
    /// The largest cap so far: a transfer keeps the cap that it was planned for.
    cap: usize,
    /// Messages that the link accepted and whose outcome it has not reported.
    owed: BTreeMap<TransferId, Owed>,
    /// Messages of which at least one frame was sent.
    begun: Vec<Bytes>,
    /// Messages that the link reported as sent.
    out: Vec<Bytes>,
    /// Messages that the application has not dropped.
    held: Vec<Message>,
    delivered: Vec<Bytes>,
    seen: Seen,
    closed: bool,
}

struct Owed {
    message: Outgoing,
    frames: usize,
    /// Whether it could not be sent and keeps its place in the lane.
    failed: bool,
}

impl Side {
    pub(super) fn new(link: Link, wire: Arc<dyn Wire>, config: Config) -> Self {
        Self {
            link,
            undisturbed: true,
            wire,
            confirms: config.confirm.is_some(),
            answers: config.rules.accept || config.rules.abort,
            limits: config.limits,
            cap: 0,
            owed: BTreeMap::new(),
            begun: Vec::new(),
            out: Vec::new(),
            held: Vec::new(),
            delivered: Vec::new(),
            seen: Seen::default(),
            closed: false,
        }
    }

    pub(super) fn set_cap(&mut self, cap: Cap) {
        self.cap = self.cap.max(cap.max);
        self.link.set_cap(cap);
    }

    pub(super) fn set_receives_pieces(&mut self, receives: bool) {
        self.undisturbed = false;
        self.link.set_receives_pieces(receives);
    }

    pub(super) fn send(&mut self, now: Instant, message: Outgoing) {
        match self.link.send(now, message.clone()) {
            Ok(id) => {
                assert!(!self.closed);
                let owed = Owed {
                    message,
                    frames: 0,
                    failed: false,
                };
                assert!(self.owed.insert(id, owed).is_none(), "an id twice");
            }
            Err(rejected) => {
                assert_eq!(rejected.message.bytes, message.bytes, "it comes back");
                assert_eq!(self.closed, rejected.error == SendError::Closed);
            }
        }
        self.take_events(None);
    }

    pub(super) fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        let transmit = self.link.poll_transmit(now, out);
        if let Some(transmit) = &transmit {
            assert!(!self.closed, "a closed link is silent");
            assert!(!out.is_empty() || transmit.kind == FrameKind::Whole);
            assert!(
                out.len() <= self.cap,
                "{:?} of {} bytes under a cap of {}",
                transmit.kind,
                out.len(),
                self.cap
            );
            if let Some(id) = transmit.transfer {
                let owed = self.owed.get_mut(&id).expect("a message of ours");
                assert_eq!(transmit.tag, owed.message.tag);
                if owed.frames == 0 {
                    self.begun.push(owed.message.bytes.clone());
                }
                owed.frames += 1;
            }
        } else {
            assert!(out.is_empty());
        }
        self.take_events(None);
        transmit
    }

    pub(super) fn sent(&mut self, now: Instant, frame: FrameId, outcome: Sent) {
        self.link.handle_sent(now, frame, outcome);
        self.take_events(None);
    }

    pub(super) fn receive(&mut self, now: Instant, frame: Frame) {
        self.seen.note(&*self.wire, &frame);
        let received = self.link.handle_frame(now, frame.clone());
        if self.closed {
            assert_eq!(received, Received::Ignored, "a closed link is deaf");
        }
        if let Received::Fault(fault) = &received {
            drop(fault.to_string());
            self.undisturbed = false;
        }
        if received == Received::Ignored {
            self.undisturbed = false;
        }
        self.take_events(Some((&frame, &received)));
    }

    pub(super) fn pass(&mut self, now: Instant) {
        self.link.handle_timeout(now);
        if let Some((at, _)) = self.link.poll_timeout() {
            assert!(at > now, "what was due is done");
        }
        self.take_events(None);
    }

    pub(super) fn discard(&mut self, key: Key) {
        self.undisturbed = false;
        self.link.discard(key);
        self.take_events(None);
    }

    pub(super) fn cancel(&mut self, which: usize) {
        let Some((&id, owed)) = self.owed.iter().nth(which) else {
            return;
        };
        let frames = owed.frames;
        match self.link.cancel(id) {
            Cancelled::Unsent => assert_eq!(frames, 0, "a frame of it is out"),
            Cancelled::Stopped => assert!(frames > 0, "nothing of it is out"),
            Cancelled::TooLate => {
                assert!(frames > 0);
                return;
            }
        }
        self.owed.remove(&id);
        self.take_events(None);
    }

    pub(super) fn replace(&mut self, which: usize, with: Option<Vec<u8>>) {
        let failed = self.owed.iter().filter(|(_, owed)| owed.failed);
        let Some(id) = failed.map(|(&id, _)| id).nth(which) else {
            return;
        };
        let Some(owed) = self.owed.get_mut(&id) else {
            return;
        };
        let with = with.map(|bytes| Outgoing {
            bytes: bytes.into(),
            ..owed.message.clone()
        });
        assert!(self.link.replace(id, with.clone()), "it has failed");
        match with {
            Some(message) => {
                owed.message = message;
                owed.failed = false;
                owed.frames = 0;
            }
            None => drop(self.owed.remove(&id)),
        }
        self.take_events(None);
    }

    /// Does all planning that the link leaves to its caller.
    pub(super) fn plan(&mut self) {
        while let Some(job) = self.link.poll_plan() {
            self.link.handle_planned(job.run());
            self.take_events(None);
        }
    }

    pub(super) fn close(&mut self) {
        self.link.close(1000, "é".repeat(100).as_str());
        self.take_events(None);
        assert!(self.closed);
    }

    pub(super) fn drop_messages(&mut self) {
        self.held.clear();
    }

    /// Takes all events, and checks off the messages they report on. `after`: the frame that just came in.
    fn take_events(&mut self, after: Option<(&Frame, &Received)>) {
        let mut done = None;
        while let Some(event) = self.link.poll_event() {
            assert!(!self.closed, "{event:?} after the end");
            match event {
                Event::Message(message) => {
                    let (frame, _) = after.expect("only a frame brings a message");
                    self.explain(&message, frame);
                    assert!(done.replace(message.id).is_none(), "one frame, one message");
                    self.delivered.push(message.bytes.clone());
                    self.held.push(message);
                }
                Event::Sent { id, tag, frames } => {
                    let owed = self.owed.remove(&id).expect("sent once");
                    assert_eq!(owed.message.tag, tag);
                    assert!(owed.frames > 0 && !owed.failed);
                    assert!((1..=owed.frames as u64).contains(&frames));
                    self.out.push(owed.message.bytes);
                }
                Event::SendFailed {
                    id,
                    tag,
                    error,
                    bytes,
                } => {
                    drop(error.to_string());
                    let owed = self.owed.get_mut(&id).expect("it fails once");
                    assert_eq!((owed.message.tag, &owed.message.bytes), (tag, &bytes));
                    assert!(!owed.failed);
                    owed.failed = true;
                }
                Event::Closed(closed) => {
                    assert!(closed.reason.len() <= 123);
                    self.closed = true;
                    self.owed.clear();
                    self.undisturbed = false;
                }
                Event::TransferFailed(fault) | Event::Fault(fault) => {
                    drop(fault.to_string());
                    self.undisturbed = false;
                }
                Event::Progress { done, total, .. } => {
                    assert!(total.is_none_or(|total| done as u64 <= total));
                }
                Event::Accepted { id, tag } => {
                    assert!(
                        self.owed
                            .get(&id)
                            .is_some_and(|owed| owed.message.tag == tag)
                    );
                }
                _ => {}
            }
        }
        let expected = match after {
            Some((_, Received::Done(id))) => Some(*id),
            _ => None,
        };
        assert_eq!(done, expected, "a frame tells of the message it completed");
    }

    /// Checks that a message is all of a frame, or all pieces of a transfer: nothing partial is delivered.
    fn explain(&self, message: &Message, frame: &Frame) {
        let Some(key) = &message.key else {
            let all = frame.bytes();
            // loro has a prefix of one byte.
            assert!(message.bytes == all || message.bytes == all[1..]);
            return;
        };
        assert!(message.bytes.len() <= self.limits.message);
        assert!(
            self.seen.explain(key, &message.bytes),
            "{key}: nobody sent {:?}",
            message.bytes
        );
    }

    /// Checks everything that must hold between two steps.
    pub(super) fn check(&self) {
        let (link, limits) = (&self.link, &self.limits);
        let open = link.open_transfers();
        let charged: usize = self.held.iter().map(Message::charged).sum();
        assert!(link.memory() <= limits.memory);
        assert!(link.memory() >= charged + link.pending_bytes());
        assert!(open <= limits.transfers);
        assert!(link.pending_bytes() <= limits.pending_bytes);
        assert!(link.discarded() <= limits.discarded);
        if open == 0 {
            assert_eq!(link.pending_bytes(), 0);
        }
        // Ended transfers gave their memory back; a response that waits to be sent is charged, too.
        if open == 0 && !self.answers {
            assert_eq!(link.memory(), charged);
        }
        let queued: usize = self
            .owed
            .values()
            .map(|owed| owed.message.bytes.len())
            .sum();
        assert_eq!(link.queued_bytes(), queued);
        if open == 0 && self.owed.values().all(|owed| owed.frames == 0) {
            assert_eq!(link.poll_timeout(), None, "nobody waits for anything");
        }
        assert_eq!(link.closed().is_some(), self.closed);
        if self.closed {
            assert_eq!((open, link.poll_timeout()), (0, None));
            assert!(!link.wants_frame());
        }
    }

    /// Checks that what was sent undisturbed was delivered, each message once.
    pub(super) fn check_delivery_to(&self, other: &Self) {
        if !other.undisturbed || self.closed {
            return;
        }
        assert!(within(&self.out, &other.delivered), "lost on the way");
        assert!(within(&other.delivered, &self.begun), "more came than went");
        // A message that has begun goes on, unless it waits for a confirmation or for a timer.
        let under_way = |owed: &Owed| owed.frames > 0 && !owed.failed;
        let stuck = self.owed.values().any(under_way);
        assert!(!stuck || self.confirms || self.link.poll_timeout().is_some());
    }
}

/// Whether each of `some` has a partner of its own in `all`.
fn within(some: &[Bytes], all: &[Bytes]) -> bool {
    let mut left: Vec<&Bytes> = all.iter().collect();
    some.iter().all(|one| {
        let at = left.iter().position(|other| *other == one);
        at.map(|at| left.swap_remove(at)).is_some()
    })
}
