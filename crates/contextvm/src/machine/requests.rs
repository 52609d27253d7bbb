//! Requests, ours and the peer's, until they are answered.

use std::time::{Duration, Instant};

use crate::machine::{EventId, Seal};
use breakbulk_link::{FrameKind, Key};
use breakbulk_message::mcp::{self, Progress, ProgressToken};
use serde_json::Number;

use super::desk::Desk;
use super::outgoing::Purpose;
use super::peer::{InFlight, Learning, Peer};
use super::{Event, SendId};
use crate::machine::Failure;
use crate::machine::config::Timeouts;
use crate::machine::prepared::Prepared;

/// A request of ours that has no answer yet.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(super) send: SendId,
    pub(super) purpose: Purpose,
    pub(super) token: Option<String>,
    /// The token that the application knows.
    given: Option<ProgressToken<'static>>,
    /// The first and the last event of it: answers name one of them.
    events: (Option<EventId>, Option<EventId>),
    /// The highest progress that was told upward.
    told: f64,
    soft: Option<(Instant, Duration)>,
    hard: Option<(Instant, Duration)>,
    /// It went out in chunks: an abort without an answer under way is about those.
    pub(super) in_chunks: bool,
    /// The peer ended its answer, and may begin it anew or say why.
    aborted: Option<String>,
}

/// How long a peer that ended its answer has for another.
const SECOND_CHANCE: Duration = Duration::from_secs(10);

impl Asked {
    pub(super) fn new(
        now: Instant,
        send: SendId,
        purpose: Purpose,
        message: &Prepared,
        timeouts: &Timeouts,
    ) -> Self {
        let soft = match purpose {
            Purpose::Learning => Some(timeouts.learn),
            _ => timeouts.soft,
        };
        let at = |after: Duration| Some((now.checked_add(after)?, after));
        Self {
            send,
            purpose,
            token: message.token.clone(),
            given: message.given.clone(),
            events: (None, None),
            told: 0.0,
            soft: soft.and_then(at),
            hard: timeouts.hard.and_then(at),
            in_chunks: false,
            aborted: None,
        }
    }

    /// The peer ended its answer: what it says next is waited for, but not for long.
    pub(super) fn was_aborted(&mut self, now: Instant, reason: String) {
        self.aborted = Some(reason);
        let Some(soon) = now.checked_add(SECOND_CHANCE) else {
            return;
        };
        let (at, after) = self.soft.unwrap_or((soon, SECOND_CHANCE));
        self.soft = Some((at.min(soon), after));
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let deadlines = [self.soft, self.hard];
        deadlines.into_iter().flatten().map(|(at, _)| at).min()
    }

    fn touch(&mut self, now: Instant) {
        self.aborted = None;
        if let Some((at, after)) = &mut self.soft
            && let Some(later) = now.checked_add(*after)
        {
            *at = later;
        }
    }

    /// Whether an answer that names this event is the answer to this request.
    pub(super) fn is_answered_by(&self, event: Option<EventId>) -> bool {
        event.is_none_or(|event| self.events.0 == Some(event) || self.events.1 == Some(event))
    }

    /// Progress for the application: it only ever grows.
    fn progress(
        &mut self,
        value: f64,
        total: Option<f64>,
        message: Option<&str>,
    ) -> Option<String> {
        let token = self.given.clone()?;
        let (value, total) = if value > self.told {
            (value, total)
        } else {
            (self.told + 1.0, None)
        };
        self.told = value;
        let progress = Progress {
            token,
            progress: number(value)?,
            total: total.and_then(number),
            message: message.map(Into::into),
        };
        Some(progress.notification())
    }
}

/// A whole number is written as one.
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

/// A request of the peer's that we have not answered.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// The event that the answer names.
    pub(super) event: EventId,
    /// Its token, without which a large answer cannot go out.
    pub(super) token: Option<String>,
    /// How it came, and so how the answer goes.
    pub(super) seal: Seal,
}

impl Peer {
    /// The inner id of a frame that is about to be published.
    pub(crate) fn signed(&mut self, flying: &InFlight, event: EventId) {
        let Some(out) = self.outgoing.get(&flying.tag) else {
            return;
        };
        if let Some(id) = &out.message.id
            && let Some(asked) = self.asked.get_mut(id)
            && asked.send == out.send
        {
            asked.events.0.get_or_insert(event);
            asked.events.1 = Some(event);
            asked.in_chunks |= flying.kind == FrameKind::Open;
        }
    }

