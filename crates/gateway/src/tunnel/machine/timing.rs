//! What an end of a session has to write besides its frames, and when it gives up a line or itself.

use std::time::{Duration, Instant};

use breakbulk_link::Closed;
use breakbulk_message::tunnel::Control;

use super::line::CloseFrame;
use super::{LOST_SESSION, Machine, Write};

/// A ping is sent after this much time in which nothing arrived.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(10);

/// A line on which nothing arrived for this time is lost.
const SILENCE: Duration = Duration::from_secs(30);

impl Machine {
    /// What to write now, besides frames of the session.
    pub(crate) fn poll_write(&mut self, now: Instant) -> Option<(u64, Write)> {
        if !self.line.is_up || self.finished {
            return None;
        }
        let control = |control| Some(Write::Control(control));
        let write = if self.inbox.ack_at().is_some_and(|at| at <= now) {
            self.line.last_ping = now;
            control(Control::Ack {
                taken: self.inbox.acknowledge(),
            })
        } else if let Some(close) = self.close_to_write() {
            self.line.close = CloseFrame::Begun;
            control(close)
        } else if self.ping_at() <= now {
            self.line.last_ping = now;
            match self.line.pings {
                true => Some(Write::Ping),
                false => control(Control::Ack {
                    taken: self.inbox.acknowledge(),
                }),
            }
        } else {
            None
        };
        write.map(|write| (self.line.number, write))
    }

    /// Something is written on a line.
    pub(crate) fn wrote(&mut self, line: u64, write: &Write) {
        if line == self.line.number && matches!(write, Write::Control(Control::Close { .. })) {
            self.line.close = CloseFrame::Sent;
        }
    }

    /// The close of this side: once all frames are out, or as the answer to the other side's. Its reason
    /// is cut so that the frame fits the cap.
    fn close_to_write(&self) -> Option<Control> {
        let Closed { code, mut reason } = self.close_to_tell()?;
        let mut control = Control::Close {
            code,
            reason: reason.clone(),
        };
        while control.to_json().len() > self.cap() && !reason.is_empty() {
            reason.truncate(reason.floor_char_boundary(reason.len() / 2));
            control = Control::Close {
                code,
                reason: reason.clone(),
            };
        }
        Some(control)
    }

    fn close_to_tell(&self) -> Option<Closed> {
        if self.line.close != CloseFrame::NotSent {
            return None;
        }
        if let Some(closed) = &self.peer_closed {
            return Some(self.closing.clone().unwrap_or_else(|| closed.clone()));
        }
        if let Some((closed, _)) = &self.failed {
            return Some(closed.clone());
        }
        self.closing.clone().filter(|_| self.outbox.is_sent())
    }

    fn ping_at(&self) -> Instant {
        let last = match self.line.paused {
            true => self.line.last_ping,
            false => self.line.last_heard.max(self.line.last_ping),
        };
        last + KEEPALIVE
    }

    fn silent_at(&self) -> Option<Instant> {
        (!self.line.paused).then(|| self.line.last_heard + SILENCE)
    }

    fn given_up_at(&self) -> Instant {
        self.line.since + self.settings.resume_for
    }

    /// When something is to be done: to write and to dial, if that is possible, or to give up.
    pub(crate) fn poll_timeout(&self, dials: bool, writes: bool) -> Option<Instant> {
        if self.line.is_up {
            let failed = self.line.failed.as_ref().map(|(at, _)| *at);
            let ack = self.inbox.ack_at().filter(|_| writes);
            let ping = Some(self.ping_at()).filter(|_| writes);
            let each = [ping, self.silent_at(), failed, ack];
            return each.into_iter().flatten().min();
        }
        let dial_at = dials.then_some(self.attempts.next_at);
        self.needs_line()
            .then(|| dial_at.into_iter().chain([self.given_up_at()]).min())
            .flatten()
    }

    /// Time has passed: a silent line is lost, and a session without a line ends.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.line.is_up {
            let failed = self.line.failed.as_ref();
            let failed = failed
                .filter(|(at, _)| *at <= now)
                .map(|(_, why)| why.clone());
            let silent = self
                .silent_at()
                .is_some_and(|at| at <= now)
                .then(|| Closed {
                    code: 1006,
                    reason: format!(
                        "nothing received from the other end for {} s",
                        SILENCE.as_secs()
                    ),
                });
            if let Some(why) = failed.or(silent) {
                self.line_down(now, self.line.number, why);
            }
        } else if self.needs_line() && self.given_up_at() <= now {
            // The log says why no line could be opened; the other side's program need not know.
            let reason = format!(
                "the connection to the other gateway was lost and not restored within {} s (resume-for)",
                self.settings.resume_for.as_secs_f64()
            );
            self.fail(LOST_SESSION, &reason);
        }
    }
}
