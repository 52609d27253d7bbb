//! What comes in: frames to the link, messages up, and the link's news to whoever they concern.

use std::time::Instant;

use crate::machine::{EventId, Seal};
use breakbulk_link::{
    Event as LinkEvent, Fault, FaultKind, Frame, Inbound, Key, Message, Part, ProgressOf, Received,
    Wire,
};
use breakbulk_wire::Cep22;

use super::desk::Desk;
use super::outgoing::Purpose;
use super::peer::Peer;
use super::requests::Served;
use super::{Arrival, Event, InboundMessage, Way};
use crate::machine::Failure;
use crate::machine::learned::Learned;
use crate::machine::prepared::{Kind, Prepared};
use crate::machine::tags;

/// Transfers whose pieces came before their openings.
const EARLY: usize = 64;

/// The event whose frame is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    event: EventId,
    answers: Option<EventId>,
    seal: Seal,
}

impl Peer {
    /// An event of this peer's.
    pub(crate) fn receive(&mut self, now: Instant, arrival: Arrival, desk: &mut Desk) {
        self.last = now;
        self.heard = true;
        if desk.is_server() {
            self.answer_as_asked(arrival.seal, desk);
        }
        self.hear(&arrival.tags, desk);
        let context = Context {
            event: arrival.id,
            answers: tags::answered(&arrival.tags),
            seal: arrival.seal,
        };
        let frame = Frame::Text(arrival.content.clone());
        let received = self.link.handle_frame(now, frame.clone());
        self.settle(now, Some(context), desk);
        match received {
            Received::Ignored => self.nobodys(now, &frame, desk),
            // What has no name of its own cannot be aborted: a request is answered.
            Received::Fault(Fault { key: None, kind }) => {
                let failure = match kind {
                    FaultKind::Busy => Failure::Busy,
                    kind => Failure::Answer(kind),
                };
                desk.turn_away(&arrival, &failure);
            }
            _ => {}
        }
        self.settle(now, None, desk);
    }

    /// Takes the link's news.
    pub(super) fn settle(&mut self, now: Instant, context: Option<Context>, desk: &mut Desk) {
        while let Some(event) = self.link.poll_event() {
            match event {
                LinkEvent::Message(message) => {
                    if let Some(context) = context {
                        self.message(now, message, context, desk);
                    }
                }
                LinkEvent::Sent { tag, .. } => self.went_out(tag, desk),
                LinkEvent::SendFailed { id, tag, error, .. } => {
                    // Its place in the lane is given up: nothing waits behind it.
                    self.link.replace(id, None);
                    self.unsent(now, tag, error, desk);
                }
                LinkEvent::Accepted { tag, .. } => {
                    self.learn(can_assemble(), desk);
                    self.touch_sending(now, tag);
                }
                LinkEvent::Opened(key) => {
                    if let Some(context) = context {
                        self.opened(now, key, context, desk);
                    }
                }
                LinkEvent::Progress { of, done, total } => {
                    self.went_on(now, &of, done, total, desk);
                }
                LinkEvent::TransferFailed(fault) => self.fail_transfer(now, fault, desk),
                LinkEvent::Fault(fault) => tracing::debug!(peer = %self.key, %fault, "a bad frame"),
                _ => {}
            }
        }
        self.go_on(now, desk);
    }

    fn opened(&mut self, now: Instant, key: Key, context: Context, desk: &mut Desk) {
        if desk.is_server() {
            // Who sends chunks can put them together.
            self.learn(can_assemble(), desk);
        }
        self.set_mark(key.clone(), context.event);
        if self.early.contains(&key) {
            // Nothing is sent twice: what came before its opening is missing for good.
            self.early.retain(|early| *early != key);
            self.link.discard(key.clone());
            let fault = FaultKind::OutOfOrder {
                index: 1,
                expected: 0,
            };
            self.abort(&key, "frames came before their start", desk);
            self.fail_transfer(now, fault.of(&key), desk);
        }
    }

