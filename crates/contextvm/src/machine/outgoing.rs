//! Sending to one peer: holds a large request until the server's support is known, gives messages to
//! the link, and sends a message once more in smaller pieces if a relay refuses an event as too large.

use std::time::Instant;

use crate::machine::{EventId, Seal};
use breakbulk_link::{Cancelled, Key, Lane, Outgoing, SendError, TransferId};
use breakbulk_message::mcp::{self, ProgressToken};

use super::peer::{Discovery, Peer};
use super::requests::Asked;
use super::shared::Shared;
use super::{Event, Refused, SendId};
use crate::machine::Failure;
use crate::machine::prepared::{Kind, Prepared};

/// How many large responses are remembered after they were sent, for a late abort.
const DELIVERED_MAX: usize = 64;

/// A second attempt with events smaller than this is not made.
const SMALLEST_CUT: usize = 2048;

/// The most characters of a method's name in the log.
const METHOD_SHOWN: usize = 64;

/// Why a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The application sent it.
    Application,
    /// A `ping` to an unknown server, whose response carries its discovery tags.
    Discovery,
    /// The machine's own error response or cancellation; its outcome is not reported.
    Notice,
}

/// The request that a message of the machine itself responds to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    pub(super) event: EventId,
    pub(super) seal: Seal,
    /// The earliest time to send it.
    pub(super) not_before: Option<Instant>,
}

/// A message that is not sent in full.
#[derive(Debug)]
pub(crate) struct Out {
    pub(super) send: SendId,
    pub(super) purpose: Purpose,
    pub(super) message: Prepared,
    /// The progress token that names its transfer if it is cut.
    pub(super) token: Option<String>,
    pub(super) answers: Option<EventId>,
    pub(super) seal: Seal,
    pub(super) transfer: Option<TransferId>,
    /// Its `start` was sent.
    pub(super) opened: bool,
    /// Its place in the ordered lane.
    ordered: Option<u64>,
    /// The piece size of the second attempt, after a relay refused a larger event.
    cut: Option<usize>,
}

