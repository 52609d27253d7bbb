//! What comes in: frames become messages, or faults with a scope.

use std::time::Instant;

use bytes::Bytes;

use super::{Link, Received};
use crate::assembly::Assembly;
use crate::budget::MESSAGE_CHARGE;
use crate::event::{Event, Message, ProgressOf};
use crate::frame::{Frame, FrameKind, MessageId};
use crate::inbox::Taken;
use crate::outbox::Reply;
use crate::rules::{Order, Scope};
use crate::wire::{Inbound, Opening, Piece, Shape};
use crate::{Fault, FaultKind, Key, SendError};

/// The WebSocket code for "try again later".
const BUSY: u16 = 1013;

/// The number of an abort that answers an opening whose own number cannot be trusted.
const REFUSED: u64 = 2;

/// So many answers wait at most; more than that is a flood, and an abort is a courtesy.
const REPLIES: usize = 256;

/// The longest word of a transport's own; real ones have a handful of letters.
pub(super) const CONTROL_MAX: usize = 256;

impl Link {
    /// A frame came in.
    pub fn handle_frame(&mut self, now: Instant, frame: Frame) -> Received {
        if self.closed.is_some() {
            return Received::Ignored;
        }
        let received = self.try_frame(now, &frame);
        self.report_evicted();
        received.unwrap_or_else(|fault| self.fault(fault))
    }

    /// Late frames with this key are dropped from now on, until the last of them came by.
    pub fn discard(&mut self, key: Key) {
        self.inbox.discard(key, &self.config, &mut self.timers);
    }

    fn try_frame(&mut self, now: Instant, frame: &Frame) -> Result<Received, Fault> {
        let (size, limit) = (frame.bytes().len(), self.config.limits.frame);
        if size > limit {
            return Err(FaultKind::FrameTooLarge { size, limit }.into());
        }
        let wire = self.receive.clone();
        // Only a piece that was decoded is believed under the canonical form: that it is wrong, late
        // or unwanted must be what the general form says too.
        if let Some(piece) = wire.read_canonical(frame)
            && !self.inbox.is_discarded(&piece.key)
            && let Ok(taken @ (Taken::Pending | Taken::Complete(_))) = self.piece(now, &piece)
        {
            return self.settle(&piece.key, taken);
        }
        match wire.read(frame)? {
            Inbound::Whole(bytes, shape) => self.whole(bytes, shape),
            Inbound::Piece(piece) => {
                let mut taken = self.piece(now, &piece);
                // An unfinished burst must not stand in the way of the one that ends it.
                if matches!(taken, Err(FaultKind::Busy)) && self.begins_burst(&piece) {
                    self.supersede(None);
                    taken = self.piece(now, &piece);
                }
                let taken = taken.map_err(|kind| kind.of(&piece.key))?;
                self.settle(&piece.key, taken)
            }
            Inbound::Open(opening) => self.open(now, opening),
            Inbound::Close { key, seq } => {
                let taken = self
                    .inbox
                    .close(&key, seq, &self.config)
                    .map_err(|kind| kind.of(&key))?;
                self.settle(&key, taken)
            }
            Inbound::Accept { key } => Ok(self.accepted(&key)),
            Inbound::Abort { key, reason } => Ok(self.aborted(key, reason)),
            Inbound::Control(text) => self.control(&text),
        }
    }

    fn control(&mut self, text: &[u8]) -> Result<Received, Fault> {
        if text.len() > CONTROL_MAX {
            let (size, limit) = (text.len(), CONTROL_MAX);
            return Err(FaultKind::FrameTooLarge { size, limit }.into());
        }
        // A copy: what waits for the application must not pin the transport's buffer.
        if !self.report(Event::Control(Bytes::copy_from_slice(text))) {
            return Err(FaultKind::Busy.into());
        }
        Ok(Received::Pending)
    }

    fn whole(&mut self, bytes: Bytes, shape: Shape) -> Result<Received, Fault> {
        let (size, limit) = (bytes.len() as u64, self.config.limits.message as u64);
        if size > limit {
            return Err(FaultKind::MessageTooLarge { size, limit }.into());
        }
        if self.config.rules.contiguous {
            self.supersede(None);
        }
        let charge = self
            .budget
            .charge(bytes.len() + MESSAGE_CHARGE)
            .map_err(|_| FaultKind::Busy)?;
        Ok(self.deliver(|id| Message {
            id,
            bytes,
            shape,
            key: None,
            charge,
        }))
    }

