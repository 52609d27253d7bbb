//! Receiving from one peer: passes frames to its link and messages to the application, and handles
//! the link's events.

use std::time::Instant;

use crate::machine::{EventId, Seal};
use breakbulk_link::{
    Event as LinkEvent, Fault, FaultKind, Frame, Key, Message, ProgressOf, Received, Unmatched,
};
use breakbulk_message::jsonrpc;
use breakbulk_message::mcp;

use super::outgoing::{Purpose, Reply};
use super::peer::Peer;
use super::requests::Served;
use super::shared::Shared;
use super::{Arrival, Event, InboundMessage, Way};
use crate::machine::Failure;
use crate::machine::learned::Learned;
use crate::machine::prepared::{Kind, Prepared};
use crate::machine::tags;

/// How many transfers are remembered whose pieces came before their `start`.
const EARLY_MAX: usize = 64;

/// The event whose frame is being handled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    event: EventId,
    answers: Option<EventId>,
    seal: Seal,
}

impl Peer {
    /// Handles an event from this peer.
    pub(crate) fn receive(&mut self, now: Instant, arrival: Arrival, shared: &mut Shared) {
        self.last = now;
        self.sent_event = true;
        if shared.is_server() {
            self.answer_as_asked(arrival.seal, shared);
        }
        self.learn_from_tags(&arrival.tags, shared);
        let context = Context {
            event: arrival.id,
            answers: tags::answered(&arrival.tags),
            seal: arrival.seal,
        };
        let frame = Frame::Text(arrival.content.clone());
        let received = self.link.handle_frame(now, frame);
        self.handle_link_events(now, Some(context), shared);
        match received {
            Received::Unmatched(unmatched) => self.handle_unmatched(now, unmatched, shared),
            // Without a transfer key there is nothing to abort: a request gets an error response.
            Received::Fault(Fault { key: None, kind }) => {
                let failure = match kind {
                    FaultKind::Busy => Failure::Busy,
                    kind => Failure::Answer(kind),
                };
                shared.refuse_request(&arrival, &failure);
            }
            _ => {}
        }
        self.handle_link_events(now, None, shared);
    }

    /// Handles all pending events of the link.
    pub(super) fn handle_link_events(
        &mut self,
        now: Instant,
        context: Option<Context>,
        shared: &mut Shared,
    ) {
        while let Some(event) = self.link.poll_event() {
            match event {
                LinkEvent::Message(message) => {
                    if let Some(context) = context {
                        self.handle_message(now, message, context, shared);
                    }
                }
                LinkEvent::Sent { tag, .. } => self.message_sent(tag, shared),
                LinkEvent::SendFailed { id, tag, error, .. } => {
                    // Frees its place in the lane, so that the messages behind it go on.
                    self.link.replace(id, None);
                    self.queue_changes += 1;
                    self.message_failed(now, tag, error, shared);
                }
                LinkEvent::Accepted { tag, .. } => {
                    self.learn(can_assemble(), shared);
                    self.touch_sending(now, tag);
                }
                LinkEvent::Opened(key) => {
                    if let Some(context) = context {
                        self.transfer_opened(now, key, context, shared);
                    }
                }
                LinkEvent::Progress { of, done, total } => {
                    self.transfer_progressed(now, &of, done, total, shared);
                }
                LinkEvent::TransferFailed(fault) => self.fail_transfer(now, fault, shared),
                LinkEvent::Fault(fault) => {
                    tracing::debug!(peer = %self.key, %fault, "invalid frame from peer")
                }
                _ => {}
            }
        }
        self.queue_restarts(now, shared);
        self.queue_behind(now, shared);
    }

    fn transfer_opened(&mut self, now: Instant, key: Key, context: Context, shared: &mut Shared) {
        if shared.is_server() {
            // A peer that sends chunks is assumed to assemble them too.
            self.learn(can_assemble(), shared);
        }
        self.remember_event(key.clone(), context.event);
        if self.early.contains(&key) {
            // Frames are not sent again, so those that came before the `start` are lost.
            self.early.retain(|early| *early != key);
            self.link.abort(&key, "frames came before their start");
            let fault = FaultKind::OutOfOrder {
                index: 1,
                expected: 0,
            };
            self.fail_transfer(now, fault.of(&key), shared);
        }
    }

    fn transfer_progressed(
        &mut self,
        now: Instant,
        of: &ProgressOf,
        done: usize,
        total: Option<u64>,
        shared: &mut Shared,
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
        self.touch_token(now, &token, way, done, total, shared);
        shared.push_event(Event::Progress {
            peer: self.key,
            token,
            way,
            done,
            total,
        });
    }

    /// Reports a failed incoming transfer, and fails the request that it was the response to.
    fn fail_transfer(&mut self, now: Instant, fault: Fault, shared: &mut Shared) {
        let token = fault.key.as_ref().and_then(text);
        let id = token.and_then(|token| self.tokens.get(&token).cloned());
        match (&fault.kind, id) {
            (FaultKind::Aborted { reason }, Some(id)) => {
                if let Some(asked) = self.asked.get_mut(&id) {
                    asked.was_aborted(now, reason.clone());
                }
            }
            (kind, Some(id)) => {
                self.fail_request(now, &id, Failure::Answer(kind.clone()), shared);
            }
            (_, None) => {}
        }
        shared.push_event(Event::TransferFailed {
            peer: self.key,
            fault,
        });
    }

