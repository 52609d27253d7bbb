//! One side of the pump while it runs: the messages that wait to be sent by it, its open requests, and how
//! it is closed.

use std::collections::VecDeque;

use breakbulk_link::{Budget, Outgoing, TransferId};

use super::open_requests::OpenRequests;
use super::port::{Channel, Done, EndOutput, Outcome, Port, Sending, Undelivered};
use super::{Cutting, Replacement, Skipped};
use crate::watch::{Noted, PumpedEnd, SideWatch};

/// One side.
pub(super) struct End {
    pub(super) channel: Channel,
    pub(super) cutting: Cutting,
    /// Messages that the channel has no room for. They are charged to the other side.
    pub(super) waiting: VecDeque<(Outgoing, Noted)>,
    /// The first of them, while it is being sent.
    pub(super) sending: Option<Sending>,
    /// How many of those that wait are errors made by the gateway, which are charged to neither side.
    pub(super) answers: usize,
    /// Messages in the channel's queue.
    queued: VecDeque<Queued>,
    /// Requests that arrived by this side and have no answer yet.
    pub(super) open: OpenRequests,
    pub(super) input_ended: Option<Done>,
    /// No more messages arrive; the last ones may not have been taken yet.
    pub(super) no_input: bool,
    pub(super) end_output: EndOutput,
    /// The control word by which its other end tells that no more messages arrive.
    pub(super) end_word: Option<&'static str>,
    /// Messages that were too large to be received.
    pub(super) skipped: Option<Skipped>,
    /// Whether only the log may say how this side ended.
    pub(super) is_private: bool,
    pub(super) leave: Leave,
    pub(super) closed: bool,
    pub(super) lost: usize,
    /// Messages of its other end that did not arrive whole.
    pub(super) incomplete: usize,
    pub(super) after: Option<Done>,
    undelivered: Option<Undelivered>,
    /// Counts what passes at this side, for whoever looks.
    pub(super) watched: PumpedEnd,
    #[cfg(feature = "process")]
    ends: Option<breakbulk_net::process::Ends>,
}

/// A message in the queue of a channel.
pub(super) struct Queued {
    id: TransferId,
    bytes: usize,
    noted: Noted,
}

/// What happens to a side once all that waits is sent.
pub(super) enum Leave {
    /// Nothing.
    Stay,
    /// Its other end is told that no more messages are sent.
    EndOutput,
    /// Its other end was told that no more messages are sent.
    OutputEnded,
    /// It is closed.
    Close(u16, String),
}

impl End {
    /// `budget` is charged for what is remembered of this side's open requests.
    pub(super) fn new(port: Port, budget: Option<Budget>, watched: SideWatch) -> Self {
        Self {
            channel: port.channel,
            cutting: port.cutting,
            waiting: VecDeque::new(),
            sending: None,
            answers: 0,
            queued: VecDeque::new(),
            open: OpenRequests::charged_to(budget),
            input_ended: port.input_ended,
            no_input: false,
            end_output: port.end_output,
            end_word: port.end_word,
            skipped: port.skipped,
            is_private: port.is_private,
            leave: Leave::Stay,
            closed: false,
            lost: 0,
            incomplete: 0,
            after: port.after,
            undelivered: port.undelivered,
            watched: PumpedEnd::new(watched),
            #[cfg(feature = "process")]
            ends: port.ends,
        }
    }

    /// Sends a message, or keeps it until there is room.
    pub(super) fn send(&mut self, message: Outgoing, noted: Noted) {
        let bytes = message.bytes.len();
        let message = match self.waiting.is_empty() {
            true => match self.channel.try_send(message) {
                Ok(outcome) => return drop(self.count(outcome, bytes, noted)),
                Err(message) => message,
            },
            false => message,
        };
        self.answers += usize::from(message.charge.is_none());
        self.waiting.push_back((message, noted));
    }

    /// Starts to send the first message that waits, whose bytes are shared.
    pub(super) fn send_next(&mut self) {
        if self.sending.is_none() && !self.closed {
            self.sending = self
                .waiting
                .front()
                .map(|(message, _)| self.channel.send(message.clone()));
        }
    }

    /// The first message that waited was sent or failed. If this side cannot carry it, returns it, with what
    /// to do about it and the error.
    pub(super) fn sent(&mut self, outcome: Outcome) -> Option<(Outgoing, Replacement, String)> {
        self.sending = None;
        let (message, noted) = self.waiting.pop_front()?;
        self.answers -= usize::from(message.charge.is_none());
        let (replacement, error) = self.count(outcome, message.bytes.len(), noted)?;
        Some((message, replacement, error))
    }