    fn open(&mut self, now: Instant, opening: Opening) -> Result<Received, Fault> {
        let (key, seq) = (opening.key.clone(), opening.seq);
        if !self.config.receives_pieces {
            return Err(FaultKind::NotNegotiated.of(&key));
        }
        let opened = self
            .inbox
            .open(now, opening, &self.config, &self.budget, &mut self.timers);
        if let Err(kind) = opened {
            if self.config.rules.abort && kind != FaultKind::Reopened {
                self.reply(
                    FrameKind::Abort,
                    &key,
                    seq.saturating_add(1),
                    kind.to_string(),
                );
            }
            return Err(kind.of(&key));
        }
        if self.config.tell_opened && !self.report(Event::Opened(key.clone())) {
            return Err(FaultKind::Busy.of(&key));
        }
        if self.config.rules.accept {
            self.reply(
                FrameKind::Accept,
                &key,
                seq.saturating_add(1),
                String::new(),
            );
        }
        Ok(Received::Pending)
    }

    fn piece(&mut self, now: Instant, piece: &Piece<'_>) -> Result<Taken, FaultKind> {
        if !self.config.receives_pieces {
            return Err(FaultKind::NotNegotiated);
        }
        let begins = self.begins_burst(piece);
        let known = self.inbox.len();
        let wire = &*self.receive;
        let taken = self.inbox.piece(
            now,
            piece,
            wire,
            &self.config,
            &self.budget,
            &mut self.timers,
        )?;
        // Who defends against overtaking must know of every transfer that it has to wait for.
        if self.config.tell_opened
            && self.inbox.len() > known
            && !self.report(Event::Opened(piece.key.clone()))
        {
            return Err(FaultKind::Busy);
        }
        if begins {
            self.supersede(Some(&piece.key));
        }
        Ok(taken)
    }

    fn begins_burst(&mut self, piece: &Piece<'_>) -> bool {
        self.config.rules.contiguous && piece.seq == 0 && self.inbox.find(&piece.key).is_none()
    }

    /// After a frame of a transfer was taken: moves on what became contiguous, and finishes what is whole.
    fn settle(&mut self, key: &Key, taken: Taken) -> Result<Received, Fault> {
        let taken = match taken {
            Taken::Pending if self.config.rules.order != Order::Strict => self
                .inbox
                .drain(key, &self.config)
                .map_err(|kind| kind.of(key))?,
            taken => taken,
        };
        match taken {
            Taken::Complete(serial) => self.complete(serial).map_err(|kind| kind.of(key)),
            Taken::Pending => {
                self.tell_incoming(key);
                Ok(Received::Pending)
            }
            Taken::Drained => {
                self.report(Event::Discarded(key.clone()));
                Ok(Received::Ignored)
            }
            Taken::Ignored => Ok(Received::Ignored),
        }
    }

    fn complete(&mut self, serial: u64) -> Result<Received, FaultKind> {
        let Some(assembly) = self.inbox.get(serial) else {
            return Ok(Received::Ignored);
        };
        assembly.check_size()?;
        let shape = self.receive.finish(&assembly.whole())?;
        let Some(assembly) = self.inbox.remove(serial, &mut self.timers) else {
            return Ok(Received::Ignored);
        };
        let (key, buffer, mut charge) = assembly.into_message();
        let cost = buffer.capacity() + MESSAGE_CHARGE + key.allocated();
        charge.shrink(charge.amount().saturating_sub(cost));
        Ok(self.deliver(|id| Message {
            id,
            bytes: buffer.into(),
            shape,
            key: Some(key),
            charge,
        }))
    }

    fn deliver(&mut self, message: impl FnOnce(MessageId) -> Message) -> Received {
        self.next_message += 1;
        let id = MessageId(self.next_message);
        let mut message = message(id);
        message.charge.finish();
        self.events.push(Event::Message(message));
        Received::Done(id)
    }

