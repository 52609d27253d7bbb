//! One side of the pump: what waits for it, what it still owes, and how it leaves.

use std::collections::VecDeque;

use breakbulk_link::{Link, Outgoing, Rejected, SendError, TransferId};
use breakbulk_net::Connection;
use bytes::Bytes;

use super::{Done, EndOutput, Port, Skipped};

/// One side.
pub(super) struct End {
    pub(super) connection: Connection,
    /// Messages that its queue has no room for. What they cost is charged to the other side.
    pub(super) waiting: VecDeque<Outgoing>,
    /// Of these, answers of our own, which nobody is charged for.
    pub(super) answers: usize,
    /// Messages in its queue.
    pub(super) queued: usize,
    /// Requests that came in by it and have no answer yet.
    pub(super) owed: usize,
    pub(super) input_ended: Option<Done>,
    /// No more comes in; what came may still be on its way.
    pub(super) no_input: bool,
    pub(super) end_output: EndOutput,
    /// What was too large to come in.
    pub(super) skipped: Option<Skipped>,
    pub(super) leave: Leave,
    pub(super) closed: bool,
    pub(super) lost: usize,
}

/// What happens to a side once all that waits is out.
pub(super) enum Leave {
    /// Nothing.
    Stay,
    /// Its other end is told that there is no more.
    EndOutput,
    /// It was told.
    OutputEnded,
    /// It is closed.
    Close(u16, String),
}

impl End {
    pub(super) fn new(port: Port) -> Self {
        Self {
            connection: port.connection,
            waiting: VecDeque::new(),
            answers: 0,
            queued: 0,
            owed: 0,
            input_ended: port.input_ended,
            no_input: false,
            end_output: port.end_output,
            skipped: port.skipped,
            leave: Leave::Stay,
            closed: false,
            lost: 0,
        }
    }

    /// Sends, or keeps for when there is room.
    pub(super) fn send(&mut self, message: Outgoing) {
        let rejected = if self.waiting.is_empty() {
            match self.connection.send(message) {
                Ok(_) => {
                    self.queued += 1;
                    return;
                }
                Err(rejected) => rejected,
            }
        } else {
            return self.wait(message);
        };
        match rejected.error {
            SendError::QueueFull { .. } => self.wait(*rejected.message),
            _ => self.lost += 1,
        }
    }

    pub(super) fn wait(&mut self, message: Outgoing) {
        self.answers += usize::from(message.charge.is_none());
        self.waiting.push_back(message);
    }

    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty() && !self.closed
    }

    /// A copy of the first that waits: it shares the bytes.
    pub(super) fn next(&self) -> Outgoing {
        let first = self.waiting.front().cloned();
        first.unwrap_or_else(|| Outgoing::new(Bytes::new()))
    }

    pub(super) fn sent(&mut self, sent: Result<TransferId, Rejected>) {
        if let Some(message) = self.waiting.pop_front() {
            self.answers -= usize::from(message.charge.is_none());
            match sent {
                Ok(_) => self.queued += 1,
                Err(_) => self.lost += 1,
            }
        }
    }

    pub(super) fn ended_input(&mut self) {
        self.input_ended = None;
        self.no_input = true;
    }

    /// Whether all that came in has been taken, and no more comes.
    pub(super) fn has_no_more(&self) -> bool {
        let told = self.skipped.as_ref().is_none_or(Skipped::is_empty);
        self.closed || self.no_input && told && !self.connection.with(|link| link.has_event())
    }

    pub(super) fn is_leaving(&self) -> bool {
        let leaving = matches!(self.leave, Leave::EndOutput | Leave::Close(..));
        leaving && self.waiting.is_empty() && !self.closed
    }

    /// All that waited is out.
    pub(super) async fn leave(&mut self) {
        match std::mem::replace(&mut self.leave, Leave::OutputEnded) {
            Leave::EndOutput => match std::mem::take(&mut self.end_output) {
                EndOutput::Close => self.connection.close(1000, "end of input"),
                EndOutput::Message(bytes) => self.send(Outgoing::new(bytes)),
                EndOutput::Run(run) => run.await,
            },
            Leave::Close(code, reason) => self.connection.close(code, &reason),
            leave @ (Leave::Stay | Leave::OutputEnded) => self.leave = leave,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        let quiet =
            |link: &mut Link| link.is_idle() && link.open_transfers() == 0 && !link.has_event();
        let told = self.skipped.as_ref().is_none_or(Skipped::is_empty);
        self.closed || told && self.waiting.is_empty() && self.connection.with(quiet)
    }
}