impl Peer {
    /// Queues a message of the application.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        mut message: Prepared,
        send: SendId,
        shared: &mut Shared,
    ) -> Result<(), Refused> {
        let limit = shared.config.limits.queued;
        if self.outgoing.len() >= limit {
            return Err(Refused::QueueFull(limit));
        }
        let id = message.id.clone().unwrap_or_default();
        let (mut token, mut answers, mut seal) = (message.token.clone(), None, self.seal);
        let mut not_before = None;
        match message.kind {
            Kind::Request if self.is_open(&id) => return Err(Refused::IdInUse(id)),
            Kind::Request => {
                self.forget_request(&id);
                self.register_request(now, &message, send, Purpose::Application, shared)
            }
            Kind::Response => {
                let Some(served) = self.served.remove(&id) else {
                    return Err(Refused::NoSuchRequest(id));
                };
                (token, answers, seal) = (served.token, Some(served.event), served.seal);
                not_before = served.not_before;
            }
            Kind::Notification if message.is_cancellation() => {
                let id = message.about.clone().unwrap_or_default();
                if !self.cancel_asked(now, &id, shared) {
                    // None of the request was sent, so there is nothing to cancel at the server.
                    shared.push_outcome(Event::Sent {
                        peer: self.key,
                        id: send,
                    });
                    return Ok(());
                }
            }
            Kind::Notification => {
                self.replace_given_token(&mut message);
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
            ordered: None,
            cut: None,
        };
        let tag = self.add(out);
        if !self.hold_for_discovery(now, tag, shared) {
            self.queue_at(now, not_before, tag, shared);
        }
        Ok(())
    }

    /// Gives a message to the link, or delays it if this time has not come yet.
    fn queue_at(&mut self, now: Instant, at: Option<Instant>, tag: u64, shared: &mut Shared) {
        match at.filter(|at| *at > now) {
            Some(at) => {
                self.delayed.insert((at, tag));
            }
            None => self.queue(now, tag, shared),
        }
    }

    /// Gives the link the delayed responses whose time has come, without those that were cancelled meanwhile.
    pub(super) fn queue_delayed(&mut self, now: Instant, shared: &mut Shared) {
        while let Some(&(at, tag)) = self.delayed.first()
            && at <= now
        {
            self.delayed.pop_first();
            self.queue(now, tag, shared);
        }
    }

    /// Sends an error response or notification of the machine itself, in one frame.
    pub(super) fn send_own(
        &mut self,
        now: Instant,
        text: String,
        to: Option<Reply>,
        shared: &mut Shared,
    ) {
        let Ok(message) = Prepared::read(text.into()) else {
            return;
        };
        let out = Out {
            send: shared.next_send(),
            purpose: Purpose::Notice,
            message,
            token: None,
            answers: to.map(|to| to.event),
            seal: to.map_or(self.seal, |to| to.seal),
            transfer: None,
            opened: false,
            ordered: None,
            cut: None,
        };
        let tag = self.add(out);
        let at = to.and_then(|to| to.not_before);
        self.queue_at(now, at, tag, shared);
    }

    /// In a frame of a stream (CEP-41) the application names the request by its own token; replaces it by the
    /// token that the peer knows.
    fn replace_given_token(&self, message: &mut Prepared) {
        let Some(about) = message.about.as_deref().filter(|_| message.is_progress()) else {
            return;
        };
        let given = |asked: &&Asked| asked.is_given(about);
        let Some(ours) = self
            .asked
            .values()
            .find(given)
            .and_then(|asked| asked.token.clone())
        else {
            return;
        };
        let token = ProgressToken::Text(ours.as_str().into());
        let text = std::str::from_utf8(&message.bytes).unwrap_or_default();
        if let Some(text) = mcp::with_token(text, &token) {
            message.bytes = text.into();
            message.about = Some(ours);
        }
    }

    fn add(&mut self, out: Out) -> u64 {
        self.next_tag += 1;
        self.outgoing.insert(self.next_tag, out);
        self.next_tag
    }

    /// Whether a request with this id waits for its response.
    fn is_open(&self, id: &str) -> bool {
        self.asked.get(id).is_some_and(|asked| !asked.cancelled)
    }

    fn register_request(
        &mut self,
        now: Instant,
        message: &Prepared,
        send: SendId,
        purpose: Purpose,
        shared: &Shared,
    ) {
        let Some(id) = message.id.clone() else {
            return;
        };
        if let Some(token) = &message.token {
            self.tokens.insert(token.clone(), id.clone());
        }
        let streams = self.learned.is_some_and(|learned| learned.streams);
        let timeouts = &shared.config.timeouts;
        let asked = Asked::new(now, send, purpose, message, timeouts, streams);
        self.asked.insert(id, asked);
    }

    /// Holds a large request to a server whose support is unknown, and asks it for its discovery tags once:
    /// by a `ping`, or by `server/discover` where the request is of a version of MCP without `ping`.
    /// False: the message need not wait.
    fn hold_for_discovery(&mut self, now: Instant, tag: u64, shared: &mut Shared) -> bool {
        let unknown = self.learned.is_none() && !self.presumed && !shared.is_server();
        if !unknown || shared.config.unasked || self.discovery == Discovery::Done {
            return false;
        }
        let Some(out) = self.outgoing.get(&tag) else {
            return false;
        };
        let cap = shared.cap(out.seal != Seal::Plain);
        let (bytes, limit) = (&out.message.bytes, cap.whole_limit());
        let large = bytes.len() > limit || cap.weigh(bytes) > limit;
        if out.message.kind != Kind::Request || out.token.is_none() || !large {
            return false;
        }
        // A server that speaks several versions of MCP then uses the one of its first request.
        let version = std::str::from_utf8(bytes).ok().and_then(mcp::version_meta);
        self.held.push(tag);
        if self.discovery == Discovery::NotStarted {
            self.discovery = Discovery::Pending;
            let name = shared.fresh_name();
            let text = match version {
                Some(meta) => format!(
                    r#"{{"jsonrpc":"2.0","id":"{name}","method":"{}","params":{{"_meta":{meta}}}}}"#,
                    mcp::DISCOVER
                ),
                None => format!(r#"{{"jsonrpc":"2.0","id":"{name}","method":"ping"}}"#),
            };
            if let Ok(message) = Prepared::read(text.into()) {
                let send = shared.next_send();
                self.register_request(now, &message, send, Purpose::Discovery, shared);
                let out = Out {
                    send,
                    purpose: Purpose::Discovery,
                    message,
                    token: None,
                    answers: None,
                    seal: self.seal,
                    transfer: None,
                    opened: false,
                    ordered: None,
                    cut: None,
                };
                let tag = self.add(out);
                self.queue(now, tag, shared);
            }
        }
        true
    }

    /// Gives a message to the link, once what must come before it is confirmed.
    ///
    /// Notifications, and messages behind an unconfirmed notification, keep their order; all others get a
    /// lane of their own, so that they do not wait for each other's confirmation. A large message behind a
    /// notification has a lane of its own, too: it waits until all before it is confirmed, and messages
    /// after it do not wait for its chunks.
    pub(super) fn queue(&mut self, now: Instant, tag: u64, shared: &mut Shared) {
        let Some(out) = self.outgoing.get_mut(&tag) else {
            return;
        };
        let notification = out.message.kind == Kind::Notification;
        let small = out.message.bytes.len() <= shared.config.cut_above / 2;
        match self.ordered.last() {
            Some(&last) if !notification && !small => self.behind.push((last, tag)),
            None if !notification => self.give(now, tag, None, shared),
            _ => {
                self.last_ordered += 1;
                self.ordered.insert(self.last_ordered);
                out.ordered = Some(self.last_ordered);
                self.give(now, tag, Some(Lane::ORDERED), shared);
            }
        }
    }

    /// Gives a message to the link, in a lane of its own if none is named.
    fn give(&mut self, now: Instant, tag: u64, lane: Option<Lane>, shared: &mut Shared) {
        let Some(out) = self.outgoing.get_mut(&tag) else {
            return;
        };
        // The form may have changed while the message was held.
        if out.answers.is_none() {
            out.seal = self.seal;
        }
        let lane = lane.unwrap_or_else(|| {
            self.next_lane = self.next_lane.checked_add(1).unwrap_or(1);
            Lane(self.next_lane)
        });
        let mut outgoing = Outgoing::new(out.message.bytes.clone())
            .known_text()
            .tagged(tag)
            .in_lane(lane);
        outgoing.cut_above = out.cut;
        outgoing.may_cut = out.message.kind != Kind::Notification;
        outgoing.key = out.token.as_ref().map(|token| Key::new(token.as_bytes()));
        self.queue_changes += 1;
        match self.link.send(now, outgoing) {
            Ok(transfer) => out.transfer = Some(transfer),
            Err(rejected) => self.message_failed(now, tag, rejected.error, shared),
        }
    }

    /// Gives the link the large messages that no unconfirmed notification is before any longer.
    pub(super) fn queue_behind(&mut self, now: Instant, shared: &mut Shared) {
        let first = self.ordered.first().copied();
        let is_free = |last: u64| first.is_none_or(|first| last < first);
        while let Some(at) = self.behind.iter().position(|&(last, _)| is_free(last)) {
            let (_, tag) = self.behind.remove(at);
            self.give(now, tag, None, shared);
        }
    }

    /// A message is confirmed, or will not be sent: those behind it need not wait for it any longer.
    fn left_order(&mut self, out: &mut Out) {
        if let Some(place) = out.ordered.take() {
            self.ordered.remove(&place);
        }
    }

    /// Cancels a message; the link aborts it if it has begun. False: none of its frames was ever sent.
    pub(super) fn cancel_outgoing(&mut self, tag: u64) -> bool {
        !self.outgoing.contains_key(&tag) || self.stop_outgoing(tag) != Cancelled::Unsent
    }

    /// Stops sending a message, and says how much of it was sent.
    pub(super) fn stop_outgoing(&mut self, tag: u64) -> Cancelled {
        let Some(mut out) = self.outgoing.remove(&tag) else {
            return Cancelled::TooLate;
        };
        self.left_order(&mut out);
        self.behind.retain(|&(_, behind)| behind != tag);
        self.held.retain(|&held| held != tag);
        self.restarts.retain(|&restart| restart != tag);
        let stopped = out.transfer.map(|transfer| self.link.cancel(transfer));
        stopped.unwrap_or(Cancelled::Unsent)
    }

    /// A message was sent in full.
    pub(super) fn message_sent(&mut self, tag: u64, shared: &mut Shared) {
        let Some(mut out) = self.outgoing.remove(&tag) else {
            return;
        };
        self.left_order(&mut out);
        if let Some(cut) = out.cut
            && cut < shared.config.cut_above
        {
            // The relay accepts the smaller size: use it for all further messages.
            shared.config.cut_above = cut;
            shared.caps_changed = true;
        }
        if let (Kind::Response, Some(token), true) = (out.message.kind, &out.token, out.opened) {
            self.delivered
                .push_back((Key::new(token.as_bytes()), out.send));
            if self.delivered.len() > DELIVERED_MAX {
                self.delivered.pop_front();
            }
        }
        if out.purpose == Purpose::Application {
            shared.push_outcome(Event::Sent {
                peer: self.key,
                id: out.send,
            });
        }
    }

    /// A message could not be sent: tries once more in smaller pieces, or reports the failure.
    pub(super) fn message_failed(
        &mut self,
        now: Instant,
        tag: u64,
        error: SendError,
        shared: &mut Shared,
    ) {
        let Some(mut out) = self.outgoing.remove(&tag) else {
            return;
        };
        self.left_order(&mut out);
        out.transfer = None;
        let half = shared.config.cut_above.min(shared.config.event_max) / 2;
        let may_cut = out.token.is_some() && out.message.kind != Kind::Notification;
        if matches!(error, SendError::Refused { .. })
            && out.cut.is_none()
            && may_cut
            && half >= SMALLEST_CUT
            && self.renew_token(&mut out)
        {
            out.cut = Some(half);
            self.outgoing.insert(tag, out);
            self.restart(now, tag, shared);
            return;
        }
        let failure = Failure::Unsent(error);
        match out.message.kind {
            Kind::Request => {
                let id = out.message.id.clone().unwrap_or_default();
                self.fail_request(now, &id, failure, shared);
            }
            Kind::Response if out.purpose == Purpose::Application => {
                let aborted = matches!(failure, Failure::Unsent(SendError::Aborted { .. }));
                let id = out.message.id.clone().unwrap_or_default();
                // A peer that aborted the transfer needs no error response.
                if let (false, Some(event)) = (aborted, out.answers) {
                    let to = Reply {
                        event,
                        seal: out.seal,
                        not_before: None,
                    };
                    self.send_own(now, failure.answer(&id), Some(to), shared);
                }
                shared.push_outcome(Event::Failed {
                    peer: self.key,
                    id: out.send,
                    kind: Kind::Response,
                    failure,
                });
            }
            Kind::Notification if out.purpose == Purpose::Application => {
                shared.lost += 1;
                let method = out.message.method.as_deref().unwrap_or_default();
                let method: String = method.chars().take(METHOD_SHOWN).collect();
                tracing::warn!(
                    peer = %self.key, ?method, size = out.message.bytes.len(),
                    "a notification is dropped: {failure}; CEP-22 sends requests and their responses alone in chunks"
                );
                shared.push_outcome(Event::Failed {
                    peer: self.key,
                    id: out.send,
                    kind: Kind::Notification,
                    failure,
                });
            }
            _ => {}
        }
    }

    /// Gives a request that is sent again a new token, so that the receiver can tell the two attempts apart.
    /// A response keeps the token of its request.
    fn renew_token(&mut self, out: &mut Out) -> bool {
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

    /// Queues a message again, after the abort of its first attempt if that had begun.
    fn restart(&mut self, now: Instant, tag: u64, shared: &mut Shared) {
        let Some(out) = self.outgoing.get_mut(&tag) else {
            return;
        };
        if std::mem::take(&mut out.opened) {
            self.restarts.push(tag);
        } else {
            self.queue(now, tag, shared);
        }
    }

    /// Queues the messages that waited for the abort of their first attempt to be sent.
    pub(super) fn queue_restarts(&mut self, now: Instant, shared: &mut Shared) {
        if self.restarts.is_empty() || self.aborts_in_flight > 0 || self.link.has_replies() {
            return;
        }
        for tag in std::mem::take(&mut self.restarts) {
            self.queue(now, tag, shared);
        }
    }
}
