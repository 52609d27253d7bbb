//! Handles the events of a link: answers to calls, messages for the application, and the end of a
//! connection.

use std::time::Instant;

use breakbulk_link::{Closed, Event as LinkEvent, Message, MessageKind, Shape};
use breakbulk_message::ahp;
use breakbulk_message::jsonrpc::{member, unsigned};

use super::event::{Event, List};
use super::queue::{self, Queued, has_state};
use super::text::Text;
use super::{Answer, CallId, Client, ClientError, Output, bad_answer};
use crate::machine::host::close;

/// What is done with the answer to a call.
#[derive(Debug)]
pub(super) enum Wants {
    /// It is returned to the caller.
    Answer(String),
    /// A subscription to this channel, even if nobody waits for the answer any more.
    State(String),
    /// `initialize` with these subscriptions.
    Start(Vec<String>),
    /// `reconnect`.
    Return,
}

impl Wants {
    pub(super) fn method(&self) -> &str {
        match self {
            Self::Answer(method) => method,
            Self::State(_) => "subscribe",
            Self::Start(_) => "initialize",
            Self::Return => "reconnect",
        }
    }

    pub(super) fn is_handshake(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Return)
    }
}

impl Client {
    /// Handles an event of the connection's link.
    pub fn handle_event(&mut self, now: Instant, event: LinkEvent) {
        let Some(session) = &mut self.session else {
            return;
        };
        match event {
            LinkEvent::Message(message) => self.message(now, message),
            LinkEvent::Opened(key) => {
                session.open.insert(key.clone());
                if self.config.connection.switches.defends {
                    self.defence.opened(key);
                }
            }
            LinkEvent::TransferFailed(fault) => {
                if let Some(key) = &fault.key {
                    session.group_over(now, key);
                    self.defence.failed(key);
                }
            }
            LinkEvent::Sent { tag, .. } => self.sent(now, tag),
            LinkEvent::SendFailed { error, .. } => {
                // Later messages would hide from the host that this one is missing.
                self.close(close::TOO_LARGE, error.to_string());
            }
            LinkEvent::Closed(closed) => self.end(closed),
            LinkEvent::Fault(fault) => tracing::debug!(%fault, "the host sent an invalid frame"),
            _ => {}
        }
    }

    /// A message of this client was sent.
    fn sent(&mut self, now: Instant, tag: u64) {
        let Some(session) = &mut self.session else {
            return;
        };
        if let Some(call) = CallId::of_tag(tag) {
            if let Some(pending) = session.pending.get_mut(&call) {
                pending.sent = Some(now);
            }
            return;
        }
        let seq = i64::try_from(tag >> 1).unwrap_or(i64::MAX);
        match &mut self.dispatching {
            Some(waiting) if waiting.seq == seq => waiting.out = true,
            _ => drop(session.unsent.remove(&seq)),
        }
    }

    /// The connection has ended: every open call fails.
    pub(super) fn end(&mut self, closed: Closed) {
        let Some(session) = self.session.take() else {
            return;
        };
        self.defence.disconnected();
        for call in session.pending.into_keys() {
            let answer = Err(closed.clone().into());
            self.out.push_back(Output::Answered { call, answer });
        }
        if session.held.is_none() {
            let unsent = session.unsent.into_iter().collect();
            let closed = closed.clone();
            let event = Event::Disconnected { closed, unsent };
            self.queue.push_back(Queued::One(event));
        }
        self.last_closed = Some(closed);
    }

    fn message(&mut self, now: Instant, message: Message) {
        let (key, shape) = (message.key.clone(), message.shape.clone());
        let (bytes, charge) = message.into_parts();
        // The wire has checked that it is UTF-8.
        if let Some(text) = Text::new(bytes, charge)
            && let Some(session) = &mut self.session
            && !session.broken
        {
            match (shape.kind, &mut session.held) {
                (MessageKind::Result | MessageKind::Error, _) => self.answer(&text, &shape),
                // It is delivered after the answer to the handshake.
                (_, Some(held)) => held.push_back(queue::read(text, &shape)),
                (_, None) => self.deliver(queue::read(text, &shape)),
            }
        }
        if let Some(key) = key {
            self.defence.whole(&key);
            if let Some(session) = &mut self.session {
                session.group_over(now, &key);
            }
        }
    }

