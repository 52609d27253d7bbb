//! What goes out: held until it can, cut by the link, begun anew once where a relay finds it too large.

use std::time::Instant;

use crate::machine::{EventId, Seal};
use breakbulk_link::{Cancelled, Key, Lane, Outgoing, SendError, TransferId};
use breakbulk_message::mcp::{self, ProgressToken};

use super::desk::Desk;
use super::peer::{Learning, Peer};
use super::requests::Asked;
use super::{Event, Refused, SendId};
use crate::machine::Failure;
use crate::machine::prepared::{Kind, Prepared};

/// Large answers whose fate is still of interest.
const DELIVERED: usize = 64;

/// Below this an event holds too little to be worth another attempt.
const SMALLEST_CUT: usize = 2048;

/// For whom a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The application.
    Application,
    /// To learn what a server can do.
    Learning,
    /// A word of ours that nobody asks after.
    Notice,
}

/// A message on its way out.
#[derive(Debug)]
pub(crate) struct Out {
    pub(super) send: SendId,
    pub(super) purpose: Purpose,
    pub(super) message: Prepared,
    /// The name that its transfer gets, if it is cut.
    pub(super) token: Option<String>,
    pub(super) answers: Option<EventId>,
    pub(super) seal: Seal,
    pub(super) transfer: Option<TransferId>,
    /// Its opening went out.
    pub(super) opened: bool,
    ordered: bool,
    /// Pieces stay below this: a relay found more too large.
    cut: Option<usize>,
}

