//! The session of a tunnel as one of its ends sees it, without sockets and without a clock.
//!
//! Both ends count the frames of the session. Nothing is added to them: the numbers are the same on both
//! sides because a line delivers in order. Each end keeps the frames that the other has not acknowledged,
//! and when a line is lost, the next one begins with the first frame that did not arrive.
//!
//! An acknowledgement counts frames that the *application* took, so it also limits how much the other
//! end sends ahead. Frames that arrive while the application takes none are stashed, at most a window of
//! them: so the line is always read, and an acknowledgement never waits behind frames that nobody wants.
//! Otherwise two programs that both write before they read would block each other.

mod inbox;
mod learn;
mod line;
mod outbox;
mod timing;

use std::time::{Duration, Instant};

use breakbulk_ahp::host::close::PROTOCOL;
use breakbulk_link::{Budget, Closed, Frame};
use breakbulk_message::tunnel::{Control, Gone, Received};

use inbox::Inbox;
pub(super) use learn::LEAST_CAP;
use learn::{Learner, Verdict};
use line::{Attempts, CloseFrame, FRUITLESS_LINES, Fruitless, Line, words};
use outbox::{Outbox, size_on_line};

/// How long to wait, when a line cannot be written, for the close in which it may say why.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A line that lived this long was of use: the first attempt to open another one is made at once.
const GOOD_LINE: Duration = Duration::from_secs(10);

/// The close code when the session cannot go on.
pub(crate) const LOST_SESSION: u16 = 1011;

/// What both ends agreed on.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How long the session is kept without a line; zero ends it with its line.
    pub(crate) resume_for: Duration,
    /// How much may be on its way to this side.
    pub(crate) window: usize,
    /// How much may be on its way to the other side.
    pub(crate) peer_window: usize,
    /// The largest frame of the session that is taken.
    pub(crate) frame_limit: usize,
    /// The largest frame that is sent, as far as it is known.
    pub(crate) cap: usize,
    /// Whether the frames of the session are binary.
    pub(crate) binary: bool,
    /// What frames that are kept and stashed are charged to.
    pub(crate) budget: Budget,
    /// The seed of the random pauses between attempts to open a line.
    pub(crate) seed: u64,
}

/// What the other end did wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// It broke a rule: the session ends.
    Protocol(&'static str),
    /// There is no memory for what it sends: the line ends, and the next one may do better.
    Memory,
}

/// What a frame of the line was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A frame of the session: to be taken or stashed.
    Frame(Frame),
    /// A control frame, which has been handled.
    Handled,
}

/// What to write on the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// A control frame.
    Control(Control),
    /// A ping of the carrier.
    Ping,
}

/// What was learned about the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Learned {
    /// The largest frame that is sent from now on.
    pub(crate) cap: usize,
    /// The size that was refused.
    pub(crate) refused: usize,
}

/// One end of a session.
#[derive(Debug)]
pub(crate) struct Machine {
    settings: Settings,
    outbox: Outbox,
    inbox: Inbox,
    learner: Learner,
    learned: Option<Learned>,
    /// The learned cap that no acknowledgement has confirmed yet.
    unconfirmed: Option<Learned>,
    confirmed: Option<Learned>,
    found: Option<usize>,
    /// The largest frame that this path lets through to this side, as the other end found out, until a frame
    /// arrives under it.
    told: Option<usize>,
    kept: Option<usize>,
    /// The cap of the current line.
    line_cap: usize,
    line: Line,
    attempts: Attempts,
    fruitless: Fruitless,
    /// How this side ended the session.
    closing: Option<Closed>,
    /// How the other side ended the session.
    peer_closed: Option<Closed>,
    /// Why the session ended by itself, and whether the other end broke a rule.
    failed: Option<(Closed, bool)>,
    /// Nobody uses the session any more.
    finished: bool,
}

impl Machine {
    /// A session that begins on its first line.
    pub(crate) fn new(
        now: Instant,
        settings: Settings,
        line_cap: Option<usize>,
        pings: bool,
    ) -> Self {
        let window = settings.window.min(settings.peer_window);
        let memory = settings.budget.part(usize::MAX);
        Self {
            outbox: Outbox::new(window, memory.clone()),
            inbox: Inbox::new(&settings, memory),
            learner: Learner::default(),
            learned: None,
            unconfirmed: None,
            confirmed: None,
            found: None,
            told: None,
            kept: None,
            line_cap: line_cap.unwrap_or(usize::MAX),
            line: Line {
                number: 0,
                is_up: true,
                pings,
                since: now,
                last_heard: now,
                last_ping: now,
                failed: None,
                paused: false,
                close: CloseFrame::NotSent,
            },
            attempts: Attempts {
                next_at: now,
                failed: 0,
                why: String::new(),
                random: settings.seed | 1,
            },
            fruitless: Fruitless::default(),
            settings,
            closing: None,
            peer_closed: None,
            failed: None,
            finished: false,
        }
    }

