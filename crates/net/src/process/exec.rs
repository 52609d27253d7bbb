//! The transport over the standard streams of a child process, and how the process's exit closes it.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Budget, Carries, Closed, Frame};
use tokio::process::ChildStdout;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::framing::Framing;
use super::program::Program;
use super::stderr::StderrTail;
use super::stderr_lines::StderrLines;
use super::stop::{ChildGuard, Stopper};
use super::stream::{Ends, Stream, StreamSink, StreamSource};
use crate::transport::{Incoming, Lost, Sink, Source, Transport};

/// How long output is still read after the command has exited: processes that it started may keep the
/// pipe open.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// Why a command cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The command is empty.
    #[error("there is no command to start")]
    Empty,
    /// There is no such program.
    #[error("no program {name:?} in PATH; give its full path or correct PATH")]
    NotFound {
        /// Its name.
        name: String,
    },
    /// The file is not an executable program.
    #[error("{} cannot be executed; give a program that can, or make it executable", path.display())]
    NotExecutable {
        /// Where it is.
        path: PathBuf,
    },
    /// The system failed to start it.
    #[error("{name:?} cannot be started: {error}")]
    Start {
        /// Its name.
        name: String,
        /// The system's error.
        error: io::Error,
    },
}

/// Starts a command without a shell; it inherits our standard error. [`Program`] has more options.
///
/// # Errors
/// If there is no such program, or the system does not start it.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn exec(words: &[String], framing: Framing, limit: usize) -> Result<(Exec, Exited), ExecError> {
    Program::new(words).start(framing, limit)
}

/// Frames over the standard streams of a command.
///
/// Its standard input ends when the connection closes. If it has not exited after the connection's
/// grace period ([`Options::grace`](crate::Options)) it is killed, with its process group. The
/// group is its own, so that Ctrl-C in a terminal does not end the command while the last messages
/// are sent.
pub struct Exec {
    stream: Stream<ChildStdout>,
    child: ChildHandles,
    status: Arc<watch::Sender<Option<ExitStatus>>>,
    terminate_after: Option<Duration>,
}

/// The exit status of the command, once it has exited.
#[derive(Clone, Debug)]
pub struct Exited(watch::Receiver<Option<ExitStatus>>);

/// Where the standard error of a child goes.
pub(super) enum ChildStderr {
    /// Not to this program.
    Elsewhere,
    /// Its end is kept.
    Kept(StderrTail, AbortHandle),
    /// It is passed on, until a moment after the sender is dropped.
    PassedOn {
        lines: StderrLines,
        _running: oneshot::Sender<()>,
    },
}

impl ChildStderr {
    /// Waits until the standard error has ended.
    async fn ended(&self) {
        match self {
            Self::Elsewhere => {}
            Self::Kept(tail, _) => tail.ended().await,
            Self::PassedOn { lines, .. } => lines.ended().await,
        }
    }
}

/// The child process, and the task that reads its standard error; dropping this ends both.
struct ChildHandles {
    guard: ChildGuard,
    stderr: ChildStderr,
}

impl Drop for ChildHandles {
    fn drop(&mut self) {
        if let ChildStderr::Kept(_, task) = &self.stderr {
            // A process that the command left behind may keep the pipe open for ever.
            task.abort();
        }
    }
}

impl Exec {
    pub(super) fn new(
        stream: Stream<ChildStdout>,
        guard: ChildGuard,
        stderr: ChildStderr,
        terminate_after: Option<Duration>,
    ) -> (Self, Exited) {
        let status = Arc::new(watch::Sender::new(None));
        let exited = Exited(status.subscribe());
        let exec = Self {
            stream,
            child: ChildHandles { guard, stderr },
            status,
            terminate_after,
        };
        (exec, exited)
    }

    /// The process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.guard.child.id()
    }

    /// A handle to close the command's input while its output is still read. See [`Stream::ends`].
    pub fn ends(&mut self) -> Ends {
        self.stream.ends()
    }

    /// A handle to end the command from elsewhere.
    pub fn stopper(&self) -> Stopper {
        self.child.guard.stopper.clone()
    }

    /// The end of its standard error, if that is kept ([`Stderr::Keep`](super::Stderr::Keep)).
    pub fn stderr(&self) -> Option<StderrTail> {
        match &self.child.stderr {
            ChildStderr::Kept(tail, _) => Some(tail.clone()),
            _ => None,
        }
    }

    /// Tells when all of its standard error was passed on, if that is done
    /// ([`Stderr::Lines`](super::Stderr::Lines)).
    pub fn stderr_lines(&self) -> Option<StderrLines> {
        match &self.child.stderr {
            ChildStderr::PassedOn { lines, .. } => Some(lines.clone()),
            _ => None,
        }
    }
}

impl Exited {
    /// Waits until the command has exited. `None` if it was killed when the transport was dropped.
    pub async fn status(&mut self) -> Option<ExitStatus> {
        let status = self.0.wait_for(Option::is_some).await;
        status.ok().and_then(|status| *status)
    }
}

