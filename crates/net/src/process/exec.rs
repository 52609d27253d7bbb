//! A command that is started for its standard streams.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Carries, Closed, Frame};
use tokio::process::ChildStdout;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::framing::Framing;
use super::program::Program;
use super::stderr::Tail;
use super::stop::{Leash, Stopper};
use super::stream::{Ends, Stream, StreamSink, StreamSource};
use crate::transport::{Incoming, Lost, Sink, Source, Transport};

/// For how long output is still read from a command that has ended: others may hold its pipe.
const LINGER: Duration = Duration::from_secs(1);

/// Why a command cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// No words.
    #[error("there is no command to start")]
    Empty,
    /// There is no such program.
    #[error("no program {name:?} in PATH; name it by its path or mend PATH")]
    NotFound {
        /// Its name.
        name: String,
    },
    /// It is no program.
    #[error("{} cannot be executed; give a program that can, or make it executable", path.display())]
    NotExecutable {
        /// Where it is.
        path: PathBuf,
    },
    /// The system does not start it.
    #[error("{name:?} cannot be started: {error}")]
    Start {
        /// Its name.
        name: String,
        /// What the system says.
        error: io::Error,
    },
}

/// Starts a command, without a shell; its standard error is ours. See [`Program`] for more.
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
/// Its standard input ends when the connection closes. If it has not ended after the connection's
/// grace ([`Options::grace`](crate::Options)) it is killed, with all that it started. It has a process
/// group of its own, so that an interrupt from the keyboard does not take it away while the last
/// messages go out.
pub struct Exec {
    stream: Stream<ChildStdout>,
    held: Held,
    status: Arc<watch::Sender<Option<ExitStatus>>>,
    terminate_after: Option<Duration>,
}

/// How the command ended, once it has.
#[derive(Clone, Debug)]
pub struct Exited(watch::Receiver<Option<ExitStatus>>);

/// The command, and who reads its standard error: both end with this.
struct Held {
    leash: Leash,
    tail: Option<(Tail, AbortHandle)>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((_, task)) = &self.tail {
            // What the command left behind may hold the pipe for ever.
            task.abort();
        }
    }
}

impl Exec {
    pub(super) fn new(
        stream: Stream<ChildStdout>,
        leash: Leash,
        tail: Option<(Tail, AbortHandle)>,
        terminate_after: Option<Duration>,
    ) -> (Self, Exited) {
        let status = Arc::new(watch::Sender::new(None));
        let exited = Exited(status.subscribe());
        let exec = Self {
            stream,
            held: Held { leash, tail },
            status,
            terminate_after,
        };
        (exec, exited)
    }

    /// The number of the process, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.held.leash.child.id()
    }

    /// By which its input can end before its output does. See [`Stream::ends`].
    pub fn ends(&mut self) -> Ends {
        self.stream.ends()
    }

    /// By which it can be ended from elsewhere.
    pub fn stopper(&self) -> Stopper {
        self.held.leash.stopper.clone()
    }

    /// What it says on its standard error, where that is kept.
    pub fn stderr(&self) -> Option<Tail> {
        self.held.tail.as_ref().map(|(tail, _)| tail.clone())
    }
}

impl Exited {
    /// Waits for the end of the command. `None` if it was killed when the connection was let go of.
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

    fn split(self) -> (ExecSource, ExecSink) {
        let (stream, sink) = self.stream.halves();
        let (closing, closed) = watch::channel(false);
        let (over, told) = watch::channel(false);
        let source = ExecSource {
            stream,
            held: self.held,
            status: self.status,
            ended: None,
            over,
            terminate: Terminate {
                after: self.terminate_after,
                closed,
                at: None,
            },
        };
        let sink = ExecSink {
            stream: sink,
            closing,
            over: told,
        };
        (source, sink)
    }
}

/// The half that goes to a command's input.
pub struct ExecSink {
    stream: StreamSink,
    closing: watch::Sender<bool>,
    over: watch::Receiver<bool>,
}

impl ExecSink {
    /// A command that takes no more has mostly ended: its last words and how it ended tell more than a
    /// broken pipe does.
    async fn hear_out(&mut self, sent: Result<(), Lost>) -> Result<(), Lost> {
        if sent.is_err() {
            let _ = timeout(LINGER, self.over.wait_for(|over| *over)).await;
        }
        sent
    }
}

impl Sink for ExecSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let sent = self.stream.send(frame).await;
        self.hear_out(sent).await
    }

    fn hold(&mut self, frame: Frame) -> Option<Frame> {
        self.stream.hold(frame)
    }

    async fn flush(&mut self) -> Result<(), Lost> {
        let sent = self.stream.flush().await;
        self.hear_out(sent).await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.closing.send_replace(true);
        self.stream.close(code, reason).await;
    }
}

/// When a command is asked to end.
struct Terminate {
    after: Option<Duration>,
    closed: watch::Receiver<bool>,
    at: Option<Instant>,
}

impl Terminate {
    /// Waits until it is time, which comes once. Cancel-safe.
    async fn due(&mut self) {
        let Some(after) = self.after else {
            return std::future::pending().await;
        };
        // Without a sink there is no input either.
        let _ = self.closed.wait_for(|closed| *closed).await;
        sleep_until(*self.at.get_or_insert_with(|| Instant::now() + after)).await;
        self.after = None;
    }
}

/// The half that a command's output comes in by. Dropping it kills the command.
pub struct ExecSource {
    stream: StreamSource<ChildStdout>,
    held: Held,
    status: Arc<watch::Sender<Option<ExitStatus>>>,
    /// How its output ended.
    ended: Option<Closed>,
    over: watch::Sender<bool>,
    terminate: Terminate,
}

impl Source for ExecSource {
    async fn next(&mut self) -> Incoming {
        // Its output may end before it does: it may still read until its input ends too.
        let (status, ended) = loop {
            let status = *self.status.borrow();
            let (unread, runs) = (self.ended.is_none(), status.is_none());
            if let (Some(status), Some(ended)) = (status, &self.ended) {
                break (Ok(status), Some(ended));
            }
            tokio::select! {
                biased;
                incoming = self.stream.read(), if unread => match incoming {
                    Incoming::Closed(closed) => self.ended = Some(closed),
                    incoming => return incoming,
                },
                status = self.held.leash.wait(), if runs => match status {
                    Ok(status) => drop(self.status.send_replace(Some(status))),
                    Err(error) => break (Err(error), None),
                },
                () = self.terminate.due(), if runs => self.held.leash.stopper.terminate(),
                () = sleep(LINGER), if !runs => self.ended = Some(Closed {
                    code: 1000,
                    reason: String::new(),
                }),
            }
        };
        let closed = told(status, ended);
        if let Some((tail, _)) = &self.held.tail {
            let _ = timeout(LINGER, tail.ended()).await;
        }
        self.over.send_replace(true);
        Incoming::Closed(closed)
    }
}

/// The end of a command in words.
fn told(status: io::Result<ExitStatus>, output: Option<&Closed>) -> Closed {
    let (mut code, mut reason) = match status {
        Ok(status) if status.success() => (1000, "the command exited with status 0".to_owned()),
        Ok(status) => (1011, describe(status)),
        Err(error) => (1011, format!("nobody knows how the command ended: {error}")),
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
