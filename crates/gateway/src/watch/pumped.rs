//! What the pump tells about one end of a session. It is called for every message, so it writes counters at
//! once, looks at the clock once for messages that come together, and keeps the rest back until a few have
//! come or the pump waits.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use breakbulk_link::{Shape, lock};
use breakbulk_net::now;

use super::counts::add_alone;
use super::messages::{Arrived, Departed, Entry, Head, Noted};
use super::record::MessageHead;
use super::session::SideWatch;
use crate::record::NotCarried;

/// So many messages are noted together.
const TOGETHER: usize = 8;

/// The clock is looked at again for a message of more than this many bytes: passing it on takes time.
const LONG: usize = 16 << 10;

/// One end of a session, for its pump.
pub(crate) struct PumpedEnd {
    watch: SideWatch,
    /// The time when the pump began to handle the messages that are there.
    clock: Option<Instant>,
    arrived: Vec<Entry>,
    departed: Vec<Departed>,
}

impl PumpedEnd {
    pub(crate) fn new(watch: SideWatch) -> Self {
        Self {
            watch,
            clock: None,
            arrived: Vec::new(),
            departed: Vec::new(),
        }
    }

    /// Reads what is kept of a message; `None` if no messages are kept.
    pub(crate) fn head(&self, bytes: &[u8], shape: &Shape) -> Option<Head> {
        let (session, _) = self.watch.0.as_ref()?;
        let options = session.inner.options;
        let is_wanted = options.messages > 0 || session.record.is_some();
        is_wanted.then(|| Head::read(bytes, shape, options.bodies))
    }

    /// A message of `bytes` came in by this end, in so many pieces.
    pub(crate) fn received(&mut self, head: Option<Head>, bytes: usize, pieces: u64) -> Noted {
        let Some((session, from)) = &self.watch.0 else {
            return Noted::Made;
        };
        let at = clock(&mut self.clock, bytes);
        let side = session.side(*from);
        side.flows.received.message(bytes);
        let mut number = 0;
        if let Some(head) = head {
            if let Some(record) = &session.record {
                let head = MessageHead {
                    from: *from,
                    method: head.method(),
                    id: head.id(),
                    bytes,
                    pieces,
                };
                record.message(&session.id, &head);
            }
            if session.inner.options.messages > 0 {
                number = session.noted.load(Relaxed);
                add_alone(&session.noted, 1);
                let arrived = Arrived {
                    at,
                    from: *from,
                    bytes,
                    pieces,
                };
                self.arrived
                    .push(Entry::new(arrived, head, side.budget.get()));
                if self.arrived.len() >= TOGETHER {
                    self.note();
                }
            }
        }
        Noted::Passed { at, number }
    }

    /// A message of `bytes` was sent by this end, in so many frames.
    pub(crate) fn sent(&mut self, noted: Noted, bytes: usize, frames: u64) {
        let Some((session, to)) = &self.watch.0 else {
            return;
        };
        if matches!(noted, Noted::Word) {
            return;
        }
        session.side(*to).flows.sent.message(bytes);
        if let Noted::Passed { at, number } = noted {
            let after = clock(&mut self.clock, bytes).saturating_duration_since(at);
            session.times(to.other()).record(after);
            if session.inner.options.messages > 0 {
                self.departed.push(Departed {
                    number,
                    frames,
                    after,
                });
                if self.departed.len() >= TOGETHER {
                    self.note();
                }
            }
        }
    }

    /// Ends a turn: the pump has handled the messages that were there. Called for both ends before
    /// [`show`](Self::show), since a message that was sent by one may have arrived by the other in the same
    /// turn.
    pub(crate) fn turn(&mut self) {
        self.clock = None;
        if !self.arrived.is_empty() {
            self.note();
        }
    }

    /// Makes everything visible that was collected, and sets how many requests of this end have no answer,
    /// and how many messages wait for room in its queue.
    pub(crate) fn show(&mut self, open_requests: usize, waiting: usize) {
        if !self.departed.is_empty() {
            self.note();
        }
        if let Some((session, side)) = &self.watch.0 {
            let side = session.side(*side);
            side.open_requests.store(open_requests, Relaxed);
            side.waiting.store(waiting, Relaxed);
        }
    }

    /// Something went wrong at this end.
    pub(crate) fn fault(&self, what: impl std::fmt::Display) {
        self.watch.fault(what);
    }

    /// Tells the recorder, if there is one, that a message was not passed on because of a limit of this end.
    pub(crate) fn not_carried(&self, what: impl FnOnce() -> NotCarried) {
        self.watch.not_carried(what);
    }

    /// Moves what was collected to where it is shown.
    fn note(&mut self) {
        let Some((session, _)) = &self.watch.0 else {
            return;
        };
        let mut messages = lock(&session.messages);
        for entry in self.arrived.drain(..) {
            messages.add(session.inner.options.messages, entry);
        }
        // A message that has not been added yet was collected by the other end, which adds it later.
        self.departed.retain(|departed| !messages.sent(*departed));
    }
}

impl Drop for PumpedEnd {
    fn drop(&mut self) {
        self.note();
    }
}

/// The time for a message of so many bytes.
fn clock(clock: &mut Option<Instant>, bytes: usize) -> Instant {
    match clock {
        Some(at) if bytes <= LONG => *at,
        _ => *clock.insert(now()),
    }
}