    /// A frame of a message went through: the request lives.
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

    /// A frame of the answer to a request came, or one of the request went out.
    pub(super) fn touch_token(
        &mut self,
        now: Instant,
        token: &str,
        done: usize,
        total: Option<u64>,
        desk: &mut Desk,
    ) {
        let Some(asked) = self.tokens.get(token).and_then(|id| self.asked.get_mut(id)) else {
            return;
        };
        asked.touch(now);
        #[expect(clippy::cast_precision_loss, reason = "progress for people")]
        let (done, total) = (done as f64, total.map(|total| total as f64));
        if let Some(text) = asked.progress(done, total, None) {
            desk.deliver_progress(self.key, text);
        }
    }

    /// The peer's own progress of a request of ours, under the application's token again. `None`: the
    /// application asked for none, or it belongs to no request of ours.
    pub(super) fn progress_upward(
        &mut self,
        now: Instant,
        text: &str,
        token: &str,
    ) -> Option<String> {
        let asked = self
            .tokens
            .get(token)
            .and_then(|id| self.asked.get_mut(id))?;
        asked.touch(now);
        let envelope = breakbulk_message::jsonrpc::Envelope::parse(text)?;
        let read = Progress::read(envelope.params?)?;
        let value = read.progress.as_f64()?;
        let total = read.total.as_ref().and_then(Number::as_f64);
        asked.progress(value, total, read.message.as_deref())
    }

    /// Ends a request of ours with an error.
    pub(super) fn fail_request(
        &mut self,
        now: Instant,
        id: &str,
        failure: Failure,
        desk: &mut Desk,
    ) {
        let Some(asked) = self.forget_request(id) else {
            return;
        };
        match asked.purpose {
            Purpose::Learning => self.learning_done(now, desk),
            Purpose::Application => {
                desk.deliver_own(self.key, failure.answer(id));
                desk.tell_outcome(Event::Failed {
                    peer: self.key,
                    id: asked.send,
                    failure,
                });
            }
            Purpose::Notice => {}
        }
    }

    /// Takes a request of ours out of the tables.
    pub(super) fn forget_request(&mut self, id: &str) -> Option<Asked> {
        let asked = self.asked.remove(id)?;
        if let Some(token) = &asked.token {
            self.tokens.remove(token);
        }
        Some(asked)
    }

    /// Time has passed.
    pub(crate) fn timeout(&mut self, now: Instant, desk: &mut Desk) {
        self.link.handle_timeout(now);
        self.settle(now, None, desk);
        let due: Vec<String> = self
            .asked
            .iter()
            .filter(|(_, asked)| asked.deadline().is_some_and(|at| at <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in due {
            let Some(asked) = self.asked.get(&id) else {
                continue;
            };
            let failure = match (asked.hard, asked.soft) {
                (Some((at, after)), _) if at <= now => Failure::TooLong { after },
                (_, Some((_, after))) => match asked.aborted.clone() {
                    Some(reason) => Failure::Aborted { reason },
                    None => Failure::Silent { after },
                },
                _ => continue,
            };
            let (token, learning) = (asked.token.clone(), asked.purpose == Purpose::Learning);
            let begun = self.take_back(&id, token.as_deref());
            self.fail_request(now, &id, failure, desk);
            if begun && !learning {
                self.say(now, mcp::cancellation(&id, "timed out"), None, desk);
            }
        }
        self.settle(now, None, desk);
    }

    /// Stops whatever is under way for a request of ours. False: nothing of it ever left.
    pub(super) fn take_back(&mut self, id: &str, token: Option<&str>) -> bool {
        let tags = self.outgoing.iter().filter(|(_, out)| {
            out.message.kind == crate::machine::Kind::Request
                && out.message.id.as_deref() == Some(id)
        });
        let tags: Vec<u64> = tags.map(|(tag, _)| *tag).collect();
        let mut begun = true;
        for tag in tags {
            begun = self.cancel_out(tag);
        }
        if let Some(token) = token {
            // What may still come of the answer is nobody's.
            self.link.discard(Key::new(token.as_bytes()));
        }
        begun
    }

    /// The question to a server of which nothing is known is answered, or will not be.
    pub(super) fn learning_done(&mut self, now: Instant, desk: &mut Desk) {
        self.learning = Learning::Done;
        for tag in std::mem::take(&mut self.held) {
            self.queue(now, tag, desk);
        }
    }
}