    /// Ends what the rules say this fault ends.
    fn fault(&mut self, fault: Fault) -> Received {
        let fault = match (&fault.kind, &fault.key) {
            // A bad opening of a transfer that is under way is a second opening, and one of no
            // transfer is refused like any other.
            (FaultKind::BadOpening { .. } | FaultKind::UnknownMode, Some(key)) => {
                if self.inbox.find(key).is_some() {
                    FaultKind::Reopened.of(key)
                } else {
                    if self.config.rules.abort {
                        self.reply(FrameKind::Abort, key, REFUSED, fault.kind.to_string());
                    }
                    fault
                }
            }
            _ => fault,
        };
        match self.config.rules.scopes.of(&fault.kind) {
            Scope::Silent => return Received::Ignored,
            Scope::Report => drop(self.report(Event::Fault(fault.clone()))),
            Scope::Transfer => self.fail_incoming(fault.clone()),
            Scope::Link => {
                // Our own shortage is no fault of the peer's.
                let (code, words) = self.config.rules.close;
                let (code, reason) = match &fault.kind {
                    FaultKind::Busy => (BUSY, fault.kind.to_string()),
                    kind => (code, format!("{words}: {kind}")),
                };
                self.close(code, &reason);
            }
        }
        Received::Fault(fault)
    }

    fn fail_incoming(&mut self, fault: Fault) {
        let Some(key) = fault.key.clone() else {
            self.report(Event::Fault(fault));
            return;
        };
        let Some(assembly) = self.inbox.remove_key(&key, &mut self.timers) else {
            self.report(Event::TransferFailed(fault));
            return;
        };
        if self.config.rules.abort && !matches!(fault.kind, FaultKind::Aborted { .. }) {
            // Above the number of the closing frame, in either layout.
            let opened = assembly.opening.as_ref().map_or(0, |opening| opening.seq);
            let beyond = opened.saturating_add(assembly.count()).saturating_add(3);
            self.reply(FrameKind::Abort, &key, beyond, fault.kind.to_string());
        }
        self.tell_end(assembly, fault.kind);
    }

    /// Tells that a transfer ended without a message; what it was charged pays for that.
    fn tell_end(&mut self, assembly: Assembly, kind: FaultKind) {
        let (key, charge) = assembly.emptied().into_charge();
        let event = Event::TransferFailed(kind.of(&key));
        self.events.push_charged(event, charge);
    }

    /// Tells of something that the peer did; a flood of it is counted, not kept. False: not kept.
    pub(super) fn report(&mut self, event: Event) -> bool {
        self.events.report(event, &self.budget)
    }

    fn aborted(&mut self, key: Key, reason: String) -> Received {
        if self.inbox.find(&key).is_some() {
            return self.fault(FaultKind::Aborted { reason }.of(&key));
        }
        match self.outbox.by_key(&key) {
            Some(id) => {
                self.fail_outgoing(id, SendError::Aborted { reason });
                Received::Pending
            }
            None => Received::Ignored,
        }
    }

    pub(super) fn expire(&mut self, now: Instant, serial: u64) {
        if let Some(timer) = self
            .inbox
            .expire(now, serial, &self.config, &mut self.timers)
            && let Some(key) = self.inbox.get(serial).map(|assembly| assembly.key.clone())
        {
            self.fault(FaultKind::TimedOut { timer }.of(&key));
            // Silent is for the peer: whoever listens here is told, and the transfer is gone.
            if let Some(assembly) = self.inbox.remove(serial, &mut self.timers) {
                self.tell_end(assembly, FaultKind::TimedOut { timer });
            }
        }
    }

    /// A new burst ends all that is unfinished.
    fn supersede(&mut self, keep: Option<&Key>) {
        for assembly in self.inbox.remove_others(keep, &mut self.timers) {
            self.tell_end(assembly, FaultKind::Superseded);
        }
    }

    fn report_evicted(&mut self) {
        for assembly in self.inbox.take_evicted() {
            self.tell_end(assembly, FaultKind::Evicted);
        }
    }

    pub(super) fn reply(&mut self, kind: FrameKind, key: &Key, seq: u64, reason: String) {
        let cost = 2 * size_of::<Reply>() + key.allocated() + reason.capacity();
        if self.outbox.replies.len() < REPLIES
            && let Ok(charge) = self.budget.charge(cost)
        {
            self.outbox.replies.push_back(Reply {
                kind,
                key: key.clone(),
                seq,
                reason,
                _charge: charge,
            });
        }
    }

    fn tell_incoming(&mut self, key: &Key) {
        let step = self.config.progress;
        let Some((_, assembly)) = self.inbox.find(key) else {
            return;
        };
        let done = assembly.received();
        if step > 0 && done - assembly.told.min(done) >= step {
            assembly.told = done;
            let total = assembly.declared();
            self.report(Event::Progress {
                of: ProgressOf::Incoming(key.clone()),
                done,
                total,
            });
        }
    }
}