impl Transport for Exec {
    type Source = ExecSource;
    type Sink = ExecSink;

    fn carries(&self, carries: Carries) -> bool {
        self.stream.carries(carries)
    }

    fn charge_to(&mut self, budget: &Budget) {
        self.stream.charge_to(budget);
    }

    fn split(self) -> (ExecSource, ExecSink) {
        let (stream, sink) = self.stream.halves();
        let (closing, closed) = watch::channel(false);
        let (exited_sender, exited) = watch::channel(false);
        let source = ExecSource {
            stream,
            child: self.child,
            status: self.status,
            output_end: None,
            exited: exited_sender,
            terminate: Terminate {
                after: self.terminate_after,
                closed,
                at: None,
            },
        };
        let sink = ExecSink {
            stream: sink,
            closing,
            exited,
        };
        (source, sink)
    }
}

/// The sending half: the command's standard input.
pub struct ExecSink {
    stream: StreamSink,
    closing: watch::Sender<bool>,
    exited: watch::Receiver<bool>,
}

impl ExecSink {
    /// After a failed write, waits a moment for the command's exit: its status and last output say
    /// more than a broken pipe, and the source reports them.
    async fn wait_for_exit_on_error(&mut self, sent: Result<(), Lost>) -> Result<(), Lost> {
        if sent.is_err() {
            let _ = timeout(LINGER, self.exited.wait_for(|exited| *exited)).await;
        }
        sent
    }
}

impl Sink for ExecSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let sent = self.stream.send(frame).await;
        self.wait_for_exit_on_error(sent).await
    }

    fn hold(&mut self, frame: Frame) -> Option<Frame> {
        self.stream.hold(frame)
    }

    async fn flush(&mut self) -> Result<(), Lost> {
        let sent = self.stream.flush().await;
        self.wait_for_exit_on_error(sent).await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.closing.send_replace(true);
        self.stream.close(code, reason).await;
    }
}

/// When the command gets SIGTERM.
struct Terminate {
    after: Option<Duration>,
    closed: watch::Receiver<bool>,
    at: Option<Instant>,
}

impl Terminate {
    /// Waits until the command is to get SIGTERM, which is at most once. Cancel-safe.
    async fn due(&mut self) {
        let Some(after) = self.after else {
            return std::future::pending().await;
        };
        // An error means that the sink was dropped, which also ends the command's input.
        let _ = self.closed.wait_for(|closed| *closed).await;
        sleep_until(*self.at.get_or_insert_with(|| Instant::now() + after)).await;
        self.after = None;
    }
}

/// The receiving half: the command's standard output. Dropping it kills the command.
pub struct ExecSource {
    stream: StreamSource<ChildStdout>,
    child: ChildHandles,
    status: Arc<watch::Sender<Option<ExitStatus>>>,
    /// How its output ended.
    output_end: Option<Closed>,
    exited: watch::Sender<bool>,
    terminate: Terminate,
}

impl Source for ExecSource {
    async fn next(&mut self) -> Incoming {
        // The command may close its output before it exits, and still read its input.
        let (status, output_end) = loop {
            let status = *self.status.borrow();
            let (unread, runs) = (self.output_end.is_none(), status.is_none());
            if let (Some(status), Some(output_end)) = (status, &self.output_end) {
                break (Ok(status), Some(output_end));
            }
            tokio::select! {
                biased;
                incoming = self.stream.read(), if unread => match incoming {
                    Incoming::Closed(closed) => self.output_end = Some(closed),
                    incoming => return incoming,
                },
                status = self.child.guard.wait(), if runs => match status {
                    Ok(status) => drop(self.status.send_replace(Some(status))),
                    Err(error) => break (Err(error), None),
                },
                () = self.terminate.due(), if runs => self.child.guard.stopper.terminate(),
                () = sleep(LINGER), if !runs => self.output_end = Some(Closed {
                    code: 1000,
                    reason: String::new(),
                }),
            }
        };
        let closed = exit_as_close(status, output_end);
        let _ = timeout(LINGER, self.child.stderr.ended()).await;
        self.exited.send_replace(true);
        Incoming::Closed(closed)
    }
}

/// The close code and reason for the exit of the command.
fn exit_as_close(status: io::Result<ExitStatus>, output: Option<&Closed>) -> Closed {
    let (mut code, mut reason) = match status {
        Ok(status) if status.success() => (1000, "the command exited with status 0".to_owned()),
        Ok(status) => (1011, describe(status)),
        Err(error) => (
            1011,
            format!("the command's exit status is unknown: {error}"),
        ),
    };
    if let Some(output) = output.filter(|output| output.code != 1000) {
        code = 1011;
        reason = format!("{reason}; {}", output.reason);
    }
    Closed { code, reason }
}

fn describe(status: ExitStatus) -> String {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        if let Some(signal) = status.signal() {
            return format!("the command was ended by signal {signal}");
        }
    }
    match status.code() {
        Some(code) => format!("the command exited with status {code}"),
        None => "the command ended without a status".to_owned(),
    }
}
