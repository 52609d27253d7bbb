//! What is done in the place of messages that were too large to be received, or could not be sent.

use std::fmt;
use std::ops::Range;

use breakbulk_link::{Outgoing, SendError, TransferId};
use breakbulk_wire::shape_of;

use super::run::{Pump, SUBSTITUTE};
use super::{Incoming, Missed, Oversized, Passing, Replacement, Side};
use crate::record::{Fate, NotCarried, short};
use crate::watch::Noted;

/// The most errors made by the gateway that wait to be sent by one side.
const ANSWERS: usize = 1024;

impl<P: Passing> Pump<P> {
    /// Whether both sides have room for another error made by the gateway.
    pub(super) fn can_answer(&self) -> bool {
        self.listen.answers < ANSWERS && self.to.answers < ANSWERS
    }

    /// A transport did not deliver a message.
    pub(super) fn missed(&mut self, from: Side, missed: Option<Missed>) {
        match missed {
            None => self.end(from).skipped = None,
            Some(Missed::Oversized(oversized)) => self.skipped(from, &oversized),
            Some(Missed::Lost(words)) => {
                self.end(from).lost += 1;
                tracing::warn!(side = %from, "1 message between this gateway and {} is lost: {words}", from.program());
                self.end(from).watched.fault(words);
            }
        }
    }

    /// A message was too large to be received.
    fn skipped(&mut self, from: Side, oversized: &Oversized) {
        let &Oversized { size, limit, .. } = oversized;
        let program = from.program();
        let what = format_args!("a message of {size} bytes is over --max-message ({limit} bytes)");
        self.end(from).watched.fault(what);
        let instead = self.passing.oversized(from, oversized);
        self.end(from).watched.not_carried(|| NotCarried {
            side: from.into(),
            bytes: size,
            limit: Some(limit as u64),
            own: true,
            method: oversized.method.as_deref().map(unquoted),
            id: oversized.id.as_deref().map(short),
            instead: fate(&instead),
            why: format!("it is over --max-message ({limit} bytes)"),
        });
        match instead {
            Replacement::Answer(answer) => {
                tracing::warn!(side = %from, size, limit, "a request from {program} is too large and was answered with an error; start this gateway with a larger --max-message (now {limit} bytes), or send less");
                let answer = Outgoing::new(answer).tagged(SUBSTITUTE);
                self.end(from).send(answer, Noted::Made);
            }
            Replacement::Replace(message) => {
                tracing::warn!(side = %from, size, limit, "a response from {program} is too large and was replaced by an error; start this gateway with a larger --max-message (now {limit} bytes), or send less");
                let bytes = message.bytes;
                let shape = shape_of(std::str::from_utf8(&bytes).unwrap_or_default());
                let message = Incoming {
                    bytes,
                    shape: &shape,
                    key: None,
                    id: None,
                };
                if let Some((message, noted)) = self.pass(from, message, None) {
                    let other = self.end(from.other());
                    other.send(message.tagged(SUBSTITUTE), noted);
                }
            }
            Replacement::Drop(words) => {
                self.end(from.other()).lost += 1;
                tracing::warn!(side = %from, size, limit, "{words}");
            }
            Replacement::Close(code, reason) => {
                self.end(from.other()).lost += 1;
                tracing::error!(side = %from, size, limit, reason, "closed both ends: a message from {program} is too large, and cannot be answered with an error; start this gateway with a larger --max-message (now {limit} bytes), or send less");
                self.give_up(from.other(), code, reason);
            }
        }
    }

    /// A message could not be sent by a side; `place` is its place in the side's queue, if it has one.
    pub(super) fn not_sent(
        &mut self,
        to: Side,
        place: Option<TransferId>,
        bytes: &[u8],
        instead: Replacement,
        (error, limit): (&dyn fmt::Display, Option<usize>),
    ) {
        let size = bytes.len();
        let what = format_args!("a message of {size} bytes could not be sent: {error}");
        self.end(to).watched.fault(what);
        self.end(to).watched.not_carried(|| {
            let shape = shape_of(std::str::from_utf8(bytes).unwrap_or_default());
            let part = |range: Option<Range<usize>>| {
                let part = bytes.get(range?)?;
                Some(String::from_utf8_lossy(part).into_owned())
            };
            NotCarried {
                side: to.into(),
                bytes: size as u64,
                limit: limit.map(|limit| limit as u64),
                own: false,
                method: part(shape.method.clone()).as_deref().map(unquoted),
                id: part(shape.id.clone()).as_deref().map(short),
                instead: fate(&instead),
                why: error.to_string(),
            }
        });
        let end = self.end(to);
        let replace = |with| place.is_some_and(|place| end.channel.replace(place, with));
        match instead {
            Replacement::Answer(answer) => {
                replace(None);
                tracing::warn!(side = %to, size, %error, "a request could not be sent and was answered with an error");
                let sender = self.end(to.other());
                if sender.answers >= ANSWERS {
                    let reason = "too many requests cannot be sent, and their sender does not read the errors";
                    return self.close(1008, reason);
                }
                sender.send(Outgoing::new(answer).tagged(SUBSTITUTE), Noted::Made);
                let shape = shape_of(std::str::from_utf8(bytes).unwrap_or_default());
                self.answered_here(to.other(), bytes, &shape);
            }
            Replacement::Replace(message) => {
                tracing::warn!(side = %to, size, %error, "a response could not be sent and was replaced by an error");
                let bytes = message.bytes.len();
                let replaced = replace(Some(message.tagged(SUBSTITUTE)));
                if let Some(place) = place.filter(|_| replaced) {
                    end.queued(place, bytes, Noted::Made);
                }
            }
            Replacement::Drop(words) => {
                tracing::warn!(side = %to, size, "{words}");
                replace(None);
                self.end(to).lost += 1;
            }
            Replacement::Close(code, reason) => {
                end.lost += 1;
                tracing::error!(side = %to, size, %error, "closed both ends: a message could not be sent to {}, and cannot be answered with an error", to.program());
                self.give_up(to, code, reason);
            }
        }
    }
}

/// The limit that the message exceeded, if that is why it could not be sent.
pub(super) fn limit_of(error: &SendError) -> Option<usize> {
    match *error {
        SendError::MessageTooLarge { limit, .. }
        | SendError::FrameTooLarge { limit, .. }
        | SendError::FormatLimit { limit, .. } => Some(limit),
        SendError::TooManyPieces { cap, .. } | SendError::CapTooSmall { cap, .. } => Some(cap),
        _ => None,
    }
}

fn fate(instead: &Replacement) -> Fate {
    match instead {
        Replacement::Answer(_) => Fate::Answered,
        Replacement::Replace(_) => Fate::Replaced,
        Replacement::Drop(_) => Fate::Dropped,
        Replacement::Close(..) => Fate::Closed,
    }
}

/// A method as JSON text, or without its quotes already, for a record.
fn unquoted(method: &str) -> String {
    let inner = method
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    short(inner.unwrap_or(method))
}