    /// Handles a frame that belongs to no open transfer: late, before its `start`, or an abort of a
    /// transfer that was already sent in full.
    fn handle_unmatched(&mut self, now: Instant, unmatched: Unmatched, shared: &mut Shared) {
        let Unmatched { key, abort, .. } = unmatched;
        let Some(reason) = abort else {
            return self.note_early(key);
        };
        let id = text(&key).and_then(|token| self.tokens.get(&token).cloned());
        if let Some(id) = id {
            match self.asked.get_mut(&id) {
                Some(asked) if !asked.in_chunks => asked.was_aborted(now, reason),
                _ => self.fail_request(now, &id, Failure::Aborted { reason }, shared),
            }
        } else if let Some(at) = self.delivered.iter().position(|(out, _)| *out == key)
            && let Some((_, send)) = self.delivered.remove(at)
        {
            shared.push_outcome(Event::Failed {
                peer: self.key,
                id: send,
                kind: Kind::Response,
                failure: Failure::Aborted { reason },
            });
        }
    }

    fn note_early(&mut self, key: Key) {
        // The frame of a transfer that is known is late, not early.
        if self
            .transfer_events
            .iter()
            .any(|(marked, _)| *marked == key)
            || self.early.contains(&key)
        {
            return;
        }
        self.early.push_back(key);
        if self.early.len() > EARLY_MAX {
            self.early.pop_front();
        }
    }

    fn handle_message(
        &mut self,
        now: Instant,
        message: Message,
        context: Context,
        shared: &mut Shared,
    ) {
        // The link refuses an assembled message that is not JSON-RPC, and one that is a frame.
        let Ok(prepared) = Prepared::received(message.bytes.clone(), &message.shape) else {
            return;
        };
        self.sent_message = true;
        let id = prepared.id.clone().unwrap_or_default();
        match prepared.kind {
            Kind::Request => {
                let hold = shared.config.timeouts.hold_response;
                let in_chunks = message.key.is_some() && !hold.is_zero();
                let not_before = in_chunks.then(|| now.checked_add(hold)).flatten();
                let reply = Some(Reply {
                    event: context.event,
                    seal: context.seal,
                    not_before,
                });
                let same = self.served.get(&id);
                if same.is_some_and(|served| !served.cancelled) {
                    let text = "a request with this id is being served; use another id";
                    let text = jsonrpc::error(Some(&id), -32600, text, None);
                    return self.send_own(now, text, reply, shared);
                }
                if self.open_served() >= shared.config.limits.requests {
                    return self.send_own(now, Failure::Busy.answer(&id), reply, shared);
                }
                if let Some("initialize" | mcp::DISCOVER) = prepared.method.as_deref() {
                    // The client begins, perhaps anew: it must get the discovery tags again. Versions of
                    // MCP without `initialize` begin with `server/discover`.
                    self.introduced = false;
                }
                let served = Served {
                    event: context.event,
                    token: prepared.token.clone(),
                    seal: context.seal,
                    not_before,
                    cancelled: false,
                };
                self.served.insert(id, served);
                self.deliver(Kind::Request, message, shared);
            }
            Kind::Response => self.handle_response(now, &id, message, context, shared),
            Kind::Notification if prepared.is_progress() => {
                self.handle_progress(now, message, &prepared, shared);
            }
            Kind::Notification => {
                if prepared.is_cancellation() {
                    let id = prepared.about.as_deref().unwrap_or_default();
                    self.cancel_served(now, id, shared);
                }
                self.deliver(Kind::Notification, message, shared);
            }
        }
    }

    /// Handles a response. It is dropped if it matches no open request.
    fn handle_response(
        &mut self,
        now: Instant,
        id: &str,
        message: Message,
        context: Context,
        shared: &mut Shared,
    ) {
        let ours = self.asked.get(id);
        if !ours.is_some_and(|asked| asked.is_answered_by(context.answers)) {
            tracing::debug!(peer = %self.key, id, "response dropped: no open request with this id and event");
            return;
        }
        let Some(asked) = self.forget_request(id) else {
            return;
        };
        if self.learned.is_none() && !shared.is_server() && !shared.config.fresh_key {
            // The server sends discovery tags only to keys it does not know. It sent none, so it knows
            // this key, and its support for chunks is assumed.
            self.presumed = true;
            self.refresh_support(shared);
        }
        if asked.purpose == Purpose::Application {
            self.deliver(Kind::Response, message, shared);
        }
        self.discovery_done(now, shared);
    }

    fn deliver(&self, kind: Kind, message: Message, shared: &mut Shared) {
        let (bytes, charge) = message.into_parts();
        shared.events.push_back(Event::Message(InboundMessage {
            peer: self.key,
            kind,
            bytes,
            charge: Some(charge),
        }));
    }

    /// A server responds in the form of the request. Once a gift wrap came in, the cap leaves room
    /// for one on the way out.
    fn answer_as_asked(&mut self, seal: Seal, shared: &Shared) {
        self.seal = seal;
        if seal != Seal::Plain && !self.sealed {
            self.sealed = true;
            self.refresh_cap(shared);
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
