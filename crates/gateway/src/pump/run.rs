//! The loop of the pump: takes the messages that one side received and sends them by the other.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Closed, Event, Outgoing};
use breakbulk_net::plain_text;
use tokio::time::{Instant, sleep_until};

use super::end::{End, Leave};
use super::instead::limit_of;
use super::port::{Arrived, Channel, EndOutput, Heard, Outcome};
use super::unanswered::unanswered_words;
use super::unsent::explained;
use super::{
    Ended, Incoming, Missed, Options, Pass, Passing, Port, RefusedFrame, Replacement, Side,
    Skipped, TOO_LARGE, is_normal,
};
use crate::watch::{Head, Noted, SessionWatch};

/// The tag of an error that is sent in the place of a message: it is not replaced again.
pub(super) const SUBSTITUTE: u64 = 1;

/// The tag of a message that was sent before the pump began: the pump does not count it.
pub(crate) const HELLO: u64 = 2;

/// The close reason of a side when the connection of the other one broke.
const LOST: &str =
    "the gateway lost the program on its other side; the log of that gateway says why";

/// The reason by which a side is closed when the program at the other one has ended.
const ENDED: &str = "the other side has ended";

/// How many events of one side are handled before the other side's turn.
const AT_ONCE: usize = 64;

/// How long the last errors may take to be sent when the grace time is over.
const LAST_ERRORS: Duration = Duration::from_secs(1);

/// Carries messages between two ports until both are closed, and what was queued is sent or cannot be.
///
/// When `stop` completes, the messages that have arrived are still sent, open requests are waited for, and
/// both are closed with 1001. A request that nobody is left to answer is answered with an error.
pub async fn relay(
    listen: Port,
    to: Port,
    passing: impl Passing,
    stop: impl Future<Output = ()> + Send,
    options: Options,
) -> Ended {
    let stop = async {
        stop.await;
        Stopped::Gateway
    };
    relay_watched(listen, to, passing, stop, options, &SessionWatch::default()).await
}

/// Why a session is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// The gateway stops.
    Gateway,
    /// An operator ends this session.
    Operator,
}

impl Stopped {
    /// For the programs at both ends.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Gateway => "the gateway is stopping",
            Self::Operator => "the operator of the gateway ended the session",
        }
    }
}

/// [`relay`], with a watch that counts what passes, and a reason for the stop.
pub(crate) async fn relay_watched(
    listen: Port,
    to: Port,
    passing: impl Passing,
    stop: impl Future<Output = Stopped> + Send,
    options: Options,
    watched: &SessionWatch,
) -> Ended {
    let budget = listen.channel.budget().or_else(|| to.channel.budget());
    let mut pump = Pump {
        listen: End::new(listen, budget.clone(), watched.side(Side::Listen)),
        to: End::new(to, budget, watched.side(Side::To)),
        passing,
        options,
        stopping: None,
        deadline: None,
        patience: None,
        first: None,
        unanswered: 0,
        refused: None,
        why: String::new(),
    };
    tokio::pin!(stop);
    while !(pump.listen.closed && pump.to.closed) {
        pump.settle();
        let quiet = pump.stopping.is_some()
            && pump.listen.is_idle()
            && pump.to.is_idle()
            && !pump.has_open_requests();
        // Each side is read for as long as nothing waits for the other one.
        let (for_to, for_listen) = (pump.to.waiting.is_empty(), pump.listen.waiting.is_empty());
        tokio::select! {
            heard = pump.listen.channel.event(for_to), if !pump.listen.closed => {
                pump.heard(Side::Listen, heard);
                pump.hear_more(Side::Listen);
            }
            heard = pump.to.channel.event(for_listen), if !pump.to.closed => {
                pump.heard(Side::To, heard);
                pump.hear_more(Side::To);
            }
            outcome = next(&mut pump.listen.sending) => pump.sent(Side::Listen, outcome),
            outcome = next(&mut pump.to.sending) => pump.sent(Side::To, outcome),
            () = next(&mut pump.listen.input_ended) => pump.listen.ended_input(),
            () = next(&mut pump.to.input_ended) => pump.to.ended_input(),
            () = pump.listen.channel.drained(), if pump.listen.is_leaving() => {
                pump.listen.leave().await;
            }
            () = pump.to.channel.drained(), if pump.to.is_leaving() => pump.to.leave().await,
            missed = next_skipped(&mut pump.listen.skipped), if pump.can_answer() => {
                pump.missed(Side::Listen, missed);
            }
            missed = next_skipped(&mut pump.to.skipped), if pump.can_answer() => {
                pump.missed(Side::To, missed);
            }
            why = &mut stop, if pump.stopping.is_none() => pump.stop(why),
            _ = both_drained(&pump.listen.channel, &pump.to.channel), if quiet => {
                let (code, reason) = pump.stop_reason();
                pump.close(code, &reason);
            }
            () = until(pump.deadline) => pump.too_late(),
            () = until(pump.patience) => pump.waited(),
        }
    }
    let (listen, to) = tokio::join!(pump.listen.ended(), pump.to.ended());
    for (side, lost) in [(Side::Listen, listen), (Side::To, to)] {
        if lost > 0 {
            let why = pump.end(side).channel.why_unsent();
            tracing::error!(
                %side,
                messages = lost,
                "the connection to {} closed with messages unsent: {}",
                side.program(),
                plain_text(&why)
            );
        }
    }
    let after = [pump.listen.after.take(), pump.to.after.take()];
    for after in after.into_iter().flatten() {
        after.await;
    }
    pump.ended(listen + to)
}

