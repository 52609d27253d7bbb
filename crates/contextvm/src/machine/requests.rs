//! Open requests in both directions: their tokens, progress and deadlines.

use std::time::{Duration, Instant};

use crate::machine::{EventId, Seal};
use breakbulk_link::{FrameKind, Message};
use breakbulk_message::jsonrpc::Envelope;
use breakbulk_message::mcp::{self, Progress, ProgressToken};
use serde_json::Number;

use super::outgoing::Purpose;
use super::peer::{Discovery, InFlight, Peer};
use super::shared::Shared;
use super::{Event, InboundMessage, SendId, Way};
use crate::machine::Failure;
use crate::machine::config::Timeouts;
use crate::machine::prepared::{Kind, Prepared};

/// A request sent to the peer that has no response yet.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(super) send: SendId,
    pub(super) purpose: Purpose,
    pub(super) token: Option<String>,
    /// The progress token that the application gave; on the wire it is replaced.
    given: Option<ProgressToken<'static>>,
    /// The first and the last event that carried the request: the response refers to one of them.
    events: (Option<EventId>, Option<EventId>),
    /// The highest progress reported to the application.
    reported: Option<f64>,
    first: Option<(Instant, Duration)>,
    soft: Option<(Instant, Duration)>,
    hard: Option<(Instant, Duration)>,
    /// It has no token because the server opens streams for tokens.
    no_token: bool,
    /// The request was sent in chunks: an abort while no response is arriving refers to them.
    pub(super) in_chunks: bool,
    /// The peer aborted its response with this reason; it may begin again or send an error until then.
    aborted: Option<(Instant, String)>,
    /// A stream that the peer opened under a token of ours was refused.
    stream_refused: bool,
    /// The application cancelled it after it was sent. A response that still comes is delivered, since the
    /// application may wait for it.
    pub(super) cancelled: bool,
}

/// How long a peer that aborted its response has to begin another.
const RETRY_WINDOW: Duration = Duration::from_secs(10);

impl Asked {
    pub(super) fn new(
        now: Instant,
        send: SendId,
        purpose: Purpose,
        message: &Prepared,
        timeouts: &Timeouts,
        streams: bool,
    ) -> Self {
        let (first, soft) = match purpose {
            Purpose::Discovery => (None, Some(timeouts.learn)),
            // A configured limit on the server's silence applies to its first event, too.
            _ if timeouts.soft.is_some() => (None, timeouts.soft),
            _ => (timeouts.first, None),
        };
        let at = |after: Duration| Some((now.checked_add(after)?, after));
        Self {
            send,
            purpose,
            token: message.token.clone(),
            given: message.given.clone(),
            events: (None, None),
            reported: None,
            first: first.and_then(at),
            soft: soft.and_then(at),
            hard: timeouts.hard.and_then(at),
            no_token: streams && message.token.is_none(),
            in_chunks: false,
            aborted: None,
            stream_refused: false,
            cancelled: false,
        }
    }

    /// The peer aborted its response: shortens the wait for another one.
    pub(super) fn was_aborted(&mut self, now: Instant, reason: String) {
        let soon = now.checked_add(RETRY_WINDOW);
        self.aborted = soon.map(|soon| (soon, reason));
    }

    /// When the request fails. `spoken`: the peer has sent an event.
    pub(super) fn deadline(&self, spoken: bool) -> Option<Instant> {
        let first = self.first.filter(|_| !spoken || self.no_token);
        let deadlines = [first, self.soft, self.hard].into_iter().flatten();
        let aborted = self.aborted.as_ref().map(|(at, _)| *at);
        deadlines.map(|(at, _)| at).chain(aborted).min()
    }

    /// Why the request fails now, if its deadline has passed.
    fn overdue(&self, now: Instant, spoken: bool) -> Option<Failure> {
        let due = |deadline: Option<(Instant, Duration)>| {
            deadline
                .filter(|(at, _)| *at <= now)
                .map(|(_, after)| after)
        };
        if let Some(after) = due(self.hard) {
            return Some(Failure::TooLong { after });
        }
        if let Some((at, reason)) = &self.aborted
            && *at <= now
        {
            let reason = reason.clone();
            return Some(Failure::Aborted { reason });
        }
        let first = self.first.filter(|_| !spoken || self.no_token);
        let after = due(self.soft).or_else(|| due(first))?;
        Some(match (spoken, self.no_token) {
            (false, _) => Failure::NoServer { after },
            (true, true) => Failure::NoToken { after },
            (true, false) => Failure::Silent { after },
        })
    }

