//! A session on its lines: what its two halves and its task share, and the task that acknowledges, pings,
//! notices lost lines and goes on with the next one.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use breakbulk_link::{Cap, Closed, Frame, lock};
use breakbulk_message::tunnel::{Control, Gone, Received};
use breakbulk_net::{Lost, WeakConnection, now};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, Notify, mpsc};
use tokio::time::{sleep_until, timeout};
use tracing::Instrument;

use super::client::{Dialer, NoLine};
use super::lines::{LineSink, LineSource};
use super::lobby::Registration;
use super::machine::{Learned, Machine, Write};
use crate::watch::SideWatch;

/// A frame of at most this many bytes may share a write with the next one.
const SMALL: usize = 2 << 10;

/// How long the close of a lost line may take.
const RETIRE_TIME: Duration = Duration::from_secs(1);

/// Keeps a cap that was learned, after frames have arrived under it.
pub(super) type KeepCap = Box<dyn Fn(Found) + Send + Sync>;

/// A cap of a path that is worth keeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Of the frames that are sent.
    Out(usize),
    /// Of the frames that come.
    In(usize),
}

/// What the halves of the transport and the task share.
pub(super) struct Session {
    state: Mutex<State>,
    /// The sending half of the current line. Whoever writes holds it for one frame, or for all that are
    /// sent again on a new line.
    sink: AsyncMutex<Option<LiveSink>>,
    /// The line has changed, frames were acknowledged, or the session is over.
    changed: Notify,
    /// The task may have something to do.
    task: Notify,
}

struct State {
    machine: Machine,
    /// The receiving half of a new line, until the source takes it. It changes with the number of the
    /// line, so that nobody sees the one without the other.
    source: Option<(u64, Box<dyn LineSource>)>,
    /// When the task wakes by itself.
    armed: Option<Instant>,
    /// Whether the task is writing: it writes one thing at a time.
    writing: bool,
    /// Whether the task can open a line: this side opens lines, and no attempt is in progress.
    dials: bool,
    /// How the lost line is closed, if its carrier is still there.
    farewell: Option<Closed>,
    /// The link whose cap is lowered when a cap is learned.
    link: Option<WeakConnection>,
}

struct LiveSink {
    line: u64,
    sink: Box<dyn LineSink>,
}

/// The halves of a line that can carry the session on.
pub(crate) struct Fresh {
    pub(crate) source: Box<dyn LineSource>,
    pub(crate) sink: Box<dyn LineSink>,
    pub(crate) cap: Option<usize>,
    pub(crate) pings: bool,
    /// How much arrived at the other end.
    pub(crate) received: Received,
    /// The largest frame that the other end sends, if it found out that larger ones do not pass.
    pub(crate) told: Option<usize>,
}

/// A line that carries the session on.
struct Renewed {
    line: u64,
    sink: Box<dyn LineSink>,
    /// How much arrived at this end.
    received: Received,
    unacknowledged: usize,
    /// The cap that this end found out for the frames that it sends.
    found: Option<usize>,
}

/// Where the next line comes from.
pub(super) enum Lines {
    /// This side opens it.
    Dialed(Dialer),
    /// The other side opens it, and the lobby hands it over.
    Accepted {
        /// The lines that the lobby hands over.
        lines: mpsc::Receiver<Fresh>,
        /// Removes the session from the lobby when its task ends.
        _registration: Registration,
    },
}

impl Session {
    /// Starts a session on its first line. Its task ends when both halves of its transport are dropped.
    pub(super) fn start(
        machine: Machine,
        (source, sink): (Box<dyn LineSource>, Box<dyn LineSink>),
        lines: Lines,
        keep: Option<KeepCap>,
        watched: SideWatch,
    ) -> Arc<Self> {
        let (line, cap) = (machine.line(), machine.cap());
        let session = Arc::new(Self {
            state: Mutex::new(State {
                machine,
                source: Some((line, source)),
                armed: None,
                writing: false,
                dials: matches!(lines, Lines::Dialed(_)),
                farewell: None,
                link: None,
            }),
            sink: AsyncMutex::new(Some(LiveSink { line, sink })),
            changed: Notify::new(),
            task: Notify::new(),
        });
        let task = Task {
            session: session.clone(),
            lines,
            keep,
            watched,
            writing: None,
            installing: None,
            dialing: None,
            cap,
            told_lost: false,
            told_failed: false,
            retired: line,
        };
        tokio::spawn(task.run().in_current_span());
        session
    }

    /// Sets the link whose cap follows what is learned.
    pub(super) fn follow(&self, link: WeakConnection) {
        lock(&self.state).link = Some(link);
    }

    /// Looks at the machine.
    pub(super) fn look<R>(&self, work: impl FnOnce(&Machine) -> R) -> R {
        work(&lock(&self.state).machine)
    }

