//! Receiving: turns frames into messages, and handles faults as the rules say.

use std::time::Instant;

use bytes::{Buf, Bytes};

use super::{Link, Received, Unmatched};
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

/// The sequence number of an abort that answers an invalid opening frame.
const REFUSED: u64 = 2;

/// How many accepts and aborts are queued; more are dropped, since a peer can cause any number.
const REPLIES: usize = 256;

/// The longest control message, in bytes; real ones are a few letters.
pub(super) const CONTROL_MAX: usize = 1024;

/// The result for a frame that was handled completely while it was read.
struct Handled(Result<Received, Fault>);

impl Link {
    /// Handles a frame that came in.
    pub fn handle_frame(&mut self, now: Instant, frame: Frame) -> Received {
        if self.closed.is_some() {
            return Received::Ignored;
        }
        // A message in one frame, the most frequent kind, returns right here: its result is written directly
        // to the caller's place, and not moved.
        let handled = match self.read_frame(now, &frame) {
            Ok(Inbound::Whole(message, shape)) => {
                let skip = frame.bytes().len().saturating_sub(message.len());
                // The message keeps the memory of the frame: no copy, no allocation.
                let mut bytes = frame.into_bytes();
                bytes.advance(skip);
                match self.whole(bytes, shape) {
                    Ok(id) => return Received::Done(id),
                    Err(kind) => Err(kind.into()),
                }
            }
            Ok(other) => self.other(now, other),
            Err(Handled(handled)) => handled,
        };
        self.report_evicted();
        handled.unwrap_or_else(|fault| self.fault(fault))
    }

    /// Drops frames with this key from now on, until the last one came in.
    pub fn discard(&mut self, key: Key) {
        self.inbox.discard(key, &self.config, &mut self.timers);
    }

    /// Ends an unfinished transfer of the peer and, if the format has one, sends an abort with this
    /// reason. No event reports it. Returns false if no such transfer is open.
    pub fn abort(&mut self, key: &Key, reason: &str) -> bool {
        let Some(assembly) = self.inbox.remove_key(key, &mut self.timers) else {
            return false;
        };
        let seq = abort_seq(&assembly);
        // Its memory is released first, so that there is some for the abort.
        drop(assembly);
        if self.config.rules.abort {
            self.reply(FrameKind::Abort, key, seq, reason.to_owned());
        }
        true
    }