    fn touch(&mut self, now: Instant) {
        self.aborted = None;
        for (at, after) in [&mut self.first, &mut self.soft].into_iter().flatten() {
            if let Some(later) = now.checked_add(*after) {
                *at = later;
            }
        }
    }

    /// Whether this is the token that the application gave.
    pub(super) fn is_given(&self, token: &str) -> bool {
        let given = self.given.as_ref();
        given.is_some_and(|given| given.to_string() == token)
    }

    /// Whether a response that refers to this event belongs to this request.
    pub(super) fn is_answered_by(&self, event: Option<EventId>) -> bool {
        event.is_none_or(|event| self.events.0 == Some(event) || self.events.1 == Some(event))
    }

    /// The progress of a transfer as a progress notification for the application. In MCP the values must
    /// increase. So the bytes sent count up to -1, since the server's own progress, which is passed on
    /// unchanged, mostly begins with 0 or 1. The bytes received continue from there.
    fn progress_of_transfer(&mut self, way: Way, done: u64, total: Option<u64>) -> Option<String> {
        let token = self.given.clone()?;
        #[expect(clippy::cast_precision_loss, reason = "progress for people")]
        let float = |bytes: u64| bytes as f64;
        let (value, total, message) = match way {
            Way::Out => {
                let total = total?;
                let left = float(total.saturating_sub(done));
                let message = format!("sent {done} of {total} bytes");
                (-1.0 - left, None, Some(message.into()))
            }
            Way::In => (float(done), total.map(float), None),
        };
        let (value, total) = match self.reported {
            Some(reported) if value <= reported && way == Way::Out => return None,
            Some(reported) if value <= reported => (reported + 1.0, None),
            _ => (value, total),
        };
        self.reported = Some(value);
        let progress = Progress {
            token,
            progress: number(value)?,
            total: total.and_then(number),
            message,
        };
        Some(progress.notification())
    }
}

/// Whether a progress notification is a frame of an open-ended stream (CEP-41).
fn is_open_stream(text: &str) -> bool {
    let params = Envelope::parse(text).and_then(|envelope| envelope.params);
    let kind = params.and_then(mcp::cvm).and_then(mcp::cvm_type);
    kind.as_deref() == Some("open-stream")
}

/// The frame by which a receiver ends a stream (CEP-41).
fn stream_abort(token: &str) -> String {
    let token = ProgressToken::Text(token.into()).to_json();
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1,"cvm":{{"type":"open-stream","frameType":"abort","reason":"the client gave this request no progress token, and takes no stream"}}}}}}"#
    )
}

/// A number, written without a fraction if it is whole.
fn number(value: f64) -> Option<Number> {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "checked to be whole and small"
        )]
        return Some(Number::from(value as i64));
    }
    Number::from_f64(value)
}

/// A request from the peer that the application has not answered.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// The event that the response refers to.
    pub(super) event: EventId,
    /// Its progress token, without which a large response cannot be sent.
    pub(super) token: Option<String>,
    /// The form in which it came; the response takes the same.
    pub(super) seal: Seal,
    /// The earliest time to send the response.
    pub(super) not_before: Option<Instant>,
    /// The peer cancelled it. The application may still respond.
    pub(super) cancelled: bool,
}

impl Peer {
    /// Records the event id of a frame that is about to be published.
    pub(crate) fn signed(&mut self, in_flight: &InFlight, event: EventId) {
        let Some(out) = self.outgoing.get(&in_flight.tag) else {
            return;
        };
        if let Some(id) = &out.message.id
            && let Some(asked) = self.asked.get_mut(id)
            && asked.send == out.send
        {
            asked.events.0.get_or_insert(event);
            asked.events.1 = Some(event);
            asked.in_chunks |= in_flight.kind == FrameKind::Open;
        }
    }

    /// A relay accepted a frame of a message: extends the soft deadline of its request.
    pub(super) fn touch_sending(&mut self, now: Instant, tag: u64) {
        if let Some(out) = self.outgoing.get(&tag)
            && let Some(id) = &out.message.id
            && let Some(asked) = self.asked.get_mut(id)
            && asked.send == out.send
            && asked.purpose == Purpose::Application
        {
            asked.touch(now);
        }
    }