    /// Changes the machine, and wakes those who wait for what changed.
    pub(super) fn update<R>(&self, work: impl FnOnce(&mut Machine) -> R) -> R {
        let mut state = lock(&self.state);
        let before = signs(&state.machine);
        let result = work(&mut state.machine);
        let news = signs(&state.machine) != before;
        let next = state.machine.poll_timeout(state.dials, !state.writing);
        let sooner = next.is_some_and(|at| state.armed.is_none_or(|armed| at < armed));
        drop(state);
        if news {
            self.changed.notify_waiters();
        }
        if news || sooner {
            self.task.notify_one();
        }
        result
    }

    /// Wakes the task.
    pub(super) fn wake(&self) {
        self.task.notify_one();
    }

    /// Waits until the condition holds.
    pub(super) async fn until(&self, holds: impl Fn(&Machine) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registers before the condition is looked at, so that no change in between is missed.
            changed.as_mut().enable();
            if self.look(&holds) {
                return;
            }
            changed.await;
        }
    }

    /// Replaces `source` by the receiving half of the current line, if it belongs to another line. Returns
    /// the number of the current line, and whether the session is over.
    pub(super) fn renew(&self, source: &mut Option<(u64, Box<dyn LineSource>)>) -> (u64, bool) {
        let mut state = lock(&self.state);
        let current = state.machine.line();
        if source.as_ref().is_none_or(|(line, _)| *line != current) {
            // Dropping the half of a lost line also drops its carrier.
            *source = state.source.take_if(|(line, _)| *line == current);
        }
        (current, state.machine.is_over())
    }

    /// A new line carries the session on.
    fn line_up(&self, fresh: Fresh) -> Result<Renewed, (Box<dyn LineSink>, Gone)> {
        let Fresh {
            source,
            sink,
            cap,
            pings,
            received,
            told,
        } = fresh;
        let renewed = {
            let mut state = lock(&self.state);
            match state.machine.line_up(now(), received, cap, pings) {
                Ok(line) => {
                    if let Some(cap) = told {
                        state.machine.handle_told(cap);
                    }
                    state.source = Some((line, source));
                    Ok(Renewed {
                        line,
                        sink,
                        received: state.machine.received(),
                        unacknowledged: state.machine.undelivered(),
                        found: state.machine.found_cap(),
                    })
                }
                Err(gone) => Err((sink, gone)),
            }
        };
        self.changed.notify_waiters();
        self.task.notify_one();
        renewed
    }

    /// Gives up a line: it is closed with this code and reason, and the next one takes its place.
    pub(super) fn line_broken(&self, line: u64, closed: Closed) {
        {
            let mut state = lock(&self.state);
            if state.machine.line() == line {
                state.farewell = Some(closed.clone());
            }
        }
        self.update(|machine| machine.line_down(now(), line, closed));
    }

    /// Keeps a frame that is written by the next [`write_out`](Self::write_out), or hands it back if it has to
    /// wait for an acknowledgement.
    pub(super) fn push(&self, frame: Frame) -> Result<(), Frame> {
        self.update(|machine| match machine.is_over() {
            true => Err(frame),
            false => machine.push(frame),
        })
    }

    /// Writes all frames that are due on the current line.
    pub(super) async fn write_out(&self) {
        let mut sink = self.sink.lock().await;
        self.write_frames(&mut sink).await;
    }

    async fn write_frames(&self, sink: &mut MutexGuard<'_, Option<LiveSink>>) {
        let Some(live) = sink.as_mut() else { return };
        let (line, mut holds) = (live.line, false);
        loop {
            let (frame, more) = {
                let mut state = lock(&self.state);
                let frame = state.machine.poll_transmit(line);
                (frame, state.machine.has_unsent())
            };
            let Some(mut frame) = frame else {
                if holds {
                    self.written(line, live.sink.flush()).await;
                }
                return;
            };
            // Small frames share a write with the next one, if the carrier can do that.
            if more && frame.bytes().len() <= SMALL {
                match live.sink.hold(frame) {
                    None => {
                        holds = true;
                        continue;
                    }
                    Some(back) => frame = back,
                }
            }
            holds = false;
            if !self.written(line, live.sink.send(frame)).await {
                return;
            }
        }
    }

    /// Waits until a write is done; false if it failed, or if the line was lost before.
    async fn written(&self, line: u64, write: impl Future<Output = Result<(), Lost>>) -> bool {
        let outcome = tokio::select! {
            biased;
            outcome = write => outcome,
            () = self.until(|machine| machine.line() != line) => return false,
        };
        if let Err(Lost(why)) = &outcome {
            self.update(|machine| machine.write_failed(now(), line, why));
        }
        outcome.is_ok()
    }

    /// Writes something for the task, if the line is still the same.
    async fn write(self: Arc<Self>, line: u64, write: Write) {
        let mut sink = self.sink.lock().await;
        let Some(live) = sink.as_mut().filter(|live| live.line == line) else {
            return;
        };
        let writing = match &write {
            Write::Control(control) => live.sink.send(text(control)),
            Write::Ping => live.sink.ping(),
        };
        if self.written(line, writing).await {
            self.update(|machine| machine.wrote(line, &write));
        }
    }

    /// Makes a new line the current one, and sends on it what did not arrive.
    async fn install(self: Arc<Self>, line: u64, new: Box<dyn LineSink>, first: Option<Control>) {
        let mut sink = self.sink.lock().await;
        if self.look(Machine::line) != line {
            return;
        }
        let live = sink.insert(LiveSink { line, sink: new });
        if let Some(control) = first
            && !self.written(line, live.sink.send(text(&control))).await
        {
            return;
        }
        self.write_frames(&mut sink).await;
    }

    /// Closes the sending half of a lost line.
    async fn retire(self: Arc<Self>) {
        let lost = {
            let mut sink = self.sink.lock().await;
            let current = self.look(Machine::line);
            sink.take_if(|live| live.line != current)
        };
        let farewell = lock(&self.state).farewell.take();
        if let Some(mut lost) = lost {
            let (code, reason) = match &farewell {
                Some(closed) => (closed.code, &*closed.reason),
                None => (1001, "the session goes on over a newer connection"),
            };
            let _ = timeout(RETIRE_TIME, lost.sink.close(code, reason)).await;
        }
    }

    /// Closes the current line.
    pub(super) async fn close_line(&self, code: u16, reason: &str) {
        if let Some(mut live) = self.sink.lock().await.take() {
            live.sink.close(code, reason).await;
        }
    }
}