impl Peer {
    /// Takes a message of the application's.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        message: Prepared,
        send: SendId,
        desk: &mut Desk,
    ) -> Result<(), Refused> {
        let limit = desk.config.limits.queued;
        if self.outgoing.len() >= limit {
            return Err(Refused::QueueFull(limit));
        }
        let id = message.id.clone().unwrap_or_default();
        let (mut token, mut answers, mut seal) = (message.token.clone(), None, self.seal);
        match message.kind {
            Kind::Request if self.asked.contains_key(&id) => return Err(Refused::IdInUse(id)),
            Kind::Request => self.ask(now, &message, send, Purpose::Application, desk),
            Kind::Response => {
                let Some(served) = self.served.remove(&id) else {
                    return Err(Refused::NoSuchRequest(id));
                };
                (token, answers, seal) = (served.token, Some(served.event), served.seal);
            }
            Kind::Notification if message.is_cancellation() => {
                let id = message.about.clone().unwrap_or_default();
                let token = self.asked.get(&id).and_then(|asked| asked.token.clone());
                let begun = self.take_back(&id, token.as_deref());
                self.forget_request(&id);
                if !begun {
                    // The server never heard of it.
                    desk.tell_outcome(Event::Sent {
                        peer: self.key,
                        id: send,
                    });
                    return Ok(());
                }
            }
            Kind::Notification => {
                let about = message.about.as_deref();
                let served = self
                    .served
                    .values()
                    .find(|served| served.token.is_some() && served.token.as_deref() == about);
                answers = served.map(|served| served.event);
            }
        }
        let out = Out {
            send,
            purpose: Purpose::Application,
            message,
            token,
            answers,
            seal,
            transfer: None,
            opened: false,
            ordered: false,
            cut: None,
        };
        let tag = self.add(out);
        if !self.hold(now, tag, desk) {
            self.queue(now, tag, desk);
        }
        Ok(())
    }

    /// A word of our own, in one frame.
    pub(super) fn say(
        &mut self,
        now: Instant,
        text: String,
        to: Option<(EventId, Seal)>,
        desk: &mut Desk,
    ) {
        let Ok(message) = Prepared::read(text.into()) else {
            return;
        };
        let out = Out {
            send: desk.next_send(),
            purpose: Purpose::Notice,
            message,
            token: None,
            answers: to.map(|(event, _)| event),
            seal: to.map_or(self.seal, |(_, seal)| seal),
            transfer: None,
            opened: false,
            ordered: false,
            cut: None,
        };
        let tag = self.add(out);
        self.queue(now, tag, desk);
    }

    fn add(&mut self, out: Out) -> u64 {
        self.next_tag += 1;
        self.outgoing.insert(self.next_tag, out);
        self.next_tag
    }

    fn ask(
        &mut self,
        now: Instant,
        message: &Prepared,
        send: SendId,
        purpose: Purpose,
        desk: &Desk,
    ) {
        let Some(id) = message.id.clone() else {
            return;
        };
        if let Some(token) = &message.token {
            self.tokens.insert(token.clone(), id.clone());
        }
        let asked = Asked::new(now, send, purpose, message, &desk.config.timeouts);
        self.asked.insert(id, asked);
    }

    /// Whether a large request waits until something is known of the server; it is asked then.
    fn hold(&mut self, now: Instant, tag: u64, desk: &mut Desk) -> bool {
        let unknown = self.learned.is_none() && !self.presumed && !desk.is_server();
        if !unknown || desk.config.unasked || self.learning == Learning::Done {
            return false;
        }
        let Some(out) = self.outgoing.get(&tag) else {
            return false;
        };
        let cap = desk.cap(out.seal != Seal::Plain);
        let (bytes, limit) = (&out.message.bytes, cap.whole_limit());
        let large = bytes.len() > limit || cap.weigh(bytes) > limit;
        if out.message.kind != Kind::Request || out.token.is_none() || !large {
            return false;
        }
        self.held.push(tag);
        if self.learning == Learning::Never {
            self.learning = Learning::Asking;
            let name = desk.fresh_name();
            let text = format!(r#"{{"jsonrpc":"2.0","id":"{name}","method":"ping"}}"#);
            if let Ok(message) = Prepared::read(text.into()) {
                let send = desk.next_send();
                self.ask(now, &message, send, Purpose::Learning, desk);
                let out = Out {
                    send,
                    purpose: Purpose::Learning,
                    message,
                    token: None,
                    answers: None,
                    seal: self.seal,
                    transfer: None,
                    opened: false,
                    ordered: false,
                    cut: None,
                };
                let tag = self.add(out);
                self.queue(now, tag, desk);
            }
        }
        true
    }

    /// Gives a message to the link.
    pub(super) fn queue(&mut self, now: Instant, tag: u64, desk: &mut Desk) {
        let Some(out) = self.outgoing.get_mut(&tag) else {
            return;
        };
        // What was held is sealed as is known now.
        if out.answers.is_none() {
            out.seal = self.seal;
        }
        let notification = out.message.kind == Kind::Notification;
        // Behind a notification that is not through, a small message keeps its place; others need
        // not wait for a relay's word on each.
        let small = out.message.bytes.len() <= desk.config.cut_above / 2;
        out.ordered = notification || (small && self.ordered > 0);
        let lane = if out.ordered {
            self.ordered += 1;
            Lane::ORDERED
        } else {
            self.next_lane = self.next_lane.checked_add(1).unwrap_or(1);
            Lane(self.next_lane)
        };
        let mut outgoing = Outgoing::new(out.message.bytes.clone())
            .known_text()
            .tagged(tag)
            .in_lane(lane);
        outgoing.cut_above = out.cut;
        outgoing.may_cut = !notification;
        outgoing.key = out.token.as_ref().map(|token| Key::new(token.as_bytes()));
        self.queued += 1;
        match self.link.send(now, outgoing) {
            Ok(transfer) => out.transfer = Some(transfer),
            Err(rejected) => self.unsent(now, tag, rejected.error, desk),
        }
    }

    /// Takes a message back, with the abort that this takes. False: nothing of it ever left.
    pub(super) fn cancel_out(&mut self, tag: u64) -> bool {
        let Some(out) = self.outgoing.remove(&tag) else {
            return true;
        };
        self.ordered -= usize::from(out.ordered);
        self.held.retain(|&held| held != tag);
        self.restarts.retain(|&restart| restart != tag);
        match out.transfer.map(|transfer| self.link.cancel(transfer)) {
            None | Some(Cancelled::Unsent) => false,
            Some(Cancelled::Stopped | Cancelled::TooLate) => true,
        }
    }

    /// A message is with a relay, whole.
    pub(super) fn went_out(&mut self, tag: u64, desk: &mut Desk) {
        let Some(out) = self.outgoing.remove(&tag) else {
            return;
        };
        self.ordered -= usize::from(out.ordered);
        if let Some(cut) = out.cut
            && cut < desk.config.cut_above
        {
            // The smaller size is what this relay takes: others need not find out again.
            desk.config.cut_above = cut;
            desk.caps_changed = true;
        }
        if let (Kind::Response, Some(token), true) = (out.message.kind, &out.token, out.opened) {
            self.delivered
                .push_back((Key::new(token.as_bytes()), out.send));
            if self.delivered.len() > DELIVERED {
                self.delivered.pop_front();
            }
        }
        if out.purpose == Purpose::Application {
            desk.tell_outcome(Event::Sent {
                peer: self.key,
                id: out.send,
            });
        }
    }

    /// A message did not go out: once more in smaller pieces, or whoever waits for it is told.
    pub(super) fn unsent(&mut self, now: Instant, tag: u64, error: SendError, desk: &mut Desk) {
        let Some(mut out) = self.outgoing.remove(&tag) else {
            return;
        };
        self.ordered -= usize::from(std::mem::take(&mut out.ordered));
        out.transfer = None;
        let half = desk.config.cut_above.min(desk.config.event_max) / 2;
        let may_cut = out.token.is_some() && out.message.kind != Kind::Notification;
        if matches!(error, SendError::Refused { .. })
            && out.cut.is_none()
            && may_cut
            && half >= SMALLEST_CUT
            && self.rename(&mut out)
        {
            out.cut = Some(half);
            self.outgoing.insert(tag, out);
            self.restart(now, tag, desk);
            return;
        }
        let failure = Failure::Unsent(error);
        match out.message.kind {
            Kind::Request => {
                let id = out.message.id.clone().unwrap_or_default();
                self.fail_request(now, &id, failure, desk);
            }
            Kind::Response if out.purpose == Purpose::Application => {
                let aborted = matches!(failure, Failure::Unsent(SendError::Aborted { .. }));
                let id = out.message.id.clone().unwrap_or_default();
                // Who aborted it knows.
                if let (false, Some(event)) = (aborted, out.answers) {
                    self.say(now, failure.answer(&id), Some((event, out.seal)), desk);
                }
                desk.tell_outcome(Event::Failed {
                    peer: self.key,
                    id: out.send,
                    failure,
                });
            }
            _ if out.purpose == Purpose::Application => desk.tell_outcome(Event::Failed {
                peer: self.key,
                id: out.send,
                failure,
            }),
            _ => {}
        }
    }

    /// A request that begins anew gets a name that the receiver can tell apart; an answer's name is
    /// the request's own.
    fn rename(&mut self, out: &mut Out) -> bool {
        if out.message.kind != Kind::Request || !out.opened {
            return true;
        }
        let Some(old) = out.token.clone() else {
            return false;
        };
        let new = format!("{old}-2");
        let token = ProgressToken::Text(new.as_str().into());
        let Some((text, _)) = std::str::from_utf8(&out.message.bytes)
            .ok()
            .and_then(|text| mcp::replace_progress_token(text, &token))
        else {
            return false;
        };
        out.message.bytes = text.into();
        out.message.token = Some(new.clone());
        out.token = Some(new.clone());
        if let Some(id) = self.tokens.remove(&old) {
            if let Some(asked) = self.asked.get_mut(&id) {
                asked.token = Some(new.clone());
            }
            self.tokens.insert(new, id);
        }
        true
    }

    /// Begins a message anew, once the end of its first attempt is with the relay.
    fn restart(&mut self, now: Instant, tag: u64, desk: &mut Desk) {
        let Some(out) = self.outgoing.get_mut(&tag) else {
            return;
        };
        if std::mem::take(&mut out.opened) {
            self.restarts.push(tag);
        } else {
            self.queue(now, tag, desk);
        }
    }

    /// The ends of first attempts are told, or could not be: what waits for that goes on.
    pub(super) fn go_on(&mut self, now: Instant, desk: &mut Desk) {
        if self.restarts.is_empty() || self.ends_flying > 0 || self.link.has_replies() {
            return;
        }
        for tag in std::mem::take(&mut self.restarts) {
            self.queue(now, tag, desk);
        }
    }
}
