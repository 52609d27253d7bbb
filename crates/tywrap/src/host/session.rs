//! One bridge process, from its start to its exit: sends calls and hands answers to the callers.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use breakbulk_link::{Cancelled, Closed, Event, Outgoing, ProgressOf, SendError, TransferId, lock};
use breakbulk_net::process::{StderrTail, Stopper};
use breakbulk_net::{Connection, Transport, Unstarted, now};
use breakbulk_wire::Stream;
use bytes::Bytes;
use tokio::sync::{Notify, oneshot, watch};

use super::line_watch::LineWatch;
use super::{Progress, Startup};
use crate::CallError;
use crate::machine::{About, Breach, Calls, Raised, Returned, Verdict, key_id};

/// A bridge process that runs, or has exited.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) about: Mutex<About>,
    calls: Mutex<Calls<Waiting>>,
    line_watch: LineWatch,
    stopper: Stopper,
    tail: Option<StderrTail>,
    grace: Duration,
    progress: watch::Sender<Progress>,
    /// The number of calls that were given up and that the bridge still runs.
    still_running: watch::Sender<usize>,
    /// Calls that were given up while a line of them was being written, with the number of that line.
    stopped: Mutex<Vec<(u64, i64)>>,
    /// A call was given up, or the connection ended.
    gave_up: Notify,
    last_given_up: AtomicI64,
}

/// A caller that waits for an answer.
struct Waiting {
    answer: oneshot::Sender<Reply>,
    transfer: TransferId,
}

/// The outcome of a call.
pub(super) enum Reply {
    Done(Result<Returned, CallError>),
    /// The bridge exited and received none of the request: another bridge may be tried.
    TryAnother,
}

impl Session {
    pub(super) fn new(
        startup: &Startup,
        unstarted: Unstarted<impl Transport>,
        line_watch: LineWatch,
        stopper: Stopper,
        tail: Option<StderrTail>,
    ) -> Arc<Self> {
        let session = Arc::new(Self {
            connection: unstarted.connection().clone(),
            about: Mutex::default(),
            calls: Mutex::new(Calls::new(&startup.config)),
            line_watch,
            stopper,
            tail,
            grace: startup.config.grace,
            progress: startup.progress.clone(),
            still_running: watch::Sender::new(0),
            stopped: Mutex::default(),
            gave_up: Notify::new(),
            last_given_up: AtomicI64::new(0),
        });
        let handling = session.clone();
        unstarted.handle_events(move |event| handling.handle_event(event));
        tokio::spawn(kill_if_stuck(session.clone()));
        session
    }

    /// Whether another call may be sent.
    pub(super) fn is_usable(&self) -> bool {
        self.calls().broken().is_none() && !self.connection.is_closed()
    }

    /// Sends a request and waits for its answer. Dropping the future gives the call up.
    pub(super) async fn exchange(self: &Arc<Self>, id: i64, request: Bytes) -> Reply {
        let (answer, answered) = oneshot::channel();
        let request = Outgoing::new(request)
            .with_key(Stream::Request.key(id))
            .tagged(id.cast_unsigned());
        {
            // Sent and registered under one lock, so that a failing bridge finds the call.
            let mut calls = self.calls();
            if calls.broken().is_some() {
                return Reply::TryAnother;
            }
            match self.connection.send(request) {
                Ok(transfer) => calls.begin(id, Waiting { answer, transfer }),
                Err(rejected) if rejected.error == SendError::Closed => return Reply::TryAnother,
                Err(rejected) => return Reply::Done(Err(CallError::NotSent(rejected.error))),
            }
        }
        let mut guard = GiveUp(Some((self, id)));
        let reply = answered.await;
        guard.0 = None;
        reply.unwrap_or_else(|_| Reply::Done(Err(self.exited("its answer was dropped"))))
    }

    /// The end of its standard error.
    pub(super) fn stderr(&self) -> String {
        self.tail.as_ref().map(StderrTail::text).unwrap_or_default()
    }

    /// The number of calls that were given up and that it still runs.
    pub(super) fn still_running(&self) -> watch::Receiver<usize> {
        self.still_running.subscribe()
    }

    /// Refuses further calls and fails all open ones.
    pub(super) fn break_off(&self, breach: Breach) {
        let waiting = self.calls().break_off(breach.clone());
        let stderr = self.stderr();
        self.fail(waiting, &CallError::Breach { breach, stderr });
        self.update_still_running();
    }

    /// Ends a bridge that must not be used any more, with SIGTERM.
    pub(super) fn terminate(&self) {
        let breach = self.calls().broken().cloned();
        self.break_off(breach.unwrap_or(Breach::Restarted));
        self.connection.close(1000, "the bridge is restarted");
        self.stopper.terminate();
    }

    /// The same, and waits until it has exited; it is killed after the grace period.
    pub(super) async fn terminate_and_wait(&self) {
        self.terminate();
        self.connection.ended().await;
    }