/// The state whose changes wake the task and those who wait.
fn signs(machine: &Machine) -> (u64, u64, bool, bool, bool) {
    (
        machine.line(),
        machine.acknowledged(),
        machine.is_over(),
        machine.is_closed(),
        machine.is_finished(),
    )
}

fn text(control: &Control) -> Frame {
    Frame::Text(control.to_json().into())
}

type Doing<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// The task of a session. It never waits for one thing alone: writing, opening lines and installing them go
/// on side by side.
struct Task {
    session: Arc<Session>,
    lines: Lines,
    keep: Option<KeepCap>,
    watched: SideWatch,
    writing: Doing<()>,
    installing: Doing<()>,
    dialing: Doing<Result<Fresh, NoLine>>,
    /// The cap that the link knows.
    cap: usize,
    /// Whether the log says that there is no line.
    told_lost: bool,
    told_failed: bool,
    /// The number of the current line when what was left of the last lost one was closed.
    retired: u64,
}

/// What the task waits for.
enum Happened {
    Done,
    Dialed(Result<Fresh, NoLine>),
    Resumed(Fresh),
    Time,
}

impl Task {
    async fn run(mut self) {
        while !self.session.look(Machine::is_finished) {
            self.report();
            self.begin_write();
            self.begin_dial();
            match self.wait().await {
                Happened::Done => {}
                Happened::Dialed(outcome) => self.dialed(outcome),
                Happened::Resumed(fresh) => self.resumed(fresh),
                Happened::Time => self.session.update(|machine| machine.handle_timeout(now())),
            }
        }
    }

