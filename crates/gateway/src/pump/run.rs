//! The loop of the pump: takes the messages that one side received and sends them by the other.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;

use breakbulk_link::{Closed, Event, MessageKind, Outgoing, TransferId};
use breakbulk_wire::shape_of;
use tokio::time::{Instant, sleep_until};

use super::end::{End, Leave};
use super::port::{Arrived, Channel, EndOutput, Heard, Outcome};
use super::{
    Ended, Incoming, Options, Oversized, Pass, Passing, Port, Replacement, Side, Skipped, TOO_LARGE,
};

/// The tag of an error that is sent in the place of a message: it is not replaced again.
const SUBSTITUTE: u64 = 1;

/// The tag of a message that was sent before the pump began: the pump does not count it.
pub(crate) const HELLO: u64 = 2;

/// The close reason of a side when the connection of the other one broke.
const LOST: &str = "the connection on the other side of the gateway broke; its log says how";

/// The reason by which a side is closed when the program at the other one has ended.
const ENDED: &str = "the other side has ended";

/// The most errors made by the gateway that wait to be sent by one side.
const ANSWERS: usize = 1024;

/// Carries messages between two ports until both are closed, and what was queued is sent or cannot be.
///
/// When `stop` completes, the messages that have arrived are still sent, and both are closed with 1001.
pub async fn relay(
    listen: Port,
    to: Port,
    passing: impl Passing,
    stop: impl Future<Output = ()> + Send,
    options: Options,
) -> Ended {
    let mut pump = Pump {
        listen: End::new(listen),
        to: End::new(to),
        passing,
        options,
        stopping: false,
        deadline: None,
        patience: None,
        first: None,
    };
    tokio::pin!(stop);
    while !(pump.listen.closed && pump.to.closed) {
        pump.settle();
        let quiet = pump.stopping && pump.listen.is_idle() && pump.to.is_idle();
        // Each side is read for as long as nothing waits for the other one.
        let (for_to, for_listen) = (pump.to.waiting.is_empty(), pump.listen.waiting.is_empty());
        tokio::select! {
            heard = pump.listen.channel.event(for_to), if !pump.listen.closed => {
                pump.heard(Side::Listen, heard);
            }
            heard = pump.to.channel.event(for_listen), if !pump.to.closed => {
                pump.heard(Side::To, heard);
            }
            outcome = next(&mut pump.listen.sending) => pump.sent(Side::Listen, outcome),
            outcome = next(&mut pump.to.sending) => pump.sent(Side::To, outcome),
            () = next(&mut pump.listen.input_ended) => pump.listen.ended_input(),
            () = next(&mut pump.to.input_ended) => pump.to.ended_input(),
            () = pump.listen.channel.drained(), if pump.listen.is_leaving() => {
                pump.listen.leave().await;
            }
            () = pump.to.channel.drained(), if pump.to.is_leaving() => pump.to.leave().await,
            oversized = next_skipped(&mut pump.listen.skipped), if pump.can_answer() => {
                pump.skipped(Side::Listen, oversized);
            }
            oversized = next_skipped(&mut pump.to.skipped), if pump.can_answer() => {
                pump.skipped(Side::To, oversized);
            }
            () = &mut stop, if !pump.stopping => pump.stop(),
            _ = both_drained(&pump.listen.channel, &pump.to.channel), if quiet => {
                pump.close(1001, "the gateway is stopping");
            }
            () = until(pump.deadline) => pump.too_late(),
            () = until(pump.patience) => pump.waited(),
        }
    }
    let (listen, to) = tokio::join!(pump.listen.channel.ended(), pump.to.channel.ended());
    for (side, lost) in [(Side::Listen, listen), (Side::To, to)] {
        if lost > 0 {
            tracing::error!(%side, messages = lost, "closed with messages unsent: the receiver is gone, or took longer than the grace time");
        }
    }
    let (side, closed, by_peer) = pump.first.unwrap_or((
        Side::Listen,
        Closed {
            code: 1000,
            reason: String::new(),
        },
        false,
    ));
    Ended {
        side,
        closed,
        by_peer,
        lost: pump.listen.lost + pump.to.lost + listen + to,
    }
}

