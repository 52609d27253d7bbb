//! One side of the pump while it runs: what waits to go out by it, what it still owes, how it leaves.

use std::collections::VecDeque;

use breakbulk_link::Outgoing;

use super::port::{Channel, Done, EndOutput, Outcome, Port, Sending};
use super::{Replacement, Skipped};

/// One side.
pub(super) struct End {
    pub(super) channel: Channel,
    /// Messages that the channel has no room for. What they cost is charged to the other side.
    pub(super) waiting: VecDeque<Outgoing>,
    /// The first of them, on its way into the channel.
    pub(super) sending: Option<Sending>,
    /// Of those that wait, messages of the gateway itself, which nobody is charged for.
    pub(super) answers: usize,
    /// Messages in the channel's queue.
    pub(super) queued: usize,
    /// Requests that came in and have no answer yet.
    pub(super) owed: usize,
    pub(super) input_ended: Option<Done>,
    /// No more comes in; what came may still be on its way.
    pub(super) no_input: bool,
    pub(super) end_output: EndOutput,
    /// Messages that were too large to come in.
    pub(super) skipped: Option<Skipped>,
    /// Whether how it ended is for the log alone.
    pub(super) is_private: bool,
    pub(super) leave: Leave,
    pub(super) closed: bool,
    pub(super) lost: usize,
}

/// What happens to a side once all that waits is out.
pub(super) enum Leave {
    /// Nothing.
    Stay,
    /// Its other end is told that no more goes out.
    EndOutput,
    /// Its other end was told.
    OutputEnded,
    /// It is closed.
    Close(u16, String),
}

impl End {
    pub(super) fn new(port: Port) -> Self {
        Self {
            channel: port.channel,
            waiting: VecDeque::new(),
            sending: None,
            answers: 0,
            queued: 0,
            owed: 0,
            input_ended: port.input_ended,
            no_input: false,
            end_output: port.end_output,
            skipped: port.skipped,
            is_private: port.is_private,
            leave: Leave::Stay,
            closed: false,
            lost: 0,
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
            Outcome::Out => {}
            Outcome::Lost => self.lost += 1,
            Outcome::Refused(replacement, error) => return Some((replacement, error)),
        }
        None
    }

    /// Nothing waits any more: the channel is closed.
    pub(super) fn clear(&mut self) {
        self.closed = true;
        self.sending = None;
        self.lost += self.queued + self.waiting.len();
        (self.queued, self.answers) = (0, 0);
        self.waiting.clear();
    }

    pub(super) fn ended_input(&mut self) {
        self.input_ended = None;
        self.no_input = true;
    }

    /// Whether all that came in has been taken, and no more comes.
    pub(super) fn has_no_more(&self) -> bool {
        self.closed || self.no_input && self.has_told() && !self.channel.has_event()
    }

    pub(super) fn is_leaving(&self) -> bool {
        let leaving = matches!(self.leave, Leave::EndOutput | Leave::Close(..));
        leaving && self.waiting.is_empty() && !self.closed
    }

    /// All that waited is out.
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
        self.closed || self.has_told() && self.waiting.is_empty() && self.channel.is_idle()
    }

    /// Whether nothing that was skipped is still to be told.
    fn has_told(&self) -> bool {
        self.skipped.as_ref().is_none_or(Skipped::is_empty)
    }
}