    /// Queues a message that is not an answer for the application.
    pub(super) fn deliver(&mut self, event: Result<Event, String>) {
        let mut event = match event {
            Ok(event) => event,
            Err(why) => return self.break_off(close::PROTOCOL, format!("invalid action: {why}")),
        };
        match &mut event {
            Event::Action(action) => {
                if let Err(overtaken) = self.defence.applied(action.seq) {
                    return self.break_off(close::TRY_LATER, overtaken.to_string());
                }
                if has_state(&self.subscriptions, &action.channel, action.seq) {
                    return;
                }
            }
            Event::Request(question) => {
                question.host = self.host;
                question.session = self.session.as_ref().map_or(0, |it| it.number);
            }
            _ => {}
        }
        if self.session.as_ref().is_some_and(|it| !it.broken) {
            self.queue.push_back(Queued::One(event));
        }
    }

    /// Closes the connection and ignores what it still receives, which would hide that a message is
    /// missing.
    fn break_off(&mut self, code: u16, reason: String) {
        if let Some(session) = &mut self.session {
            session.broken = true;
        }
        self.close(code, reason);
    }

    pub(super) fn close(&mut self, code: u16, reason: String) {
        self.out.push_back(Output::Close { code, reason });
    }

    fn answer(&mut self, text: &Text, shape: &Shape) {
        let id = text.at(shape.id.clone());
        let number = id.as_ref().and_then(|id| serde_json::from_str(id).ok());
        let call = number.and_then(unsigned).map(CallId);
        let Some(session) = &mut self.session else {
            return;
        };
        let waiting = call.and_then(|call| Some((call, session.pending.remove(&call)?)));
        let Some((call, pending)) = waiting else {
            tracing::debug!(
                ?id,
                "ignored an answer that no call waits for: it is late, a duplicate, or unasked"
            );
            return;
        };
        let (wants, body) = (pending.wants, text.at(shape.body.clone()));
        let is_handshake = wants.is_handshake();
        let answer = match body {
            Some(error) if shape.kind == MessageKind::Error => Err(ClientError::answered(error)),
            Some(result) => self.answered(text, wants, result),
            None => return,
        };
        self.settle(call, is_handshake, answer);
    }

    /// Ends a call. If it is a handshake that failed, the connection is closed.
    pub(super) fn settle(
        &mut self,
        call: CallId,
        is_handshake: bool,
        answer: Result<Answer, ClientError>,
    ) {
        if let (true, Err(error)) = (is_handshake, &answer) {
            let bad = matches!(error, ClientError::BadAnswer { .. });
            self.close(if bad { close::PROTOCOL } else { 1000 }, error.to_string());
        }
        self.out.push_back(Output::Answered { call, answer });
    }

    fn answered(&mut self, text: &Text, wants: Wants, result: Text) -> Result<Answer, ClientError> {
        let channel = match wants {
            Wants::Answer(_) => return Ok(Answer::Result(result)),
            Wants::State(channel) => channel,
            Wants::Start(_) | Wants::Return => {
                let method = if matches!(wants, Wants::Return) {
                    "reconnect"
                } else {
                    "initialize"
                };
                let raw =
                    serde_json::from_str(&result).map_err(|error| bad_answer(method, error))?;
                return match wants {
                    Wants::Start(channels) => self.started(text, channels, raw),
                    _ => self.returned(text, raw),
                };
            }
        };
        let snapshot = member(&result, "snapshot").filter(|raw| raw.get() != "null");
        let mut from = i64::MIN;
        if let Some(raw) = snapshot {
            let read = ahp::Snapshot::read(raw);
            from = read
                .map_err(|error| bad_answer("subscribe", error))?
                .from_seq;
            let list = List::new(text, raw.get());
            self.queue.push_back(Queued::Snapshots(list));
        }
        self.subscriptions.insert(channel, from);
        Ok(Answer::Result(result))
    }
}