/// The output of a future, if there is one.
async fn next<T>(future: &mut Option<Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

async fn next_skipped(skipped: &mut Option<Skipped>) -> Option<Oversized> {
    match skipped {
        Some(skipped) => skipped.next().await,
        None => pending().await,
    }
}

async fn both_drained(listen: &Channel, to: &Channel) {
    tokio::join!(listen.drained(), to.drained());
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

struct Pump<P> {
    listen: End,
    to: End,
    passing: P,
    options: Options,
    stopping: bool,
    deadline: Option<Instant>,
    /// How long a side that has ended its input may wait for answers.
    patience: Option<Instant>,
    first: Option<(Side, Closed, bool)>,
}

impl<P: Passing> Pump<P> {
    fn end(&mut self, side: Side) -> &mut End {
        match side {
            Side::Listen => &mut self.listen,
            Side::To => &mut self.to,
        }
    }

    /// Begins to send what waits. If no more messages arrive by one side, the other one is told.
    fn settle(&mut self) {
        self.listen.send_next();
        self.to.send_next();
        let both = self.listen.has_no_more() && self.to.has_no_more();
        for side in [Side::Listen, Side::To] {
            let other = self.end(side.other());
            if !other.has_no_more() {
                continue;
            }
            let owed = !other.closed && other.owed > 0;
            let end = self.end(side);
            // A side that cannot end one direction alone would be closed before the answers arrive.
            if owed && !both && matches!(end.end_output, EndOutput::Close) {
                let patience = Instant::now() + self.options.grace;
                self.patience.get_or_insert(patience);
                continue;
            }
            match end.leave {
                Leave::Stay if !both => end.leave = Leave::EndOutput,
                Leave::Stay | Leave::OutputEnded if both => {
                    end.leave = Leave::Close(1000, "end of input".to_owned());
                }
                _ => {}
            }
        }
    }

    /// The grace time for answers is over: those that did not arrive count as lost.
    fn waited(&mut self) {
        self.patience = None;
        for end in [&mut self.listen, &mut self.to] {
            if end.no_input && end.owed > 0 {
                tracing::warn!(
                    requests = end.owed,
                    "requests were not answered within the grace time after the end of input"
                );
                end.lost += std::mem::take(&mut end.owed);
            }
        }
    }

    fn heard(&mut self, from: Side, heard: Heard) {
        match heard {
            Heard::Message(message) => {
                let Arrived {
                    bytes,
                    shape,
                    key,
                    charge,
                } = message;
                let message = Incoming {
                    bytes,
                    shape: &shape,
                    key: key.as_ref(),
                };
                if let Some(mut message) = self.pass(from, message) {
                    message.charge = charge.map(Arc::new);
                    self.end(from.other()).send(message);
                }
            }
            Heard::Event(Event::Sent { tag: HELLO, .. }) => {}
            Heard::Event(Event::Sent { .. }) => {
                let end = self.end(from);
                end.queued = end.queued.saturating_sub(1);
            }
            Heard::Event(Event::SendFailed {
                id,
                tag,
                error,
                bytes,
            }) => {
                let end = self.end(from);
                end.queued = end.queued.saturating_sub(1);
                let instead = match tag {
                    SUBSTITUTE => Replacement::Close(TOO_LARGE, error.to_string()),
                    _ => self.passing.not_sent(from, &bytes, &error),
                };
                self.not_sent(from, Some(id), bytes.len(), instead, &error);
            }
            Heard::Event(event) => {
                if let Event::Fault(fault) | Event::TransferFailed(fault) = &event {
                    tracing::warn!(side = %from, %fault, "received an invalid frame");
                }
                self.passing.heard(from, &event);
            }
            #[cfg(feature = "nostr")]
            Heard::Lost => self.end(from).lost += 1,
            Heard::Closed(closed) => self.closed(from, closed),
        }
    }

    /// A message that waited was sent, or could not be.
    fn sent(&mut self, to: Side, outcome: Outcome) {
        if let Some((message, instead, error)) = self.end(to).sent(outcome) {
            self.not_sent(to, None, message.bytes.len(), instead, &error);
        }
    }

    /// Passes on a message that arrived; returns what to send.
    fn pass(&mut self, from: Side, message: Incoming<'_>) -> Option<Outgoing> {
        match message.shape.kind {
            MessageKind::Request => self.end(from).owed += 1,
            MessageKind::Result | MessageKind::Error => {
                let asker = self.end(from.other());
                asker.owed = asker.owed.saturating_sub(1);
            }
            MessageKind::Notification | MessageKind::Opaque => {}
        }
        match self.passing.pass(from, message) {
            Pass::On(message) => return Some(*message),
            Pass::InputEnded => self.end(from).ended_input(),
            Pass::Refuse(code, reason) => {
                tracing::error!(side = %from, code, reason, "closed both ends: a message cannot be carried");
                self.close(code, &reason);
            }
        }
        None
    }

    /// Whether both sides have room for another error made by the gateway.
    fn can_answer(&self) -> bool {
        self.listen.answers < ANSWERS && self.to.answers < ANSWERS
    }

    /// A message was too large to be received.
    fn skipped(&mut self, from: Side, oversized: Option<Oversized>) {
        let Some(oversized) = oversized else {
            self.end(from).skipped = None;
            return;
        };
        let Oversized { size, limit, .. } = oversized;
        match self.passing.oversized(from, &oversized) {
            Replacement::Answer(answer) => {
                tracing::warn!(side = %from, size, limit, "a request is too large and was answered with an error; raise max-message of this end or send less");
                let answer = Outgoing::new(answer).tagged(SUBSTITUTE);
                self.end(from).send(answer);
            }
            Replacement::Replace(message) => {
                tracing::warn!(side = %from, size, limit, "a response is too large and was replaced by an error; raise max-message of this end or send less");
                let bytes = message.bytes;
                let shape = shape_of(std::str::from_utf8(&bytes).unwrap_or_default());
                let message = Incoming {
                    bytes,
                    shape: &shape,
                    key: None,
                };
                if let Some(message) = self.pass(from, message) {
                    self.end(from.other()).send(message.tagged(SUBSTITUTE));
                }
            }
            Replacement::Drop(words) => {
                self.end(from.other()).lost += 1;
                tracing::warn!(side = %from, size, limit, "{words}");
            }
            Replacement::Close(code, reason) => {
                self.end(from.other()).lost += 1;
                tracing::error!(side = %from, size, limit, reason, "closed both ends: a message is too large, and cannot be answered with an error; raise max-message of this end");
                self.close(code, &reason);
            }
        }
    }

    /// A message could not be sent by a side; `place` is its place in the side's queue, if it has one.
    fn not_sent(
        &mut self,
        to: Side,
        place: Option<TransferId>,
        size: usize,
        instead: Replacement,
        error: &dyn fmt::Display,
    ) {
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
                sender.owed = sender.owed.saturating_sub(1);
                sender.send(Outgoing::new(answer).tagged(SUBSTITUTE));
            }
            Replacement::Replace(message) => {
                tracing::warn!(side = %to, size, %error, "a response could not be sent and was replaced by an error");
                let replaced = replace(Some(message.tagged(SUBSTITUTE)));
                end.queued += usize::from(replaced);
            }
            Replacement::Drop(words) => {
                tracing::warn!(side = %to, size, "{words}");
                replace(None);
                end.lost += 1;
            }
            Replacement::Close(code, reason) => {
                end.lost += 1;
                tracing::error!(side = %to, size, %error, "closed both ends: a message could not be sent, and cannot be answered with an error");
                self.close(code, &reason);
            }
        }
    }

    /// A side is closed: the other one will be, once all that waits for it is sent.
    fn closed(&mut self, side: Side, closed: Closed) {
        // Messages that were skipped before the end are handled first.
        while let Some(oversized) = self.end(side).skipped.as_mut().and_then(Skipped::try_next) {
            self.skipped(side, Some(oversized));
        }
        let end = self.end(side);
        end.clear();
        let lost = end.lost;
        let by_peer = end.channel.closed_by_peer();
        if lost > 0 {
            tracing::warn!(%side, messages = lost, "closed with messages unsent");
        }
        let (code, reason) = passed_on(&closed, end.is_private);
        let other = self.end(side.other());
        if !matches!(other.leave, Leave::Close(..)) {
            other.leave = Leave::Close(code, reason);
        }
        let clean = matches!(closed.code, 1000 | 1001 | 1005);
        self.first.get_or_insert((side, closed, by_peer));
        // After a normal end the receiver may take as long as it needs.
        if !clean {
            self.hurry();
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.hurry();
    }

    /// From now on, what is queued must be sent within the grace time.
    fn hurry(&mut self) {
        let deadline = Instant::now() + self.options.grace;
        self.deadline.get_or_insert(deadline);
    }

    fn too_late(&mut self) {
        self.deadline = None;
        let (code, reason) = match &self.first {
            Some((side, closed, _)) => {
                let is_private = match side {
                    Side::Listen => self.listen.is_private,
                    Side::To => self.to.is_private,
                };
                passed_on(closed, is_private)
            }
            None => (1001, "the gateway is stopping".to_owned()),
        };
        let grace = self.options.grace.as_secs();
        tracing::warn!(
            "closed both ends: the queued messages were not sent within the grace time of {grace} s; raise the grace time"
        );
        self.close(code, &reason);
    }

    /// Closes both sides now.
    fn close(&mut self, code: u16, reason: &str) {
        self.listen.channel.close(code, reason);
        self.to.channel.close(code, reason);
    }
}

/// The code and reason by which a side is closed when the other one was. Some codes may not be sent, and
/// how a connection broke may contain what its other end should not know: that is only logged.
fn passed_on(closed: &Closed, is_private: bool) -> (u16, String) {
    match closed.code {
        1000 | 1001 | 1005 if is_private => (1000, ENDED.to_owned()),
        1002..=1014 | 3000..=4999 if is_private => (1011, LOST.to_owned()),
        1005 => (1000, closed.reason.clone()),
        1000..=1003 | 1007..=1014 | 3000..=4999 => (closed.code, closed.reason.clone()),
        _ => (1011, LOST.to_owned()),
    }
}