/// The output of a future, if there is one.
async fn next<T>(future: &mut Option<Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

async fn next_skipped(skipped: &mut Option<Skipped>) -> Option<Missed> {
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

pub(super) struct Pump<P> {
    pub(super) listen: End,
    pub(super) to: End,
    pub(super) passing: P,
    options: Options,
    pub(super) stopping: Option<Stopped>,
    deadline: Option<Instant>,
    /// How long a side that has ended its input may wait for answers.
    patience: Option<Instant>,
    first: Option<(Side, Closed, bool)>,
    /// Requests whose answers are lost.
    pub(super) unanswered: usize,
    /// The frame that was too large for the side that was closed first.
    pub(super) refused: Option<RefusedFrame>,
    /// Why nobody answers requests of a side whose other side is closed.
    pub(super) why: String,
}

impl<P: Passing> Pump<P> {
    pub(super) fn end(&mut self, side: Side) -> &mut End {
        match side {
            Side::Listen => &mut self.listen,
            Side::To => &mut self.to,
        }
    }

    /// Begins to send what waits. If no more messages arrive by one side, the other one is told.
    fn settle(&mut self) {
        self.listen.send_next();
        self.to.send_next();
        self.listen.watched.turn();
        self.to.watched.turn();
        self.listen.show();
        self.to.show();
        let both = self.listen.has_no_more() && self.to.has_no_more();
        for side in [Side::Listen, Side::To] {
            let other = self.end(side.other());
            if !other.has_no_more() {
                continue;
            }
            let owed = !other.closed && !other.open.is_empty();
            let end = self.end(side);
            // A side that cannot end one direction alone would be closed before the answers arrive.
            if owed && !both && matches!(end.end_output, EndOutput::Close) {
                let patience = Instant::now() + self.options.grace;
                self.patience.get_or_insert(patience);
                continue;
            }
            let tells = matches!(end.leave, Leave::Stay);
            if tells {
                // The other side sends nothing more, so it does not answer this side's requests.
                let is_lost = side == Side::Listen;
                self.answer_open(side, "the other side has ended its input", is_lost);
            }
            let end = self.end(side);
            match end.leave {
                Leave::Stay if !both => end.leave = Leave::EndOutput,
                Leave::Stay | Leave::OutputEnded if both => {
                    end.leave = Leave::Close(1000, "end of input".to_owned());
                }
                _ => {}
            }
        }
    }

    /// The grace time for answers is over: requests without one are answered with an error.
    fn waited(&mut self) {
        self.patience = None;
        let grace = self.options.grace.as_secs();
        let why =
            format!("no answer came within the grace time of {grace} s after the end of input");
        for side in [Side::Listen, Side::To] {
            if self.end(side).no_input {
                self.answer_open(side, &why, true);
            }
        }
    }

    /// Handles events that are there already, for as long as nothing waits for the other side: messages that
    /// came together leave together.
    fn hear_more(&mut self, from: Side) {
        for _ in 1..AT_ONCE {
            let (end, other) = match from {
                Side::Listen => (&self.listen, &self.to),
                Side::To => (&self.to, &self.listen),
            };
            if end.closed || !other.waiting.is_empty() {
                return;
            }
            let Some(heard) = end.channel.try_event() else {
                return;
            };
            self.heard(from, heard);
        }
    }

    fn heard(&mut self, from: Side, heard: Heard) {
        match heard {
            Heard::Message(message) => {
                let Arrived {
                    bytes,
                    shape,
                    key,
                    pieces,
                    id,
                    charge,
                } = message;
                let head = self.end(from).watched.head(&bytes, &shape);
                let message = Incoming {
                    bytes,
                    shape: &shape,
                    key: key.as_ref(),
                    id,
                };
                if let Some((mut message, noted)) = self.pass(from, message, Some((head, pieces))) {
                    message.charge = charge.map(Arc::new);
                    self.end(from.other()).send(message, noted);
                }
                if self.end(from.other()).closed {
                    let why = self.why.clone();
                    self.answer_open(from, &why, true);
                }
            }
            Heard::Event(Event::Sent { tag: HELLO, .. }) => {}
            Heard::Event(Event::Sent { id, tag, frames }) => {
                self.end(from).sent_all(id, frames);
                self.passing.sent(from, tag);
            }
            Heard::Event(Event::SendFailed {
                id,
                tag,
                error,
                bytes,
            }) => {
                self.end(from).unqueue(id);
                let why = explained(bytes.len(), &error);
                let instead = match tag {
                    SUBSTITUTE => Replacement::Close(TOO_LARGE, why.clone()),
                    _ => self.passing.not_sent(from, &bytes, &error),
                };
                let limit = limit_of(&error);
                self.not_sent(from, Some(id), &bytes, instead, (&why, limit));
            }
            Heard::Event(Event::Control(word))
                if self.end(from).end_word.is_some_and(|end| word == end) =>
            {
                self.end(from).ended_input();
            }
            Heard::Event(event) => {
                match &event {
                    Event::Fault(fault) => {
                        let program = from.program();
                        tracing::warn!(side = %from, %fault, "ignored an invalid frame from {program}");
                        self.end(from).watched.fault(fault);
                    }
                    Event::TransferFailed(fault) => {
                        self.end(from).incomplete += 1;
                        let program = from.program();
                        tracing::warn!(side = %from, %fault, "a message from {program} did not arrive whole and is lost");
                        let what = format_args!("a message did not arrive whole: {fault}");
                        self.end(from).watched.fault(what);
                    }
                    _ => {}
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
            self.not_sent(to, None, &message.bytes, instead, (&error, None));
        }
    }

    /// Passes on a message that arrived, with its head and the number of its pieces, or one that the
    /// gateway made in its place; returns what to send.
    pub(super) fn pass(
        &mut self,
        from: Side,
        message: Incoming<'_>,
        arrived: Option<(Option<Head>, u64)>,
    ) -> Option<(Outgoing, Noted)> {
        self.follow(from, &message.bytes, message.shape);
        let bytes = message.bytes.len();
        let passed = self.passing.pass(from, message);
        let noted = match (&passed, arrived) {
            // The message is one of the gateways' own, and no program's.
            (Pass::InputEnded, _) => Noted::Word,
            (_, None) => Noted::Made,
            (_, Some((head, pieces))) => self.end(from).watched.received(head, bytes, pieces),
        };
        match passed {
            Pass::On(message) => return Some((*message, noted)),
            Pass::InputEnded => self.end(from).ended_input(),
            Pass::Refuse(code, reason) => {
                let program = from.program();
                tracing::error!(side = %from, bytes, code, reason, "closed both ends: a message from {program} cannot be carried");
                self.give_up(from.other(), code, reason);
            }
        }
        None
    }

    /// A side is closed: the other one will be, once all that waits for it is sent.
    fn closed(&mut self, side: Side, closed: Closed) {
        // Messages that were skipped before the end are handled first.
        while let Some(missed) = self.end(side).skipped.as_mut().and_then(Skipped::try_next) {
            self.missed(side, Some(missed));
        }
        let end = self.end(side);
        end.clear();
        let (lost, is_private) = (end.lost, end.is_private);
        let by_peer = end.channel.closed_by_peer();
        if lost > 0 {
            tracing::warn!(%side, messages = lost, "the connection to {} closed with messages unsent", side.program());
        }
        let refused = end.channel.refused_frame(&closed);
        let cutting = end.cutting;
        if self.first.is_none() {
            self.refused = refused.map(|size| RefusedFrame::new(size, cutting, &closed));
        }
        let before = self.unanswered;
        self.close_open_requests(side, &closed, by_peer);
        let (mut code, mut reason) = passed_on(&closed, is_private);
        if is_normal(code) && self.unanswered > before {
            // A gateway at the other end must not take it for a normal end.
            code = 1011;
            reason = format!("{reason}; {}", unanswered_words(self.unanswered - before));
        }
        let other = self.end(side.other());
        if !matches!(other.leave, Leave::Close(..)) {
            other.leave = Leave::Close(code, reason);
        }
        let clean = is_normal(closed.code);
        self.first.get_or_insert((side, closed, by_peer));
        // After a normal end the receiver may take as long as it needs.
        if !clean {
            self.hurry();
        }
    }

    fn stop(&mut self, why: Stopped) {
        self.stopping = Some(why);
        self.hurry();
    }

    /// Gives the queued messages until the end of the grace time to be sent.
    fn hurry(&mut self) {
        let deadline = Instant::now() + self.options.grace;
        self.deadline.get_or_insert(deadline);
    }

    fn too_late(&mut self) {
        self.deadline = None;
        if self.has_open_requests() {
            let grace = self.options.grace.as_secs();
            let stopped = self.stopping.unwrap_or(Stopped::Gateway).words();
            let why = format!("{stopped}, and no answer came within its grace time of {grace} s");
            self.answer_open(Side::Listen, &why, true);
            self.answer_open(Side::To, &why, true);
            self.deadline = Some(Instant::now() + LAST_ERRORS);
            return;
        }
        let (code, reason) = match &self.first {
            Some((side, closed, _)) => {
                let is_private = match side {
                    Side::Listen => self.listen.is_private,
                    Side::To => self.to.is_private,
                };
                passed_on(closed, is_private)
            }
            None => self.stop_reason(),
        };
        let grace = self.options.grace.as_secs();
        tracing::warn!(
            "closed both ends: the queued messages were not sent within the grace time of {grace} s; raise --grace"
        );
        self.close(code, &reason);
    }

    /// How it ended; `unsent` messages were in the transports.
    fn ended(self, unsent: usize) -> Ended {
        let normal = Closed {
            code: 1000,
            reason: String::new(),
        };
        let (side, closed, by_peer) = self.first.unwrap_or((Side::Listen, normal, false));
        let (listen, to) = (&self.listen, &self.to);
        // A client that chose to leave does not miss what was still on its way to it.
        let left = side == Side::Listen && by_peer && is_normal(closed.code);
        let (incomplete, unframed) = match left {
            true => (0, 0),
            false => (to.incomplete, to.unframed()),
        };
        Ended {
            side,
            closed,
            by_peer,
            lost: listen.lost + to.lost + unsent,
            unanswered: self.unanswered,
            incomplete: listen.incomplete + incomplete,
            unframed: listen.unframed() + unframed,
            refused: self.refused,
        }
    }

    /// Closes a side now: it cannot get a message, so it must not get the ones after it. The other side is
    /// closed once its open requests are answered with an error that says why.
    pub(super) fn give_up(&mut self, side: Side, code: u16, reason: String) {
        self.answer_open(side.other(), &format!("{reason} ({code})"), true);
        self.end(side).channel.close(code, &reason);
        self.end(side.other()).leave = Leave::Close(code, reason);
        self.hurry();
    }

    /// Closes both sides now.
    pub(super) fn close(&mut self, code: u16, reason: &str) {
        self.listen.channel.close(code, reason);
        self.to.channel.close(code, reason);
    }
}

/// The code and reason by which a side is closed when the other one was. Some codes may not be sent, and
/// how a connection broke may contain what its other end should not know: that is only logged.
pub(super) fn passed_on(closed: &Closed, is_private: bool) -> (u16, String) {
    match closed.code {
        1000 | 1001 | 1005 if is_private => (1000, ENDED.to_owned()),
        1002..=1014 | 3000..=4999 if is_private => (1011, LOST.to_owned()),
        1005 => (1000, closed.reason.clone()),
        1000..=1003 | 1007..=1014 | 3000..=4999 => (closed.code, closed.reason.clone()),
        _ => (1011, LOST.to_owned()),
    }
}