    fn went_on(
        &mut self,
        now: Instant,
        of: &ProgressOf,
        done: usize,
        total: Option<u64>,
        desk: &mut Desk,
    ) {
        let (token, way) = match of {
            ProgressOf::Incoming(key) => (text(key), Way::In),
            ProgressOf::Outgoing(id) => {
                let out = self.outgoing.values().find(|out| out.transfer == Some(*id));
                (out.and_then(|out| out.token.clone()), Way::Out)
            }
        };
        let Some(token) = token else {
            return;
        };
        self.touch_token(now, &token, done, total, desk);
        desk.tell(Event::Progress {
            peer: self.key,
            token,
            way,
            done,
            total,
        });
    }

    /// A transfer of the peer's came to nothing; if it was the answer to a request, so did that.
    fn fail_transfer(&mut self, now: Instant, fault: Fault, desk: &mut Desk) {
        let token = fault.key.as_ref().and_then(text);
        let id = token.and_then(|token| self.tokens.get(&token).cloned());
        match (&fault.kind, id) {
            (FaultKind::Aborted { reason }, Some(id)) => {
                if let Some(asked) = self.asked.get_mut(&id) {
                    asked.was_aborted(now, reason.clone());
                }
            }
            (kind, Some(id)) => {
                self.fail_request(now, &id, Failure::Answer(kind.clone()), desk);
            }
            (_, None) => {}
        }
        desk.tell(Event::TransferFailed {
            peer: self.key,
            fault,
        });
    }

    /// A frame that belongs to nothing: late, early, or the end of what we thought was done.
    fn nobodys(&mut self, now: Instant, frame: &Frame, desk: &mut Desk) {
        match Cep22::default().read(frame) {
            Ok(Inbound::Abort { key, reason }) => {
                let id = text(&key).and_then(|token| self.tokens.get(&token).cloned());
                if let Some(id) = id {
                    match self.asked.get_mut(&id) {
                        Some(asked) if !asked.in_chunks => asked.was_aborted(now, reason),
                        _ => self.fail_request(now, &id, Failure::Aborted { reason }, desk),
                    }
                } else if let Some(at) = self.delivered.iter().position(|(out, _)| *out == key)
                    && let Some((_, send)) = self.delivered.remove(at)
                {
                    desk.tell_outcome(Event::Failed {
                        peer: self.key,
                        id: send,
                        failure: Failure::Aborted { reason },
                    });
                }
            }
            Ok(Inbound::Piece(piece)) => self.note_early(piece.key),
            Ok(Inbound::Close { key, .. }) => self.note_early(key),
            _ => {}
        }
    }

    fn note_early(&mut self, key: Key) {
        // Of a transfer that was known it is late.
        if self.marks.iter().any(|(marked, _)| *marked == key) || self.early.contains(&key) {
            return;
        }
        self.early.push_back(key);
        if self.early.len() > EARLY {
            self.early.pop_front();
        }
    }

    /// Tells the peer that one of its transfers is over.
    fn abort(&mut self, key: &Key, reason: &str, desk: &mut Desk) {
        let mut frame = Vec::new();
        let part = Part::Abort {
            key,
            seq: desk.config.limits.chunks.saturating_add(4),
            reason,
        };
        Cep22::default().write(part, &mut frame);
        if let Ok(content) = String::from_utf8(frame) {
            let event = if desk.is_server() {
                self.mark(key)
            } else {
                None
            };
            desk.notice(self.key, content, event, self.seal);
        }
    }

