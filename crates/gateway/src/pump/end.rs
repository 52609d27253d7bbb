//! One side of the pump while it runs: the messages that wait to be sent by it, its open requests, and how
//! it is closed.

use std::collections::VecDeque;

use breakbulk_link::{Budget, Outgoing};

use super::open_requests::OpenRequests;
use super::port::{Channel, Done, EndOutput, Outcome, Port, Sending, Undelivered};
use super::{Replacement, Skipped};

/// One side.
pub(super) struct End {
    pub(super) channel: Channel,
    /// Messages that the channel has no room for. They are charged to the other side.
    pub(super) waiting: VecDeque<Outgoing>,
    /// The first of them, while it is being sent.
    pub(super) sending: Option<Sending>,
    /// How many of those that wait are errors made by the gateway, which are charged to neither side.
    pub(super) answers: usize,
    /// Messages in the channel's queue.
    pub(super) queued: usize,
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
    /// Whether how it ended is for the log alone.
    pub(super) is_private: bool,
    pub(super) leave: Leave,
    pub(super) closed: bool,
    pub(super) lost: usize,
    /// Messages of its other end that did not arrive whole.
    pub(super) incomplete: usize,
    pub(super) after: Option<Done>,
    undelivered: Option<Undelivered>,
    #[cfg(feature = "process")]
    ends: Option<breakbulk_net::process::Ends>,
}

/// What happens to a side once all that waits is sent.
pub(super) enum Leave {
    /// Nothing.
    Stay,
    /// Its other end is told that no more messages are sent.
    EndOutput,
    /// Its other end was told so.
    OutputEnded,
    /// It is closed.
    Close(u16, String),
}

impl End {
    /// What is remembered of its open requests is charged to the budget.
    pub(super) fn new(port: Port, budget: Option<Budget>) -> Self {
        Self {
            channel: port.channel,
            waiting: VecDeque::new(),
            sending: None,
            answers: 0,
            queued: 0,
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
            #[cfg(feature = "process")]
            ends: port.ends,
        }
    }

    /// Sends, or keeps for when there is room.
    pub(super) fn send(&mut self, message: Outgoing) {
        let message = match self.waiting.is_empty() {
            true => match self.channel.try_send(message) {
                Ok(outcome) => return drop(self.count(outcome)),
                Err(message) => message,
            },
            false => message,
        };
        self.answers += usize::from(message.charge.is_none());
        self.waiting.push_back(message);
    }

    /// Starts to send the first message that waits, whose bytes are shared.
    pub(super) fn send_next(&mut self) {
        if self.sending.is_none() && !self.closed {
            self.sending = self
                .waiting
                .front()
                .cloned()
                .map(|message| self.channel.send(message));
        }
    }

    /// The first message that waited is sent or failed. Returns it with what is done about it, if this
    /// side cannot carry it.
    pub(super) fn sent(&mut self, outcome: Outcome) -> Option<(Outgoing, Replacement, String)> {
        self.sending = None;
        let message = self.waiting.pop_front()?;
        self.answers -= usize::from(message.charge.is_none());
        let (replacement, error) = self.count(outcome)?;
        Some((message, replacement, error))
    }

    fn count(&mut self, outcome: Outcome) -> Option<(Replacement, String)> {
        match outcome {
            Outcome::Queued => self.queued += 1,
            #[cfg(feature = "nostr")]
            Outcome::Out => {}
            Outcome::Lost => self.lost += 1,
            #[cfg(feature = "nostr")]
            Outcome::Refused(replacement, error) => return Some((replacement, error)),
        }
        None
    }

    /// The channel is closed: what waits counts as lost.
    pub(super) fn clear(&mut self) {
        self.closed = true;
        self.sending = None;
        self.lost += self.queued + self.waiting.len();
        self.incomplete += self.channel.cut_off();
        (self.queued, self.answers) = (0, 0);
        self.waiting.clear();
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

    /// All that waited is sent: does what `leave` says.
    pub(super) async fn leave(&mut self) {
        match std::mem::replace(&mut self.leave, Leave::OutputEnded) {
            Leave::EndOutput => match std::mem::take(&mut self.end_output) {
                EndOutput::Close => self.channel.close(1000, "end of input"),
                EndOutput::Message(bytes) => self.send(Outgoing::new(bytes)),
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