    /// The number of the line; it changes when a line is lost and when another one is there.
    pub(crate) fn line(&self) -> u64 {
        self.line.number
    }

    /// How many frames arrived, and how many bytes of the next one.
    pub(crate) fn received(&self) -> Received {
        self.inbox.received()
    }

    /// The largest frame that is sent.
    pub(crate) fn cap(&self) -> usize {
        self.settings.cap.min(self.line_cap)
    }

    // What goes out.

    /// How many frames the other end acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.outbox.acknowledged()
    }

    /// Keeps the next frame of the session, or hands it back if it has to wait for an acknowledgement.
    pub(crate) fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        self.outbox.push(frame)
    }

    /// The next frame for this line.
    pub(crate) fn poll_transmit(&mut self, line: u64) -> Option<Frame> {
        if line != self.line.number || !self.line.is_up {
            return None;
        }
        self.outbox.next(self.settings.cap.min(self.line_cap))
    }

    /// Whether frames of the session are not on the line yet.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.outbox.is_sent()
    }

    /// How many frames the other end may not have got.
    pub(crate) fn undelivered(&self) -> usize {
        match self.peer_closed.is_some() {
            // The other end wants no more, or it answered this side's close, which was sent after all frames.
            true => 0,
            false => self.outbox.unacknowledged(),
        }
    }

    // What comes in.

    /// Notes that something arrived on a line that is no frame, such as a pong.
    pub(crate) fn handle_alive(&mut self, now: Instant, line: u64) {
        if line == self.line.number {
            self.line.last_heard = now;
        }
    }

    /// A frame arrived on a line. Frames of an earlier line are ignored: they are sent again.
    pub(crate) fn handle_frame(
        &mut self,
        now: Instant,
        line: u64,
        frame: Frame,
    ) -> Result<Heard, Violation> {
        if line != self.line.number || !self.line.is_up {
            return Ok(Heard::Handled);
        }
        self.line.last_heard = now;
        match &frame {
            Frame::Text(text) if Control::is_control(text) => {
                let control = Control::read(text);
                let control =
                    control.map_err(|_| Violation::Protocol("a control frame is invalid"))?;
                let part = self.handle_control(control)?;
                Ok(part.map_or(Heard::Handled, Heard::Frame))
            }
            _ if self.peer_closed.is_some() => {
                Err(Violation::Protocol("a frame came after the close"))
            }
            _ => {
                self.inbox.arrived()?;
                self.attempts.failed = 0;
                self.told_cap_holds();
                Ok(Heard::Frame(frame))
            }
        }
    }

    fn handle_control(&mut self, control: Control) -> Result<Option<Frame>, Violation> {
        match control {
            Control::Ack { taken } => {
                let cap = self.settings.cap.min(self.line_cap);
                let (learner, before) = (&mut self.learner, self.outbox.acknowledged());
                let each = |frame: &Frame| learner.passed(size_on_line(frame, cap));
                if !self.outbox.acknowledge(taken, each) {
                    return Err(Violation::Protocol(
                        "it acknowledges frames that it was not sent",
                    ));
                }
                if self.outbox.acknowledged() > before {
                    self.attempts.failed = 0;
                    self.confirmed = self.unconfirmed.take().or(self.confirmed);
                }
                Ok(None)
            }
            Control::Part { .. } if self.peer_closed.is_some() => {
                Err(Violation::Protocol("a frame came after the close"))
            }
            Control::Part { at, last, data } => {
                // A part keeps to the cap as a frame does, and a session may end before any whole frame came.
                self.told_cap_holds();
                self.inbox.part(at, last, data)
            }
            Control::Close { code, reason } => {
                self.peer_closed.get_or_insert(Closed { code, reason });
                Ok(None)
            }
            Control::Hello(_)
            | Control::Resume { .. }
            | Control::Resumed { .. }
            | Control::Gone(_) => Err(Violation::Protocol("it begins a session within a session")),
        }
    }

    /// The application takes a frame that just arrived.
    pub(crate) fn take(&mut self, now: Instant, frame: &Frame) {
        self.inbox.take(now, frame);
    }

    /// The application takes no frame now: keeps it. Returns whether the line may be read further.
    pub(crate) fn stash(&mut self, frame: Frame) -> Result<bool, Violation> {
        let reads_on = self.inbox.stash(frame)?;
        self.line.paused = !reads_on;
        Ok(reads_on)
    }

    /// The application takes the first frame that waits.
    pub(crate) fn take_stashed(&mut self, now: Instant) -> Option<Frame> {
        let frame = self.inbox.take_stashed(now)?;
        if std::mem::take(&mut self.line.paused) {
            self.line.last_heard = now;
        }
        Some(frame)
    }

    /// Whether frames wait for the application.
    pub(crate) fn has_stashed(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Whether the line may be read although the application takes nothing.
    pub(crate) fn reads_ahead(&self) -> bool {
        !self.line.paused
    }

    /// How the session ended, once all frames that arrived are taken; and whether the other end broke
    /// a rule.
    pub(crate) fn ended(&self) -> Option<(Closed, bool)> {
        if !self.inbox.is_empty() {
            return None;
        }
        let closed = self.peer_closed.clone().map(|closed| (closed, false));
        closed.or_else(|| self.failed.clone())
    }

    /// Whether no frame can be sent any more.
    pub(crate) fn is_over(&self) -> bool {
        self.failed.is_some() || self.peer_closed.is_some() || self.finished
    }

    // The line.

    /// A line ended; `why` is what its carrier says. False if that was known already.
    pub(crate) fn line_down(&mut self, now: Instant, line: u64, why: Closed) -> bool {
        if line != self.line.number || !self.line.is_up {
            return false;
        }
        self.learner.line_ended(&why);
        if now.duration_since(self.line.since) >= GOOD_LINE {
            self.attempts.failed = 0;
        }
        self.line.is_up = false;
        self.line.number += 1;
        self.line.since = now;
        self.line.failed = None;
        self.attempts.pause(now, words(&why));
        if self.settings.resume_for.is_zero() && self.peer_closed.is_none() {
            self.failed.get_or_insert((why, false));
        }
        true
    }

    /// A write failed. The line may still say why; if it does not, it is lost.
    pub(crate) fn write_failed(&mut self, now: Instant, line: u64, why: &str) {
        if line == self.line.number && self.line.is_up && self.line.failed.is_none() {
            let closed = Closed {
                code: 1006,
                reason: why.to_owned(),
            };
            self.line.failed = Some((now + LAST_WORDS, closed));
        }
    }

    /// Another line is there; `received` says how much arrived at the other end. If the line before is not
    /// lost yet, it counts as lost now.
    pub(crate) fn line_up(
        &mut self,
        now: Instant,
        received: Received,
        line_cap: Option<usize>,
        pings: bool,
    ) -> Result<u64, Gone> {
        let replaced = Closed {
            code: 1006,
            reason: "the other gateway opened a new connection for this session".to_owned(),
        };
        self.line_down(now, self.line.number, replaced);
        if self.failed.is_some() || self.finished {
            return Err(Gone::Expired);
        }
        let cap = self.cap();
        let missing = self.outbox.on_the_line(received.frames);
        let missing = missing.map(|frame| (received.frames, size_on_line(frame, cap)));
        if !self.outbox.resume_at(received) {
            self.fail(
                LOST_SESSION,
                "the other gateway resumed the session with a wrong frame number",
            );
            return Err(Gone::Numbers);
        }
        self.line_cap = line_cap.unwrap_or(usize::MAX);
        let fruitless = self.fruitless.line_up((self.inbox.received(), received));
        if fruitless >= FRUITLESS_LINES && self.outbox.has_more_than(received) {
            let reason = format!(
                "{fruitless} connections to the other gateway in a row were lost before a frame arrived"
            );
            self.fail(LOST_SESSION, &reason);
            return Err(Gone::Expired);
        }
        match self.learner.judge(missing, fruitless) {
            Verdict::Again => {}
            Verdict::Lower(cap) => {
                let refused = missing.map_or(cap, |(_, size)| size);
                self.settings.cap = cap;
                self.attempts.failed = 0;
                let learned = Learned { cap, refused };
                (self.learned, self.unconfirmed) = (Some(learned), Some(learned));
                self.found = Some(cap);
            }
            Verdict::Stuck(size) => {
                let reason = format!(
                    "every connection to the other gateway ends when a frame of {size} bytes is sent"
                );
                self.fail(1009, &reason);
                return Err(Gone::Expired);
            }
        }
        self.line = Line {
            number: self.line.number + 1,
            is_up: true,
            pings,
            since: now,
            last_heard: now,
            last_ping: now,
            failed: None,
            paused: self.line.paused,
            close: CloseFrame::NotSent,
        };
        self.inbox.new_line(now);
        Ok(self.line.number)
    }

    /// Whether there is a line.
    pub(crate) fn is_up(&self) -> bool {
        self.line.is_up
    }

    /// Whether another line is needed.
    pub(crate) fn needs_line(&self) -> bool {
        !self.line.is_up && self.failed.is_none() && self.peer_closed.is_none() && !self.finished
    }

    /// Whether to open a line now.
    pub(crate) fn dials_now(&self, now: Instant) -> bool {
        self.needs_line() && now >= self.attempts.next_at
    }

    /// An attempt to open a line begins.
    pub(crate) fn dialing(&mut self) {
        self.attempts.failed = self.attempts.failed.saturating_add(1);
    }

    /// An attempt failed.
    pub(crate) fn dial_failed(&mut self, now: Instant, why: String) {
        self.attempts.pause(now, why);
    }

    /// The other end does not go on with the session.
    pub(crate) fn gone(&mut self, gone: Gone) {
        if let Some(closing) = self.closing.clone() {
            // The other end has got this side's close, and its answer was lost with the line.
            self.peer_closed.get_or_insert(closing);
            return;
        }
        self.fail(
            LOST_SESSION,
            match gone {
                Gone::Restarted => {
                    "the other gateway was restarted, or another one answers there: it does not know this session"
                }
                Gone::Member => {
                    "the member of the other gateway's fleet that had this session is gone, and the session with it"
                }
                Gone::Expired => "the other gateway has ended this session in the meantime",
                Gone::Numbers => "the other gateway cannot go on with this session where it broke off",
            },
        );
    }

    // The end.

    /// This side ends the session.
    pub(crate) fn close(&mut self, code: u16, reason: &str) {
        self.closing.get_or_insert(Closed {
            code,
            reason: reason.to_owned(),
        });
    }

    /// Whether both ends know that the session has ended, or nothing more can be done about it.
    pub(crate) fn is_closed(&self) -> bool {
        let over = self.failed.is_some() || self.peer_closed.is_some();
        let told = !self.line.is_up || self.line.close == CloseFrame::Sent;
        self.finished || over && told
    }

    /// Ends the session because it cannot go on.
    pub(crate) fn fail(&mut self, code: u16, reason: &str) {
        let reason = reason.to_owned();
        self.failed.get_or_insert((Closed { code, reason }, false));
    }

    /// The other end broke a rule: the session ends.
    pub(crate) fn broken(&mut self, rule: &str) {
        let closed = Closed {
            code: PROTOCOL,
            reason: format!("the other gateway broke a rule of the tunnel: {rule}"),
        };
        self.failed.get_or_insert((closed, true));
    }

    /// Nobody uses the session any more.
    pub(crate) fn finish(&mut self) {
        self.finished = true;
    }

    /// Whether nobody uses the session any more.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// What was learned about the path since the last call.
    pub(crate) fn poll_learned(&mut self) -> Option<Learned> {
        self.learned.take()
    }

    /// A learned cap under which frames arrived since the last call: it is worth keeping.
    pub(crate) fn poll_confirmed(&mut self) -> Option<Learned> {
        self.confirmed.take()
    }

    /// The cap that this session found out for the frames that it sends.
    pub(crate) fn found_cap(&self) -> Option<usize> {
        self.found
    }

    /// The other end found out that no larger frame comes to this side.
    pub(crate) fn handle_told(&mut self, cap: usize) {
        self.told = Some(cap.max(LEAST_CAP));
    }

    /// A frame, or a part of one, arrived after the other end told its cap: the cap is worth keeping.
    fn told_cap_holds(&mut self) {
        self.kept = self.told.take().or(self.kept);
    }

    /// A cap that the other end found out, and kept to since: it is worth keeping.
    pub(crate) fn poll_told(&mut self) -> Option<usize> {
        self.kept.take()
    }

    /// Whether the session ended because it could not go on, or because a rule was broken.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Why the last line was lost, or why the last attempt to open one failed.
    pub(crate) fn why_no_line(&self) -> &str {
        &self.attempts.why
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