    fn message(&mut self, now: Instant, message: Message, context: Context, desk: &mut Desk) {
        let key = message.key.clone();
        let prepared = match Prepared::read(message.bytes.clone()) {
            Ok(prepared) if key.is_none() || !prepared.is_frame() => prepared,
            other => {
                let kind = match other {
                    Ok(_) => FaultKind::Nested,
                    Err(_) => FaultKind::NotJsonRpc,
                };
                if let Some(key) = key {
                    self.abort(&key, &kind.to_string(), desk);
                    self.fail_transfer(now, kind.of(&key), desk);
                }
                return;
            }
        };
        self.proven = true;
        let id = prepared.id.clone().unwrap_or_default();
        match prepared.kind {
            Kind::Request => {
                let reply = Some((context.event, context.seal));
                if self.served.contains_key(&id) {
                    let text = format!(
                        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32600,"message":"a request with this id is being served; use another id"}}}}"#
                    );
                    return self.say(now, text, reply, desk);
                }
                if self.served.len() >= desk.config.limits.requests {
                    return self.say(now, Failure::Busy.answer(&id), reply, desk);
                }
                if prepared.method.as_deref() == Some("initialize") {
                    // A new session: its other end knows nothing of what was said before.
                    self.introduced = false;
                }
                let served = Served {
                    event: context.event,
                    token: prepared.token.clone(),
                    seal: context.seal,
                };
                self.served.insert(id, served);
                self.deliver(message, desk);
            }
            Kind::Response => self.answered(now, &id, message, context, desk),
            Kind::Notification if prepared.is_progress() => {
                let token = prepared.about.as_deref().unwrap_or_default();
                let text = std::str::from_utf8(&prepared.bytes).unwrap_or_default();
                if let Some(text) = self.progress_upward(now, text, token) {
                    desk.deliver_progress(self.key, text);
                }
            }
            Kind::Notification => {
                if prepared.is_cancellation() {
                    self.not_wanted(prepared.about.as_deref().unwrap_or_default());
                }
                self.deliver(message, desk);
            }
        }
    }

    /// An answer to a request of ours, or to one that is long forgotten.
    fn answered(
        &mut self,
        now: Instant,
        id: &str,
        message: Message,
        context: Context,
        desk: &mut Desk,
    ) {
        let ours = self.asked.get(id);
        if !ours.is_some_and(|asked| asked.is_answered_by(context.answers)) {
            tracing::debug!(peer = %self.key, id, "an answer to no request");
            return;
        }
        let Some(asked) = self.forget_request(id) else {
            return;
        };
        if self.learned.is_none() && !desk.is_server() && !desk.config.fresh_key {
            // It answers and does not introduce itself: it knows us, and it cannot be asked again.
            self.presumed = true;
            self.refresh_support(desk);
        }
        if asked.purpose == Purpose::Application {
            self.deliver(message, desk);
        }
        self.learning_done(now, desk);
    }

    /// The peer does not want the answer to this request any more.
    fn not_wanted(&mut self, id: &str) {
        self.served.remove(id);
        let tags = self.outgoing.iter().filter(|(_, out)| {
            out.message.kind == Kind::Response && out.message.id.as_deref() == Some(id)
        });
        let tags: Vec<u64> = tags.map(|(tag, _)| *tag).collect();
        for tag in tags {
            self.cancel_out(tag);
        }
    }

    fn deliver(&self, message: Message, desk: &mut Desk) {
        let (bytes, charge) = message.into_parts();
        desk.events.push_back(Event::Message(InboundMessage {
            peer: self.key,
            bytes,
            charge: Some(charge),
        }));
    }

    /// A server answers as it was asked; once anything was sealed, what goes out has room for a seal.
    fn answer_as_asked(&mut self, seal: Seal, desk: &Desk) {
        self.seal = seal;
        if seal != Seal::Plain && !self.sealed {
            self.sealed = true;
            self.refresh_cap(desk);
        }
    }
}

fn can_assemble() -> Learned {
    Learned {
        oversized: true,
        ..Learned::default()
    }
}

fn text(key: &Key) -> Option<String> {
    std::str::from_utf8(key.as_bytes()).ok().map(str::to_owned)
}