    fn count(
        &mut self,
        outcome: Outcome,
        bytes: usize,
        noted: Noted,
    ) -> Option<(Replacement, String)> {
        match outcome {
            Outcome::Queued(id) => self.queued(id, bytes, noted),
            #[cfg(feature = "nostr")]
            Outcome::Out => self.watched.sent(noted, bytes, 1),
            Outcome::Lost => self.lost += 1,
            #[cfg(feature = "nostr")]
            Outcome::Refused(replacement, error) => return Some((replacement, error)),
        }
        None
    }

    /// A message is in the queue of the channel.
    pub(super) fn queued(&mut self, id: TransferId, bytes: usize, noted: Noted) {
        self.queued.push_back(Queued { id, bytes, noted });
    }

    /// A message of the channel's queue was sent, in so many frames.
    pub(super) fn sent_all(&mut self, id: TransferId, frames: u64) {
        if let Some(Queued { bytes, noted, .. }) = self.unqueue(id) {
            self.watched.sent(noted, bytes, frames);
        }
    }

    /// Removes a message from those in the channel's queue. `None` if somebody else put it there.
    pub(super) fn unqueue(&mut self, id: TransferId) -> Option<Queued> {
        // Mostly it is the first one.
        let place = self.queued.iter().position(|queued| queued.id == id)?;
        self.queued.remove(place)
    }

    /// The channel is closed: what waits counts as lost.
    pub(super) fn clear(&mut self) {
        self.closed = true;
        self.sending = None;
        self.lost += self.queued.len() + self.waiting.len();
        self.incomplete += self.channel.cut_off();
        self.answers = 0;
        self.queued.clear();
        self.waiting.clear();
    }

    /// Shows what was carried and how much waits, to whoever looks.
    pub(super) fn show(&mut self) {
        let open = if self.closed { 0 } else { self.open.len() };
        self.watched.show(open, self.waiting.len());
    }

    pub(super) fn ended_input(&mut self) {
        self.input_ended = None;
        self.no_input = true;
    }

    /// Whether all messages that arrived have been taken, and no more will arrive.
    pub(super) fn has_no_more(&self) -> bool {
        self.closed || self.no_input && self.has_handled_skipped() && !self.channel.has_event()
    }

    pub(super) fn is_leaving(&self) -> bool {
        let leaving = matches!(self.leave, Leave::EndOutput | Leave::Close(..));
        leaving && self.waiting.is_empty() && !self.closed
    }

    /// All that waited is sent: carries out what the field `leave` says.
    pub(super) async fn leave(&mut self) {
        match std::mem::replace(&mut self.leave, Leave::OutputEnded) {
            Leave::EndOutput => match std::mem::take(&mut self.end_output) {
                EndOutput::Close => self.channel.close(1000, "end of input"),
                EndOutput::Message(bytes) => self.send(Outgoing::new(bytes), Noted::Word),
                EndOutput::Run(run) => run.await,
            },
            Leave::Close(code, reason) => self.channel.close(code, &reason),
            leave @ (Leave::Stay | Leave::OutputEnded) => self.leave = leave,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.closed
            || self.has_handled_skipped()
                && self.waiting.is_empty()
                && self.unframed() == 0
                && self.channel.is_idle()
    }

    /// Waits until its transport is gone. Returns the number of messages that were not sent.
    pub(super) fn ended(&self) -> impl Future<Output = usize> + use<'_> {
        let (channel, undelivered) = (&self.channel, self.undelivered.as_ref());
        async move {
            let unsent = channel.ended().await;
            let undelivered = undelivered.map_or(0, |count| count());
            // How many messages the frames belong to is not known: at least one.
            unsent.max(undelivered.min(1))
        }
    }

    /// Whether a message can still be sent by it.
    pub(super) fn takes_messages(&self) -> bool {
        !self.closed && !matches!(self.leave, Leave::OutputEnded)
    }

    /// Bytes that were read and belong to no whole message.
    pub(super) fn unframed(&self) -> u64 {
        #[cfg(feature = "process")]
        return self.ends.as_ref().map_or(0, |ends| ends.unframed());
        #[cfg(not(feature = "process"))]
        0
    }

    /// Whether all skipped messages have been handled.
    fn has_handled_skipped(&self) -> bool {
        self.skipped.as_ref().is_none_or(Skipped::is_empty)
    }
}
