//! One bridge, from its start to its end.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use breakbulk_link::{Cancelled, Closed, Event, Outgoing, ProgressOf, SendError, TransferId};
use breakbulk_net::Connection;
use breakbulk_net::process::{StderrTail, Stopper};
use breakbulk_wire::Stream;
use bytes::Bytes;
use tokio::sync::{Notify, oneshot, watch};

use super::tap::Tap;
use super::{Config, Progress};
use crate::CallError;
use crate::machine::{About, Breach, Calls, Raised, Returned, Verdict, key_id};

/// A bridge that runs, or did.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) about: Mutex<About>,
    calls: Mutex<Calls<Waiting>>,
    tap: Tap,
    stopper: Stopper,
    tail: Option<StderrTail>,
    grace: Duration,
    progress: watch::Sender<Progress>,
    /// Calls that were given up and that the bridge works on.
    owed: watch::Sender<usize>,
    /// Calls whose writing was stopped while a line was on its way, by the number of that line.
    stopped: Mutex<Vec<(u64, i64)>>,
    /// A call was given up, or all is over.
    gave_up: Notify,
    last_given_up: AtomicI64,
}

/// Whoever waits for an answer.
struct Waiting {
    answer: oneshot::Sender<Reply>,
    transfer: TransferId,
}

/// What became of a call.
pub(super) enum Reply {
    Done(Result<Returned, CallError>),
    /// The bridge is gone and got nothing of it: another may be asked.
    Again,
}

impl Session {
    pub(super) fn new(
        config: &Config,
        connection: Connection,
        tap: Tap,
        stopper: Stopper,
        tail: Option<StderrTail>,
    ) -> Arc<Self> {
        let session = Arc::new(Self {
            connection,
            about: Mutex::default(),
            calls: Mutex::new(Calls::new(&config.settings)),
            tap,
            stopper,
            tail,
            grace: config.settings.grace,
            progress: config.progress.clone(),
            owed: watch::Sender::new(0),
            stopped: Mutex::default(),
            gave_up: Notify::new(),
            last_given_up: AtomicI64::new(0),
        });
        tokio::spawn(pump(session.clone()));
        tokio::spawn(keep(session.clone()));
        session
    }

    /// Whether another call may go out.
    pub(super) fn is_usable(&self) -> bool {
        self.calls().broken().is_none() && self.connection.with(|link| link.closed().is_none())
    }

    /// Sends a request and waits for its answer. Dropped, the call is given up.
    pub(super) async fn exchange(self: &Arc<Self>, id: i64, request: Bytes) -> Reply {
        let (answer, answered) = oneshot::channel();
        let request = Outgoing::new(request)
            .with_key(Stream::Request.key(id))
            .tagged(id.cast_unsigned());
        {
            // Sent and noted in one: whoever fails it must know whether it went out.
            let mut calls = self.calls();
            if calls.broken().is_some() {
                return Reply::Again;
            }
            match self.connection.send(request) {
                Ok(transfer) => calls.begin(id, Waiting { answer, transfer }),
                Err(rejected) if rejected.error == SendError::Closed => return Reply::Again,
                Err(rejected) => return Reply::Done(Err(CallError::NotSent(rejected.error))),
            }
        }
        let mut guard = GiveUp(Some((self, id)));
        let reply = answered.await;
        guard.0 = None;
        reply.unwrap_or_else(|_| Reply::Done(Err(self.exited("nobody heard it"))))
    }

    /// The end of what it said on its standard error.
    pub(super) fn stderr(&self) -> String {
        self.tail.as_ref().map(StderrTail::text).unwrap_or_default()
    }

    /// How many calls that were given up it works on.
    pub(super) fn owed(&self) -> watch::Receiver<usize> {
        self.owed.subscribe()
    }

    /// Lets no more calls in, and fails all that wait.
    pub(super) fn break_off(&self, breach: Breach) {
        let waiting = self.calls().break_off(breach.clone());
        let stderr = self.stderr();
        self.fail(waiting, &CallError::Breach { breach, stderr });
        self.tell_owed();
    }

    /// Ends a bridge that is not to be used again.
    pub(super) fn dismiss(&self) {
        let breach = self.calls().broken().cloned();
        self.break_off(breach.unwrap_or(Breach::Restarted));
        self.connection.close(1000, "the bridge is restarted");
        self.stopper.terminate();
    }

    /// The same, and waits until it is gone: if it does not heed SIGTERM it is killed after the grace.
    pub(super) async fn retire(&self) {
        self.dismiss();
        self.connection.ended().await;
    }

    /// Ends a bridge that did nothing wrong: its input ends, and it has time to go.
    pub(super) async fn stop(&self) {
        let waiting = self.calls().break_off(Breach::Restarted);
        self.fail(waiting, &CallError::Stopped);
        self.tell_owed();
        self.connection.close(1000, "the host was stopped");
        self.connection.ended().await;
    }

