//! Sending: queues and plans messages, and makes one frame at a time when the transport can take it.

use std::time::Instant;

use bytes::Bytes;

use super::receive::CONTROL_MAX;
use super::{Cancelled, Link, PlanJob, Planned, Received, Sent};
use crate::event::{Event, ProgressOf};
use crate::frame::{Carries, FrameId, FrameKind, Lane, TransferId, Transmit};
use crate::outbox::{Cursor, Entry, Outgoing, Rejected, Sending, State, Unconfirmed};
use crate::rules::OnCancel;
use crate::timers::Timer;
use crate::wire::{Part, Plan, PlanOptions};
use crate::{Key, SendError, Unit};

/// The close code of a sender that cannot finish a message that it began.
const GAVE_UP: u16 = 4413;

/// How many control messages are queued; real protocols use a few.
const CONTROLS: usize = 16;

/// The close code of a link whose transport failed.
const LOST: u16 = 1011;

impl Link {
    /// Queues a message. It is planned when its turn comes; the error returns a message that was
    /// rejected.
    pub fn send(&mut self, _now: Instant, message: Outgoing) -> Result<TransferId, Rejected> {
        let limits = &self.config.limits;
        let (count, bytes) = (self.outbox.messages.len(), self.outbox.bytes);
        let error = if self.closed.is_some() {
            Some(SendError::Closed)
        } else if count >= limits.queued {
            Some(SendError::QueueFull {
                queued: count,
                limit: limits.queued,
                unit: Unit::Messages,
            })
        } else if count > 0 && bytes.saturating_add(message.bytes.len()) > limits.queued_bytes {
            // A message that is larger than the limit is accepted into an empty queue.
            Some(SendError::QueueFull {
                queued: bytes,
                limit: limits.queued_bytes,
                unit: Unit::Bytes,
            })
        } else {
            None
        };
        match error {
            None => Ok(self.outbox.push(message)),
            Some(error) => {
                self.was_full |= matches!(error, SendError::QueueFull { .. });
                Err(Rejected {
                    error,
                    message: Box::new(message),
                })
            }
        }
    }

    /// Puts another message in the place of one that failed, in its lane and with its id, or frees the
    /// place. Returns false if no message with that id has failed.
    pub fn replace(&mut self, id: TransferId, with: Option<Outgoing>) -> bool {
        let Some(out) = self.outbox.messages.get_mut(id) else {
            return false;
        };
        if !matches!(out.state, State::Failed) {
            return false;
        }
        let Some(message) = with else {
            self.remove_outgoing(id);
            return true;
        };
        let lane = out.message.lane;
        self.outbox.bytes = self.outbox.bytes - out.message.bytes.len() + message.bytes.len();
        *out = Entry::new(Outgoing { lane, ..message });
        self.outbox.wake(lane);
        true
    }

    /// Cancels a message, as far as the format allows.
    pub fn cancel(&mut self, id: TransferId) -> Cancelled {
        let Some(out) = self.outbox.messages.get(id) else {
            return Cancelled::TooLate;
        };
        if out.begun.is_none() {
            self.remove_outgoing(id);
            return Cancelled::Unsent;
        }
        let (failed, all_out) = match &out.state {
            State::Sending(sending) => (false, sending.cursor == Cursor::Settling),
            _ => (true, false),
        };
        if !failed && (all_out || self.config.rules.cancel == OnCancel::Finish) {
            return Cancelled::TooLate;
        }
        self.abort_outgoing(id, "cancelled by the sender");
        self.remove_outgoing(id);
        Cancelled::Stopped
    }

    /// Planning work that may run on another thread; pass its result to
    /// [`handle_planned`](Self::handle_planned).
    pub fn poll_plan(&mut self) -> Option<PlanJob> {
        loop {
            let id = self.jobs.pop_front()?;
            let Some(out) = self.outbox.messages.get(id) else {
                continue;
            };
            return Some(PlanJob {
                id,
                generation: self.generation,
                wire: self.send.clone(),
                message: out.message.bytes.clone(),
                key: out.message.key.clone(),
                may_cut: out.message.may_cut,
                known_text: out.message.known_text,
                peer: self.peer.clone(),
                cap: out.message.cap(&self.cap),
            });
        }
    }