    /// Ends a bridge in order: closes its input, and waits until it has exited.
    pub(super) async fn stop(&self) {
        let waiting = self.calls().break_off(Breach::Restarted);
        self.fail(waiting, &CallError::Stopped);
        self.update_still_running();
        self.connection.close(1000, "the host was stopped");
        self.connection.ended().await;
    }

    fn calls(&self) -> MutexGuard<'_, Calls<Waiting>> {
        lock(&self.calls)
    }

    fn exited(&self, how: &str) -> CallError {
        CallError::Exited {
            how: how.to_owned(),
            stderr: self.stderr(),
        }
    }

    fn handle_event(&self, event: Event) {
        match event {
            Event::Message(message) => {
                let frame = message.key.as_ref().and_then(key_id);
                // From here on the result and its memory belong to the caller.
                let (bytes, _) = message.into_parts();
                let text = std::str::from_utf8(&bytes).unwrap_or_default();
                let verdict = self.calls().handle_message(text, frame);
                self.act_on(verdict, &bytes);
            }
            Event::Fault(fault) | Event::TransferFailed(fault) => {
                if let Some(key) = fault.key.clone() {
                    // Otherwise each further frame of this transfer would be another fault.
                    self.connection.with(|link| link.discard(key));
                }
                let verdict = self.calls().fault(fault, self.line_watch.stray());
                self.act_on(verdict, &Bytes::new());
            }
            Event::Discarded(key) => {
                if let Some(id) = key_id(&key) {
                    self.calls().done(id);
                    self.update_still_running();
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

    fn act_on(&self, verdict: Verdict<Waiting>, message: &Bytes) {
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
                tracing::warn!(%breach, calls = waiting.len(), "the bridge broke the protocol: its open calls fail, and it is restarted at the next call");
                let stderr = self.stderr();
                self.fail(waiting, &CallError::Breach { breach, stderr });
            }
            Verdict::Stray(line) => {
                tracing::warn!(
                    line,
                    "skipped a line of the bridge's standard output that is not a message"
                );
            }
            Verdict::Nothing => {}
        }
        self.update_still_running();
    }

    /// The connection ended: the bridge exited, or its output cannot be read.
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
        self.update_still_running();
        self.gave_up.notify_one();
    }

    fn fail(&self, waiting: Vec<Waiting>, error: &CallError) {
        for who in waiting {
            let cancelled = self.connection.with(|link| link.cancel(who.transfer));
            // An error means that the caller has gone.
            let _ = who.answer.send(match cancelled {
                Cancelled::Unsent => Reply::TryAnother,
                Cancelled::Stopped | Cancelled::TooLate => Reply::Done(Err(error.clone())),
            });
        }
    }

    fn update_still_running(&self) {
        let running = self.calls().still_running();
        self.still_running
            .send_if_modified(|current| std::mem::replace(current, running) != running);
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
            // One of its lines may still be in the pipe: until it is written, other calls wait.
            Cancelled::Stopped => match self.line_watch.writing() {
                Some(line) => lock(&self.stopped).push((line, id)),
                None => self.calls().not_received(id),
            },
            Cancelled::TooLate => {}
        }
        self.update_still_running();
        self.last_given_up.store(id, Ordering::Relaxed);
        self.gave_up.notify_one();
    }

    /// This line is written: the calls that were stopped in it will not run.
    fn passed(&self, line: u64) {
        let mut calls = self.calls();
        lock(&self.stopped).retain(|(of, id)| {
            if *of <= line {
                calls.not_received(*id);
            }
            *of > line
        });
        drop(calls);
        self.update_still_running();
    }
}

fn reply(who: Option<Waiting>, outcome: Result<Returned, CallError>) {
    if let Some(who) = who {
        // An error means that the caller has gone.
        let _ = who.answer.send(Reply::Done(outcome));
    }
}

/// Gives the call up when its caller drops the future.
struct GiveUp<'a>(Option<(&'a Session, i64)>);

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        if let Some((session, id)) = self.0 {
            session.give_up(id);
        }
    }
}

/// Kills a bridge that does not read the rest of a call that was given up: a line that is partly in the
/// pipe cannot be taken back, and all other calls wait behind it.
async fn kill_if_stuck(session: Arc<Session>) {
    loop {
        session.gave_up.notified().await;
        if session.connection.is_closed() {
            return;
        }
        let id = session.last_given_up.load(Ordering::Relaxed);
        let Some(line) = session.line_watch.writing() else {
            continue;
        };
        loop {
            tokio::select! {
                () = session.line_watch.passed(line) => break session.passed(line),
                () = tokio::time::sleep(session.grace) => {}
                _ = session.connection.closed() => return,
            }
            // While an earlier call is open, the bridge may be busy with that one.
            if !session.calls().has_earlier(id) {
                let after = session.grace;
                session.break_off(Breach::Stuck { after });
                session.stopper.kill();
                session.connection.close(1000, "the bridge is stuck");
                return;
            }
        }
    }
}