    /// A frame of a request was sent or one of its response came: extends the soft deadline and
    /// reports progress.
    pub(super) fn touch_token(
        &mut self,
        now: Instant,
        token: &str,
        way: Way,
        done: usize,
        total: Option<u64>,
        shared: &mut Shared,
    ) {
        let Some(asked) = self.tokens.get(token).and_then(|id| self.asked.get_mut(id)) else {
            return;
        };
        asked.touch(now);
        let done = u64::try_from(done).unwrap_or(u64::MAX);
        if let Some(text) = asked.progress_of_transfer(way, done, total) {
            shared.deliver_progress(self.key, text);
        }
    }

    /// Passes a progress notification from the peer on under the token that the application gave; all
    /// other bytes stay. Dropped if the application gave none, or the token belongs to no open request.
    pub(super) fn handle_progress(
        &mut self,
        now: Instant,
        message: Message,
        prepared: &Prepared,
        shared: &mut Shared,
    ) {
        let token = prepared.about.as_deref().unwrap_or_default();
        let Some(asked) = self.tokens.get(token).and_then(|id| self.asked.get_mut(id)) else {
            tracing::debug!(peer = %self.key, token, "progress dropped: no open request with this token");
            return;
        };
        asked.touch(now);
        let text = std::str::from_utf8(&prepared.bytes).unwrap_or_default();
        let Some(given) = &asked.given else {
            if is_open_stream(text) && !std::mem::replace(&mut asked.stream_refused, true) {
                tracing::warn!(
                    peer = %self.key,
                    "refused the stream (CEP-41) that the server opened for a request without a progress token of the client's own; what the server sends there is lost, and a client that gives a token gets it"
                );
                self.send_own(now, stream_abort(token), None, shared);
            }
            return;
        };
        if let Some(text) = mcp::with_token(text, given) {
            let value = prepared.progress.as_ref().and_then(Number::as_f64);
            asked.reported = [asked.reported, value]
                .into_iter()
                .flatten()
                .reduce(f64::max);
            let (_, charge) = message.into_parts();
            shared.events.push_back(Event::Message(InboundMessage {
                peer: self.key,
                kind: Kind::Notification,
                bytes: text.into(),
                charge: Some(charge),
            }));
        }
    }

    /// Ends an open request with an error response to the application.
    pub(super) fn fail_request(
        &mut self,
        now: Instant,
        id: &str,
        failure: Failure,
        shared: &mut Shared,
    ) {
        let Some(asked) = self.forget_request(id) else {
            return;
        };
        match asked.purpose {
            Purpose::Discovery => self.discovery_done(now, shared),
            Purpose::Application => {
                shared.deliver_own(self.key, Kind::Response, failure.answer(id));
                shared.push_outcome(Event::Failed {
                    peer: self.key,
                    id: asked.send,
                    kind: Kind::Request,
                    failure,
                });
            }
            Purpose::Notice => {}
        }
    }

    /// Removes an open request and its token.
    pub(super) fn forget_request(&mut self, id: &str) -> Option<Asked> {
        let asked = self.asked.remove(id)?;
        if let Some(token) = &asked.token {
            self.tokens.remove(token);
        }
        Some(asked)
    }

    /// Fails the requests and transfers whose deadlines have passed.
    pub(crate) fn timeout(&mut self, now: Instant, shared: &mut Shared) {
        self.link.handle_timeout(now);
        self.handle_link_events(now, None, shared);
        self.queue_delayed(now, shared);
        let spoken = self.sent_event;
        let overdue = |(id, asked): (&String, &Asked)| {
            let failure = asked.overdue(now, spoken)?;
            Some((id.clone(), failure))
        };
        let due: Vec<(String, Failure)> = self.asked.iter().filter_map(overdue).collect();
        for (id, failure) in due {
            let Some(asked) = self.asked.get(&id) else {
                continue;
            };
            // The application may not wait for it any more, unless its response had begun.
            if asked.cancelled && !matches!(failure, Failure::Aborted { .. }) {
                self.forget_request(&id);
                continue;
            }
            let (token, discovery) = (asked.token.clone(), asked.purpose == Purpose::Discovery);
            let begun = self.cancel_request(&id, token.as_deref());
            self.fail_request(now, &id, failure, shared);
            if begun && !discovery {
                self.send_own(now, mcp::cancellation(&id, "timed out"), None, shared);
            }
        }
        self.handle_link_events(now, None, shared);
    }

    /// The discovery `ping` was answered or failed: sends the requests that waited for it.
    pub(super) fn discovery_done(&mut self, now: Instant, shared: &mut Shared) {
        self.discovery = Discovery::Done;
        for tag in std::mem::take(&mut self.held) {
            self.queue(now, tag, shared);
        }
    }
}