    fn calls(&self) -> MutexGuard<'_, Calls<Waiting>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exited(&self, how: &str) -> CallError {
        CallError::Exited {
            how: how.to_owned(),
            stderr: self.stderr(),
        }
    }

    fn hear(&self, event: Event) {
        match event {
            Event::Message(message) => {
                let frame = message.key.as_ref().and_then(key_id);
                // The result is the caller's from here on, and so is its memory.
                let (bytes, _) = message.into_parts();
                let text = std::str::from_utf8(&bytes).unwrap_or_default();
                let verdict = self.calls().hear(text, frame);
                self.carry_out(verdict, &bytes);
            }
            Event::Fault(fault) | Event::TransferFailed(fault) => {
                if let Some(key) = fault.key.clone() {
                    // The rest of it would be one fault after the other.
                    self.connection.with(|link| link.discard(key));
                }
                let verdict = self.calls().fault(fault, self.tap.stray());
                self.carry_out(verdict, &Bytes::new());
            }
            Event::Discarded(key) => {
                if let Some(id) = key_id(&key) {
                    self.calls().done(id);
                    self.tell_owed();
                }
            }
            Event::SendFailed { id, tag, error, .. } => {
                self.connection.with(|link| link.replace(id, None));
                let waiting = self.calls().take(tag.cast_signed());
                reply(waiting, Err(CallError::NotSent(error)));
            }
            Event::Progress { of, done, total } => {
                let incoming = matches!(of, ProgressOf::Incoming(_));
                let progress = Progress {
                    incoming,
                    done,
                    total,
                };
                self.progress.send_replace(progress);
            }
            Event::Closed(closed) => self.ended(&closed),
            _ => {}
        }
    }

    fn carry_out(&self, verdict: Verdict<Waiting>, message: &Bytes) {
        match verdict {
            Verdict::Answer(who, result) => {
                return reply(Some(who), Ok(Returned::new(message, result)));
            }
            Verdict::Raised(who, raised) => {
                let stderr = self.stderr();
                let raised = CallError::Raised(Raised { stderr, ..raised });
                return reply(Some(who), Err(raised));
            }
            Verdict::Failed(waiting, breach) => {
                tracing::warn!(%breach, calls = waiting.len(), "the bridge is to be restarted");
                let stderr = self.stderr();
                self.fail(waiting, &CallError::Breach { breach, stderr });
            }
            Verdict::Stray(line) => {
                tracing::warn!(line, "a line of the bridge that is no message was skipped");
            }
            Verdict::Nothing => {}
        }
        self.tell_owed();
    }

    /// The connection ended: the bridge did, or it wrote what cannot be read.
    fn ended(&self, closed: &Closed) {
        let how = closed.reason.clone();
        let breach = Breach::Line { why: how.clone() };
        let waiting = self.calls().break_off(breach.clone());
        let stderr = self.stderr();
        let error = if matches!(closed.code, 1002 | 1007 | 1009) {
            CallError::Breach { breach, stderr }
        } else {
            CallError::Exited { how, stderr }
        };
        self.fail(waiting, &error);
        self.tell_owed();
        self.gave_up.notify_one();
    }

    fn fail(&self, waiting: Vec<Waiting>, error: &CallError) {
        for who in waiting {
            let cancelled = self.connection.with(|link| link.cancel(who.transfer));
            // Whoever has left needs no answer.
            let _ = who.answer.send(match cancelled {
                Cancelled::Unsent => Reply::Again,
                Cancelled::Stopped | Cancelled::TooLate => Reply::Done(Err(error.clone())),
            });
        }
    }

    fn tell_owed(&self) {
        let owed = self.calls().owed();
        self.owed
            .send_if_modified(|told| std::mem::replace(told, owed) != owed);
    }

    fn give_up(&self, id: i64) {
        let Some(who) = self.calls().give_up(now(), id) else {
            return;
        };
        let cancelled = self.connection.with(|link| {
            let cancelled = link.cancel(who.transfer);
            if cancelled != Cancelled::Unsent {
                link.discard(Stream::Response.key(id));
            }
            cancelled
        });
        match cancelled {
            Cancelled::Unsent => self.calls().done(id),
            // A line of it may still be on its way: until it is out, others wait behind it.
            Cancelled::Stopped => match self.tap.writing() {
                Some(line) => lock(&self.stopped).push((line, id)),
                None => self.calls().not_owed(id),
            },
            Cancelled::TooLate => {}
        }
        self.tell_owed();
        self.last_given_up.store(id, Ordering::Relaxed);
        self.gave_up.notify_one();
    }

    /// A line is out.
    fn passed(&self, line: u64) {
        let mut calls = self.calls();
        lock(&self.stopped).retain(|(of, id)| {
            if *of <= line {
                calls.not_owed(*id);
            }
            *of > line
        });
        drop(calls);
        self.tell_owed();
    }
}

fn reply(who: Option<Waiting>, outcome: Result<Returned, CallError>) {
    if let Some(who) = who {
        // Whoever has left needs no answer.
        let _ = who.answer.send(Reply::Done(outcome));
    }
}

/// Gives a call up that nobody waits for any more.
struct GiveUp<'a>(Option<(&'a Session, i64)>);

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        if let Some((session, id)) = self.0 {
            session.give_up(id);
        }
    }
}

/// Hears a bridge until it ends.
async fn pump(session: Arc<Session>) {
    while let Some(event) = session.connection.event().await {
        session.hear(event);
    }
}

/// Ends a bridge that takes nothing more of a call that was given up: a line that is stuck in the pipe
/// cannot be taken back, and all others wait behind it.
async fn keep(session: Arc<Session>) {
    loop {
        session.gave_up.notified().await;
        if session.connection.with(|link| link.closed().is_some()) {
            return;
        }
        let id = session.last_given_up.load(Ordering::Relaxed);
        let Some(line) = session.tap.writing() else {
            continue;
        };
        loop {
            tokio::select! {
                () = session.tap.passed(line) => break session.passed(line),
                () = tokio::time::sleep(session.grace) => {}
                _ = session.connection.closed() => return,
            }
            // While somebody waits for a call that went out before, that is what the bridge is at.
            if !session.calls().is_before(id) {
                let after = session.grace;
                session.break_off(Breach::Stuck { after });
                session.stopper.kill();
                session.connection.close(1000, "the bridge is stuck");
                return;
            }
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time, which a test may have paused.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