    /// Takes the result of a [`PlanJob`].
    pub fn handle_planned(&mut self, planned: Planned) {
        let Some(out) = self.outbox.messages.get_mut(planned.id) else {
            return;
        };
        if !matches!(out.state, State::Planning) {
            return;
        }
        if planned.generation != self.generation {
            // The peer or the cap has changed meanwhile: plan again.
            self.jobs.push_back(planned.id);
            return;
        }
        let lane = out.message.lane;
        self.planned(planned.id, planned.plan);
        self.outbox.wake(lane);
    }

    /// Queues a control message: a text frame besides the messages, such as a ping. It is sent before
    /// everything queued, but not within a message that must stay contiguous. A control message that is
    /// queued already is not queued again, so that a peer cannot pile up answers to its pings.
    ///
    /// # Errors
    /// If it is too long, too many others wait, or the link is closed.
    pub fn send_control(&mut self, text: impl Into<Bytes>) -> Result<(), SendError> {
        let text = text.into();
        if self.closed.is_some() {
            return Err(SendError::Closed);
        }
        if text.len() > CONTROL_MAX {
            let (size, limit) = (text.len(), CONTROL_MAX);
            return Err(SendError::MessageTooLarge { size, limit });
        }
        let waiting = &mut self.outbox.controls;
        if waiting.contains(&text) {
            return Ok(());
        }
        if waiting.len() >= CONTROLS {
            return Err(SendError::QueueFull {
                queued: waiting.len(),
                limit: CONTROLS,
                unit: Unit::Words,
            });
        }
        waiting.push_back(text);
        Ok(())
    }

