//! A command that is started for its standard streams.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Carries, Closed};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;

use super::framing::Framing;
use super::stream::{Ends, Stream, StreamSink, StreamSource};
use crate::transport::{Incoming, Source, Transport};

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

/// Frames over the standard streams of a command.
///
/// Its standard input ends when the connection closes. If it has not ended after the connection's
/// grace ([`Options::grace`](crate::Options)) it is killed. It has a process group of its own, so
/// that an interrupt from the keyboard does not take it away while the last messages go out.
pub struct Exec {
    stream: Stream<ChildStdout>,
    child: Child,
    status: Arc<watch::Sender<Option<ExitStatus>>>,
}

/// How the command ended, once it has.
#[derive(Clone, Debug)]
pub struct Exited(watch::Receiver<Option<ExitStatus>>);

/// Starts a command, without a shell; its standard error is ours.
///
/// The connection closes when the command has ended, and the reason tells how: with 1000 if it was
/// status 0, else with 1011.
///
/// # Errors
/// If there is no such program, or the system does not start it.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn exec(words: &[String], framing: Framing, limit: usize) -> Result<(Exec, Exited), ExecError> {
    let (name, arguments) = words.split_first().ok_or(ExecError::Empty)?;
    let program = find(name)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        // What others must show us is no business of the command's.
        .env_remove("BREAKBULK_TOKEN")
        .kill_on_drop(true);
    #[cfg(unix)]
    command.arg0(name).process_group(0);
    let failed = |error| ExecError::Start {
        name: name.clone(),
        error,
    };
    let mut child = command.spawn().map_err(failed)?;
    let missing = || failed(io::Error::other("it has no standard streams"));
    let input = child.stdin.take().ok_or_else(missing)?;
    let output = child.stdout.take().ok_or_else(missing)?;
    let status = Arc::new(watch::Sender::new(None));
    let exited = Exited(status.subscribe());
    let exec = Exec {
        stream: Stream::new(output, input, framing, limit),
        child,
        status,
    };
    Ok((exec, exited))
}

/// Where a program is: a path as it is, a bare name as PATH has it.
///
/// # Errors
/// If it is not there, or cannot be executed.
pub fn find(name: &str) -> Result<PathBuf, ExecError> {
    if name.contains(std::path::is_separator) {
        let path = PathBuf::from(name);
        return match is_program(&path) {
            true => Ok(path),
            false => Err(ExecError::NotExecutable { path }),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = |folder: PathBuf| {
        let plain = folder.join(name);
        let exe = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        [plain, exe]
    };
    std::env::split_paths(&path)
        .flat_map(candidates)
        .find(|path| is_program(path))
        .ok_or_else(|| ExecError::NotFound {
            name: name.to_owned(),
        })
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    path.is_file()
}

impl Exec {
    /// The number of the process, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// By which its input can end before its output does. See [`Stream::ends`].
    pub fn ends(&mut self) -> Ends {
        self.stream.ends()
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
    type Sink = StreamSink;

    fn carries(&self, carries: Carries) -> bool {
        self.stream.carries(carries)
    }

    fn split(self) -> (ExecSource, StreamSink) {
        let (stream, sink) = self.stream.halves();
        let source = ExecSource {
            stream,
            child: self.child,
            status: self.status,
            ended: None,
        };
        (source, sink)
    }
}

/// The half that a command's output comes in by. Dropping it kills the command.
pub struct ExecSource {
    stream: StreamSource<ChildStdout>,
    child: Child,
    status: Arc<watch::Sender<Option<ExitStatus>>>,
    /// How its output ended.
    ended: Option<Closed>,
}

impl Source for ExecSource {
    async fn next(&mut self) -> Incoming {
        while self.ended.is_none() {
            let has_exited = self.status.borrow().is_some();
            let incoming = if has_exited {
                let reading = tokio::time::timeout(LINGER, self.stream.read());
                reading.await.unwrap_or_else(|_| {
                    Incoming::Closed(Closed {
                        code: 1000,
                        reason: String::new(),
                    })
                })
            } else {
                tokio::select! {
                    biased;
                    incoming = self.stream.read() => incoming,
                    status = self.child.wait() => match status {
                        Ok(status) => {
                            self.status.send_replace(Some(status));
                            continue;
                        }
                        Err(error) => return Incoming::Closed(told(Err(error), None)),
                    },
                }
            };
            match incoming {
                Incoming::Closed(closed) => self.ended = Some(closed),
                incoming => return incoming,
            }
        }
        // Its output has ended; it may still read until its input ends too.
        let known = *self.status.borrow();
        let status = match known {
            Some(status) => Ok(status),
            None => self.child.wait().await,
        };
        if let Ok(status) = status {
            self.status.send_replace(Some(status));
        }
        Incoming::Closed(told(status, self.ended.as_ref()))
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