    /// Reads a frame. The error is the final result of a frame that needs no further handling.
    #[inline]
    fn read_frame<'a>(&mut self, now: Instant, frame: &'a Frame) -> Result<Inbound<'a>, Handled> {
        let (size, limit) = (frame.bytes().len(), self.config.limits.frame);
        if size > limit {
            return Err(Handled(
                Err(FaultKind::FrameTooLarge { size, limit }.into()),
            ));
        }
        // The result of the fast canonical reader counts only if the piece was stored. If the piece is
        // faulty, late or unwanted, the general reader decides.
        if let Some(piece) = self.receive.read_canonical(frame)
            && !self.inbox.is_discarded(&piece.key)
            && let Ok(taken @ (Taken::Pending | Taken::Complete(_))) = self.piece(now, &piece)
        {
            return Err(Handled(self.after_frame(&piece.key, taken)));
        }
        self.receive
            .read(frame)
            .map_err(|fault| Handled(Err(fault)))
    }

    /// Handles every frame that is not a message in one frame.
    fn other(&mut self, now: Instant, inbound: Inbound<'_>) -> Result<Received, Fault> {
        match inbound {
            // Does not occur: `handle_frame`, which owns the frame, handles messages in one frame itself.
            Inbound::Whole(..) => Ok(Received::Ignored),
            Inbound::Piece(piece) => {
                let mut taken = self.piece(now, &piece);
                // An unfinished message must not use up the memory for the one that supersedes it.
                if matches!(taken, Err(FaultKind::Busy)) && self.begins_message(&piece) {
                    self.supersede(None);
                    taken = self.piece(now, &piece);
                }
                let taken = taken.map_err(|kind| kind.of(&piece.key))?;
                self.after_frame(&piece.key, taken)
            }
            Inbound::Open(opening) => self.open(now, opening),
            Inbound::Close { key, seq } => {
                let taken = self
                    .inbox
                    .close(&key, seq, &self.config)
                    .map_err(|kind| kind.of(&key))?;
                self.after_frame(&key, taken)
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
        // Copied, so that a queued event does not keep the transport's buffer alive.
        if !self.report(Event::Control(Bytes::copy_from_slice(text))) {
            return Err(FaultKind::Busy.into());
        }
        Ok(Received::Pending)
    }

    #[inline]
    fn whole(&mut self, bytes: Bytes, shape: Shape) -> Result<MessageId, FaultKind> {
        let (size, limit) = (bytes.len() as u64, self.config.limits.message as u64);
        if size > limit {
            return Err(FaultKind::MessageTooLarge { size, limit });
        }
        if self.config.rules.contiguous && self.inbox.len() > 0 {
            self.supersede(None);
        }
        let charge = self
            .budget
            .charge_finished(bytes.len() + MESSAGE_CHARGE)
            .map_err(|_| FaultKind::Busy)?;
        Ok(self.deliver(|id| Message {
            id,
            bytes,
            shape,
            key: None,
            pieces: 1,
            charge,
        }))
    }

    fn open(&mut self, now: Instant, opening: Opening) -> Result<Received, Fault> {
        let (key, seq) = (opening.key.clone(), opening.seq);
        if !self.config.receives_pieces {
            return Err(FaultKind::NotNegotiated.of(&key));
        }
        let digest = opening.digest.and_then(|_| self.receive.digest());
        let opened = self.inbox.open(
            now,
            opening,
            digest,
            &self.config,
            &self.budget,
            &mut self.timers,
        );
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
        if self.config.report_opened && !self.report(Event::Opened(key.clone())) {
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
        let begins = self.begins_message(piece);
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
        // A layer above that restores the order of messages must know every open transfer, so this
        // event must not be dropped.
        if self.config.report_opened
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

    /// Whether a piece begins a message, in a format that sends messages contiguously.
    fn begins_message(&mut self, piece: &Piece<'_>) -> bool {
        self.config.rules.contiguous && piece.seq == 0 && self.inbox.find(&piece.key).is_none()
    }

    /// After a frame of a transfer was handled: moves stashed pieces that are in order now, and
    /// delivers a complete message.
    fn after_frame(&mut self, key: &Key, taken: Taken) -> Result<Received, Fault> {
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
                self.report_progress(key);
                Ok(Received::Pending)
            }
            Taken::LastDiscarded => {
                self.report(Event::Discarded(key.clone()));
                Ok(Received::Ignored)
            }
            Taken::Ignored => Ok(Received::Ignored),
            Taken::Unmatched(ended) => Ok(Received::Unmatched(Unmatched {
                key: key.clone(),
                abort: None,
                ended,
            })),
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
        let pieces = assembly.pieces();
        let (key, buffer, mut charge) = assembly.into_message();
        let cost = buffer.capacity() + MESSAGE_CHARGE + key.allocated();
        charge.shrink(charge.amount().saturating_sub(cost));
        charge.finish();
        let id = self.deliver(|id| Message {
            id,
            bytes: buffer.into(),
            shape,
            key: Some(key),
            pieces,
            charge,
        });
        Ok(Received::Done(id))
    }

    #[inline]
    fn deliver(&mut self, message: impl FnOnce(MessageId) -> Message) -> MessageId {
        self.next_message += 1;
        let id = MessageId(self.next_message);
        self.events.push(Event::Message(message(id)));
        id
    }

    /// Handles a fault: ends the transfer or the link, as the rules say.
    fn fault(&mut self, fault: Fault) -> Received {
        let fault = match (&fault.kind, &fault.key) {
            // An invalid opening frame of an open transfer is handled like any second opening; that of
            // an unknown transfer is refused like any other transfer.
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
                // Running out of memory is not the peer's fault, and has a code of its own.
                let (code, prefix) = self.config.rules.close;
                let (code, reason) = match &fault.kind {
                    FaultKind::Busy => (BUSY, fault.kind.to_string()),
                    kind => (code, format!("{prefix}: {kind}")),
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
            let seq = abort_seq(&assembly);
            self.reply(FrameKind::Abort, &key, seq, fault.kind.to_string());
        }
        self.report_failed(assembly, fault.kind);
    }

    /// Reports that a transfer ended without a message; a part of its charge is kept for the event.
    fn report_failed(&mut self, assembly: Assembly, kind: FaultKind) {
        self.inbox.remember_end(&assembly.key, &kind, &self.config);
        let (key, charge) = assembly.without_data().into_charge();
        let event = Event::TransferFailed(kind.of(&key));
        self.events.push_charged(event, charge);
    }

    /// Reports something that the peer caused; returns false if too many reports are queued already.
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
            None => Received::Unmatched(Unmatched {
                key,
                abort: Some(reason),
                ended: None,
            }),
        }
    }

    pub(super) fn expire(&mut self, now: Instant, serial: u64) {
        if let Some(timer) = self
            .inbox
            .expire(now, serial, &self.config, &mut self.timers)
            && let Some(assembly) = self.inbox.get(serial)
        {
            let kind = FaultKind::TimedOut {
                timer,
                received: assembly.received(),
                declared: assembly.declared(),
            };
            let key = assembly.key.clone();
            self.fault(kind.clone().of(&key));
            // `Scope::Silent` means that the peer is not told; the event is still reported here.
            if let Some(assembly) = self.inbox.remove(serial, &mut self.timers) {
                self.report_failed(assembly, kind);
            }
        }
    }

    /// Ends all unfinished transfers except `keep`, because another message begins.
    fn supersede(&mut self, keep: Option<&Key>) {
        for assembly in self.inbox.remove_others(keep, &mut self.timers) {
            self.report_failed(assembly, FaultKind::Superseded);
        }
    }

    fn report_evicted(&mut self) {
        for assembly in self.inbox.take_evicted() {
            self.report_failed(assembly, FaultKind::Evicted);
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

    fn report_progress(&mut self, key: &Key) {
        let step = self.config.progress;
        let Some((_, assembly)) = self.inbox.find(key) else {
            return;
        };
        let done = assembly.received();
        if step > 0 && done - assembly.reported.min(done) >= step {
            assembly.reported = done;
            let total = assembly.declared();
            self.report(Event::Progress {
                of: ProgressOf::Incoming(key.clone()),
                done,
                total,
            });
        }
    }
}

/// The number of an abort: above that of the closing frame, in either numbering.
fn abort_seq(assembly: &Assembly) -> u64 {
    let opened = assembly.opening.as_ref().map_or(0, |opening| opening.seq);
    opened.saturating_add(assembly.count()).saturating_add(3)
}