    /// Appends the next frame to `out`, if there is one that may be sent now.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        if self.closed.is_some() {
            return None;
        }
        if let Some(id) = self.outbox.burst {
            return self.advance(now, id, out);
        }
        if let Some(text) = self.outbox.controls.pop_front() {
            out.extend_from_slice(&text);
            let transmit = self.transmit(None, 0, FrameKind::Control);
            return Some(Transmit {
                carries: Carries::Text,
                ..transmit
            });
        }
        // Alternates with the lanes: a peer that provokes many answers must not starve them.
        if !std::mem::replace(&mut self.replied, false)
            && !self.outbox.replies.is_empty()
            && let Some(transmit) = self.poll_reply(out)
        {
            self.replied = true;
            return Some(transmit);
        }
        while let Some((lane, id)) = self.outbox.pick() {
            if let Some(transmit) = self.send_whole(lane, id, out) {
                return Some(transmit);
            }
            if let Some(transmit) = self.advance(now, id, out) {
                self.outbox.wake(lane);
                return Some(transmit);
            }
        }
        if self.outbox.replies.is_empty() {
            return None;
        }
        self.poll_reply(out)
    }

    #[cold]
    fn poll_reply(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        while let Some(reply) = self.outbox.replies.pop_front() {
            let part = match reply.kind {
                FrameKind::Accept => Part::Accept {
                    key: &reply.key,
                    seq: reply.seq,
                },
                _ => Part::Abort {
                    key: &reply.key,
                    seq: reply.seq,
                    reason: &reply.reason,
                },
            };
            let start = out.len();
            self.send.write(part, out);
            // The peer chose the key, which may be so long that the frame exceeds the cap: it is
            // dropped.
            if self.cap.weigh(&out[start..]) <= self.cap.max {
                let transmit = self.transmit(None, 0, reply.kind);
                let answers = Some(reply.key);
                return Some(Transmit {
                    answers,
                    ..transmit
                });
            }
            out.truncate(start);
        }
        None
    }

    /// Takes the transport's report on a frame; required if
    /// [`Config::confirm`](crate::Config::confirm) is set. Otherwise the message of a lost frame is
    /// not known, and the link closes.
    pub fn handle_sent(&mut self, _now: Instant, frame: FrameId, outcome: Sent) {
        if self.config.confirm.is_none() && outcome != Sent::Ok {
            self.close(LOST, "the transport lost a frame");
            return;
        }
        let Some(frame) = self.outbox.frames.remove(&frame) else {
            return;
        };
        let (id, size) = (frame.message, frame.size);
        let Some(out) = self.outbox.messages.get_mut(id) else {
            return;
        };
        let State::Sending(sending) = &mut out.state else {
            return;
        };
        sending.unconfirmed.remove(&frame.number);
        match outcome {
            Sent::Ok if sending.cursor == Cursor::Settling && sending.unconfirmed.is_empty() => {
                self.done(id)
            }
            Sent::Ok => {
                let lane = out.message.lane;
                self.outbox.wake(lane);
            }
            Sent::TooLarge => self.fail_outgoing(id, SendError::Refused { size }),
            Sent::Failed => self.fail_outgoing(id, SendError::Lost),
        }
    }

    /// Plans a message and, if it fits in one frame, makes that frame and removes the message at once: most
    /// messages are such, and no state has to be kept for them. If this returns `None`, no frame was made,
    /// and [`advance`](Self::advance) continues with the message and with its plan, if one was made.
    #[inline]
    fn send_whole(&mut self, lane: Lane, id: TransferId, out: &mut Vec<u8>) -> Option<Transmit> {
        if self.config.confirm.is_some() {
            return None;
        }
        let entry = self.outbox.messages.get(id)?;
        let (tag, size) = (entry.message.tag, entry.message.bytes.len());
        if !matches!(entry.state, State::Queued) || self.plans_elsewhere(size) {
            return None;
        }
        match self.plan_now(entry) {
            Ok(Plan::Whole) => {}
            plan => {
                self.planned(id, plan);
                return None;
            }
        }
        self.send.write(Part::Whole(&entry.message.bytes), out);
        self.outbox.remove_sent(lane, id, size);
        self.report_room();
        let frames = 1;
        self.events.push(Event::Sent { id, tag, frames });
        Some(self.transmit(Some(id), tag, FrameKind::Whole))
    }

    /// Makes the next frame of a message; `None` if it has to wait.
    fn advance(&mut self, now: Instant, id: TransferId, buffer: &mut Vec<u8>) -> Option<Transmit> {
        self.plan(id);
        let most = self
            .peer
            .limits()
            .map_or(usize::MAX, |limits| limits.transfers.max(1));
        let out = self.outbox.messages.get_mut(id)?;
        let (lane, tag) = (out.message.lane, out.message.tag);
        let State::Sending(sending) = &mut out.state else {
            return None;
        };
        let in_pieces = sending.pieces().is_some();
        if in_pieces && !sending.counted {
            if self.outbox.counted >= most {
                self.outbox.wait_for_slot(lane);
                return None;
            }
            sending.counted = true;
            self.outbox.counted += 1;
        }
        if !sending.may_send(self.config.confirm) {
            return None;
        }
        let start = buffer.len();
        let kind = sending.write(&*self.send, &out.message.bytes, buffer);
        out.last = Some(now);
        out.begun.get_or_insert(now);
        if self.config.confirm.is_some() {
            sending.unconfirmed.insert(sending.made);
            let frame = Unconfirmed {
                message: id,
                number: sending.made,
                size: buffer.len() - start,
            };
            self.outbox
                .frames
                .insert(FrameId(self.next_frame + 1), frame);
        }
        sending.made += 1;
        let (cursor, settled) = (sending.cursor, sending.unconfirmed.is_empty());
        let transmit = self.transmit(Some(id), tag, kind);
        if in_pieces && !self.config.rules.interleave {
            self.outbox.burst = Some(id);
        }
        if in_pieces {
            self.set_timer(now, id, cursor);
            self.report_sent_bytes(id);
        }
        if cursor == Cursor::Settling && settled {
            self.done(id);
        }
        Some(transmit)
    }

    #[inline(always)]
    fn transmit(&mut self, transfer: Option<TransferId>, tag: u64, kind: FrameKind) -> Transmit {
        self.next_frame += 1;
        Transmit {
            frame: FrameId(self.next_frame),
            transfer,
            tag,
            kind,
            carries: self.sends,
            answers: None,
        }
    }

    /// Plans a message whose turn has come, or queues the planning for another thread.
    fn plan(&mut self, id: TransferId) {
        let Some(out) = self.outbox.messages.get_mut(id) else {
            return;
        };
        match &out.state {
            State::Queued => {}
            // The peer or the cap has changed before its first frame.
            State::Sending(sending)
                if out.begun.is_none() && sending.generation != self.generation =>
            {
                self.outbox.release(id);
            }
            _ => return,
        }
        let Some(out) = self.outbox.messages.get(id) else {
            return;
        };
        if !self.plans_elsewhere(out.message.bytes.len()) {
            let plan = self.plan_now(out);
            self.planned(id, plan);
        } else if let Some(out) = self.outbox.messages.get_mut(id) {
            out.state = State::Planning;
            self.jobs.push_back(id);
        }
    }

    /// Whether a message of this size is planned on another thread.
    #[inline]
    fn plans_elsewhere(&self, size: usize) -> bool {
        self.config.plan_elsewhere.is_some_and(|from| size >= from)
    }

    #[inline]
    fn plan_now(&self, out: &Entry) -> Result<Plan, SendError> {
        let own;
        let cap = match out.message.cut_above {
            None => &self.cap,
            Some(_) => {
                own = out.message.cap(&self.cap);
                &own
            }
        };
        let options = PlanOptions {
            key: out.message.key.as_ref(),
            may_cut: out.message.may_cut,
            known_text: out.message.known_text,
            peer: &self.peer,
            cap,
        };
        self.send.plan(&out.message.bytes, &options)
    }

    fn planned(&mut self, id: TransferId, plan: Result<Plan, SendError>) {
        let plan = plan.and_then(|plan| self.assign_key(id, plan));
        let Some(out) = self.outbox.messages.get_mut(id) else {
            return;
        };
        match plan {
            Ok(plan) => out.state = State::Sending(Sending::new(plan, self.generation)),
            Err(error) => self.hold_failed(id, error),
        }
    }

    /// Sets the key of a plan in pieces: the caller's, or a new one.
    fn assign_key(&mut self, id: TransferId, mut plan: Plan) -> Result<Plan, SendError> {
        if let Plan::Pieces(pieces) = &mut plan {
            let given = self
                .outbox
                .messages
                .get(id)
                .and_then(|out| out.message.key.clone());
            if let Some(key) = given.or_else(|| self.send.mint(&mut self.random)) {
                pieces.key = key;
            }
            if self
                .outbox
                .by_key(&pieces.key)
                .is_some_and(|other| other != id)
            {
                return Err(SendError::KeyInUse {
                    key: pieces.key.clone(),
                });
            }
        }
        Ok(plan)
    }

    /// Handles the peer's accept of a transfer of this side.
    pub(super) fn accepted(&mut self, key: &Key) -> Received {
        let Some(id) = self.outbox.by_key(key) else {
            return Received::Ignored;
        };
        let Some(out) = self.outbox.messages.get_mut(id) else {
            return Received::Ignored;
        };
        let lane = out.message.lane;
        let State::Sending(sending) = &mut out.state else {
            return Received::Ignored;
        };
        if !sending.accept() {
            return Received::Ignored;
        }
        let tag = out.message.tag;
        self.timers.remove(out.timer.take());
        self.outbox.wake(lane);
        self.events.push(Event::Accepted { id, tag });
        Received::Pending
    }

    pub(super) fn not_accepted(&mut self, _now: Instant, id: TransferId) {
        let waited = self.config.rules.timeouts.accept;
        self.fail_outgoing(id, SendError::NotAccepted { waited });
    }

    /// Fails a message if the peer's timeout has expired, which counts from the first or the last
    /// frame.
    pub(super) fn too_slow(&mut self, now: Instant, id: TransferId) {
        let peer = self.peer_timeout();
        let Some(out) = self.outbox.messages.get_mut(id) else {
            return;
        };
        out.timer = None;
        let Some((limit, from_last)) = peer else {
            return;
        };
        let since = if from_last { out.last } else { out.begun };
        let Some(due) = since.and_then(|since| since.checked_add(limit)) else {
            return;
        };
        if due > now {
            out.timer = Some(self.timers.set(due, Timer::Outgoing(id)));
            return;
        }
        let sent = if let State::Sending(sending) = &out.state {
            sending.offset
        } else {
            0
        };
        let size = out.message.bytes.len();
        self.fail_outgoing(id, SendError::TooSlow { size, sent, limit });
    }

    /// Fails a message that was begun.
    pub(super) fn fail_outgoing(&mut self, id: TransferId, error: SendError) {
        let Some(out) = self.outbox.messages.get(id) else {
            return;
        };
        let in_pieces = matches!(&out.state, State::Sending(sending) if sending.pieces().is_some());
        if in_pieces && out.begun.is_some() && self.config.rules.cancel == OnCancel::Finish {
            // The format cannot abort a transfer: the link closes.
            let (tag, reason) = (out.message.tag, error.to_string());
            self.events.push(Event::GaveUp { id, tag, error });
            self.close(GAVE_UP, &reason);
            return;
        }
        // A peer that aborted the transfer itself need not be told.
        if !matches!(error, SendError::Aborted { .. }) {
            self.abort_outgoing(id, &error.to_string());
        }
        self.hold_failed(id, error);
    }

    /// Returns a failed message to the caller, and keeps its place in the lane.
    fn hold_failed(&mut self, id: TransferId, error: SendError) {
        let Some(out) = self.outbox.release(id) else {
            return;
        };
        out.state = State::Failed;
        let (tag, bytes) = (out.message.tag, out.message.bytes.clone());
        let timer = out.timer.take();
        self.timers.remove(timer);
        self.events.push(Event::SendFailed {
            id,
            tag,
            error,
            bytes,
        });
    }

    /// Sends the peer an abort for a message, if the format has one.
    fn abort_outgoing(&mut self, id: TransferId, reason: &str) {
        if self.config.rules.cancel == OnCancel::Abort
            && let Some(out) = self.outbox.messages.get(id)
            && let State::Sending(sending) = &out.state
            && let Some(pieces) = sending.pieces()
        {
            let (key, seq) = (pieces.key.clone(), sending.unused_seq());
            self.reply(FrameKind::Abort, &key, seq, reason.to_owned());
        }
    }

    fn done(&mut self, id: TransferId) {
        let frames = self.outbox.messages.get(id).map_or(0, Entry::frames_made);
        if let Some(tag) = self.remove_outgoing(id) {
            self.events.push(Event::Sent { id, tag, frames });
        }
    }

    /// Removes a message in any state. Returns its tag.
    fn remove_outgoing(&mut self, id: TransferId) -> Option<u64> {
        let (tag, timer) = self.outbox.remove(id)?;
        self.timers.remove(timer);
        self.report_room();
        Some(tag)
    }

    /// Reports that the queue has room again, if it was full.
    #[inline]
    fn report_room(&mut self) {
        let limits = &self.config.limits;
        if self.was_full
            && self.outbox.bytes <= limits.queued_bytes / 2
            && self.outbox.messages.len() <= limits.queued / 2
        {
            self.was_full = false;
            self.events.push(Event::Writable);
        }
    }

    fn set_timer(&mut self, now: Instant, id: TransferId, cursor: Cursor) {
        let peer = self.peer_timeout();
        let accept = self.config.rules.timeouts.accept;
        let Some(out) = self.outbox.messages.get_mut(id) else {
            return;
        };
        if out.timer.is_some() || cursor == Cursor::Settling {
            return;
        }
        out.timer = match cursor {
            Cursor::AwaitAccept => now.checked_add(accept).map(|at| (at, Timer::Accept(id))),
            _ => peer
                .and_then(|(limit, _)| now.checked_add(limit))
                .map(|at| (at, Timer::Outgoing(id))),
        }
        .map(|(at, timer)| self.timers.set(at, timer));
    }

    fn report_sent_bytes(&mut self, id: TransferId) {
        let step = self.config.progress;
        let Some(out) = self.outbox.messages.get_mut(id) else {
            return;
        };
        let State::Sending(sending) = &out.state else {
            return;
        };
        let (done, total) = (sending.offset, out.message.bytes.len());
        if step > 0 && sending.pieces().is_some() && done - out.reported >= step {
            out.reported = done;
            self.report(Event::Progress {
                of: ProgressOf::Outgoing(id),
                done,
                total: Some(total as u64),
            });
        }
    }

    fn peer_timeout(&self) -> Option<(std::time::Duration, bool)> {
        let limits = self.peer.limits()?;
        Some((limits.timeout?, limits.timeout_from_last))
    }
}