    async fn wait(&mut self) -> Happened {
        let at = {
            let mut state = lock(&self.session.state);
            state.writing = self.writing.is_some() || self.installing.is_some();
            let dials = matches!(self.lines, Lines::Dialed(_));
            state.dials = dials && self.dialing.is_none();
            state.armed = state.machine.poll_timeout(state.dials, !state.writing);
            state.armed
        };
        let time = async {
            match at {
                Some(at) => sleep_until(at.into()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = done(&mut self.writing) => Happened::Done,
            () = done(&mut self.installing) => Happened::Done,
            outcome = done(&mut self.dialing) => Happened::Dialed(outcome),
            fresh = self.lines.accept() => Happened::Resumed(fresh),
            () = time => Happened::Time,
            () = self.session.task.notified() => Happened::Done,
        }
    }

    fn begin_write(&mut self) {
        if self.writing.is_some() || self.installing.is_some() {
            return;
        }
        let session = &self.session;
        if let Some((line, write)) = session.update(|machine| machine.poll_write(now())) {
            self.writing = Some(Box::pin(session.clone().write(line, write)));
        } else if let (line, false) = session.look(|machine| (machine.line(), machine.is_up()))
            && std::mem::replace(&mut self.retired, line) != line
        {
            self.writing = Some(Box::pin(session.clone().retire()));
        }
    }

    fn begin_dial(&mut self) {
        let Lines::Dialed(dialer) = &self.lines else {
            return;
        };
        if self.dialing.is_some() || !self.session.look(|machine| machine.dials_now(now())) {
            return;
        }
        let received = self.session.update(|machine| {
            machine.dialing();
            machine.received()
        });
        self.dialing = Some(Box::pin(dialer.clone().resume(received)));
    }

    fn dialed(&mut self, outcome: Result<Fresh, NoLine>) {
        match outcome {
            Ok(fresh) => self.go_on(fresh, false),
            Err(NoLine::Gone(gone)) => self.session.update(|machine| machine.gone(gone)),
            Err(NoLine::Failed(why)) => {
                tracing::debug!(
                    why,
                    "connecting to the other gateway again failed; trying again"
                );
                self.session
                    .update(|machine| machine.dial_failed(now(), why));
            }
        }
    }

    fn resumed(&mut self, fresh: Fresh) {
        self.go_on(fresh, true);
    }

    /// The session goes on with a new line.
    fn go_on(&mut self, fresh: Fresh, answers: bool) {
        let told = fresh.told;
        let renewed = match self.session.line_up(fresh) {
            Ok(renewed) => renewed,
            Err((sink, gone)) => {
                if answers {
                    self.installing = Some(Box::pin(refuse(sink, gone)));
                }
                return;
            }
        };
        if let Some(cap) = told {
            tracing::info!(
                "larger frames of the other gateway do not pass the path: it sends at most {cap} bytes now; start both gateways with --max-frame {cap} to begin with that"
            );
        }
        let Renewed {
            line,
            sink,
            received,
            unacknowledged,
            found,
        } = renewed;
        tracing::info!(unacknowledged, "the tunnel goes on over a new connection");
        self.watched.resumed();
        let first = answers.then_some(Control::Resumed {
            received,
            cap: found.unwrap_or(0) as u64,
        });
        let session = self.session.clone();
        self.installing = Some(Box::pin(session.install(line, sink, first)));
    }

    /// Says what happened to the line and what was learned, and lowers the cap of the link.
    fn report(&mut self) {
        let (learned, confirmed, told) = self.session.update(|machine| {
            let confirmed = machine.poll_confirmed();
            (machine.poll_learned(), confirmed, machine.poll_told())
        });
        if let Some(Learned { cap, refused }) = learned {
            tracing::warn!(
                "a frame of {refused} bytes does not pass the path to the other gateway: from now on frames of at most {cap} bytes are sent; start this gateway with --max-frame {cap} to begin with that"
            );
            self.watched.fault(format_args!(
                "a frame of {refused} bytes does not pass the path: frames of at most {cap} bytes are sent now"
            ));
        }
        if let (Some(confirmed), Some(keep)) = (confirmed, &self.keep) {
            keep(Found::Out(confirmed.cap));
        }
        if let (Some(cap), Some(keep)) = (told, &self.keep) {
            keep(Found::In(cap));
        }
        let (cap, lost) = self.session.look(|machine| {
            let lost = machine
                .needs_line()
                .then(|| machine.why_no_line().to_owned());
            (machine.cap(), lost)
        });
        if std::mem::replace(&mut self.cap, cap) != cap {
            let link = lock(&self.session.state).link.clone();
            link.and_then(|link| link.with(|link| link.set_cap(Cap::frame(cap))));
        }
        if lost.is_some() && !self.told_lost {
            let why = lost.as_deref().unwrap_or_default();
            tracing::warn!(
                why,
                "the connection to the other gateway was lost; the session waits for a new one"
            );
            self.watched.line_lost(why);
        }
        self.told_lost = lost.is_some();
        let failed = self.session.look(|machine| {
            machine
                .has_failed()
                .then(|| machine.why_no_line().to_owned())
        });
        if let Some(why) = failed.filter(|_| !std::mem::replace(&mut self.told_failed, true)) {
            tracing::error!(why, "the session with the other gateway is given up");
        }
    }
}

async fn done<T>(doing: &mut Doing<T>) -> T {
    let Some(future) = doing else {
        return pending().await;
    };
    let output = future.await;
    *doing = None;
    output
}

/// Tells the other end that its session does not go on.
pub(super) async fn refuse(mut sink: Box<dyn LineSink>, gone: Gone) {
    let told = async {
        let _ = sink.send(text(&Control::Gone(gone))).await;
        sink.close(1000, "").await;
    };
    let _ = timeout(RETIRE_TIME, told).await;
}

impl Lines {
    async fn accept(&mut self) -> Fresh {
        match self {
            Self::Dialed(_) => pending().await,
            Self::Accepted { lines, .. } => match lines.recv().await {
                Some(fresh) => fresh,
                None => pending().await,
            },
        }
    }
}
