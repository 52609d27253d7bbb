//! [`Program`]: a command to start, with its arguments, environment and how it is stopped.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::exec::{ChildStderr, Exec, ExecError, Exited};
use super::framing::Framing;
use super::stderr::StderrTail;
use super::stderr_lines::StderrLines;
use super::stop::ChildGuard;
use super::stream::Stream;

/// The prefix of the names of this program's own environment variables, some of which are secrets. No command
/// inherits them.
const OURS: &str = "BREAKBULK_";

/// What to do with a command's standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stderr {
    /// The command inherits ours.
    #[default]
    Inherit,
    /// Passes it on to ours line by line, without control characters.
    Lines,
    /// Discards it.
    Null,
    /// Keeps its last characters, this many, to show in errors.
    Keep(usize),
}

/// A command that can be started any number of times, without a shell. It inherits our environment
/// without the variables whose names begin with `BREAKBULK_`.
///
/// It runs in a process group of its own and ends with its connection: its standard input is
/// closed, then it gets SIGTERM if [`terminate_after`](Self::terminate_after) is set, then its
/// group is killed.
#[derive(Clone, Debug)]
pub struct Program {
    words: Vec<OsString>,
    environment: Vec<(OsString, Option<OsString>)>,
    directory: Option<PathBuf>,
    stderr: Stderr,
    terminate_after: Option<Duration>,
    kill_group_on_exit: bool,
    preamble: Vec<u8>,
}

impl Program {
    /// A program, by its path or its name in PATH, and its arguments.
    pub fn new(words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            words: words.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            directory: None,
            stderr: Stderr::Inherit,
            terminate_after: None,
            kill_group_on_exit: false,
            preamble: Vec::new(),
        }
    }

    /// The Python of a virtual environment, with the environment variables of an activated one.
    ///
    /// # Errors
    /// If there is no Python in it.
    pub fn virtualenv(folder: impl AsRef<Path>) -> Result<Self, ExecError> {
        let folder = std::path::absolute(&folder).unwrap_or(folder.as_ref().to_owned());
        let (scripts, names) = if cfg!(windows) {
            (folder.join("Scripts"), ["python.exe", "python3.exe"])
        } else {
            (folder.join("bin"), ["python3", "python"])
        };
        let mut candidates = names.iter().map(|name| scripts.join(name));
        let Some(python) = candidates.find(|path| is_program(path)) else {
            let path = scripts.join(names[0]);
            return Err(ExecError::NotExecutable { path });
        };
        let before = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(scripts).chain(std::env::split_paths(&before));
        let path = std::env::join_paths(paths).unwrap_or(before.clone());
        Ok(Self::new([python])
            .env("VIRTUAL_ENV", folder)
            .env("PATH", path)
            .env_remove("PYTHONHOME"))
    }

    /// Adds an argument.
    pub fn arg(mut self, word: impl Into<OsString>) -> Self {
        self.words.push(word.into());
        self
    }

    /// Sets an environment variable, replacing an earlier setting.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), Some(value.into())));
        self
    }

    /// Sets an environment variable, unless it was set or removed before.
    pub fn env_default(self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        let name = name.into();
        if self.environment.iter().any(|(known, _)| *known == name) {
            return self;
        }
        self.env(name, value)
    }

    /// Removes an environment variable.
    pub fn env_remove(mut self, name: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), None));
        self
    }

    /// Sets the working directory.
    pub fn current_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets what to do with its standard error.
    pub fn stderr(mut self, stderr: Stderr) -> Self {
        self.stderr = stderr;
        self
    }

    /// Sends SIGTERM to the command if it has not exited this long after its input was closed.
    pub fn terminate_after(mut self, after: Duration) -> Self {
        self.terminate_after = Some(after);
        self
    }

    /// Kills the processes of its group when the command exits, even if it exits by itself.
    pub fn kill_group_on_exit(mut self) -> Self {
        self.kill_group_on_exit = true;
        self
    }

    /// Writes these bytes to its standard input before the first frame.
    pub fn preamble(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.preamble = bytes.into();
        self
    }

    /// Starts the command; frames of at most `limit` bytes go over its standard input and output.
    ///
    /// The connection closes when the command has exited, with code 1000 for exit status 0 and 1011
    /// otherwise; the reason names the status.
    ///
    /// # Errors
    /// If there is no such program, or the system does not start it.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(&self, framing: Framing, limit: usize) -> Result<(Exec, Exited), ExecError> {
        let (name, arguments) = self.words.split_first().ok_or(ExecError::Empty)?;
        let mut program = locate(name)?;
        if self.directory.is_some() {
            // A relative path is relative to our working directory, not to the command's.
            program = std::path::absolute(&program).unwrap_or(program);
        }
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(match self.stderr {
                Stderr::Inherit => Stdio::inherit(),
                Stderr::Null => Stdio::null(),
                Stderr::Keep(_) | Stderr::Lines => Stdio::piped(),
            })
            .kill_on_drop(true);
        for name in std::env::vars_os().map(|(name, _)| name) {
            let start = name.as_encoded_bytes().get(..OURS.len());
            // Some systems do not distinguish upper and lower case.
            if start.is_some_and(|start| start.eq_ignore_ascii_case(OURS.as_bytes())) {
                command.env_remove(name);
            }
        }
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        #[cfg(unix)]
        command.arg0(name).process_group(0);
        let failed = |error| ExecError::Start {
            name: name.to_string_lossy().into_owned(),
            error,
        };
        let mut child = command.spawn().map_err(failed)?;
        let missing = || failed(io::Error::other("it has no standard streams"));
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let stderr = match (self.stderr, child.stderr.take()) {
            (Stderr::Keep(characters), Some(stderr)) => {
                let (tail, task) = StderrTail::read(stderr, characters);
                ChildStderr::Kept(tail, task)
            }
            (Stderr::Lines, Some(stderr)) => {
                let (lines, _running) = StderrLines::pass_on(stderr, tokio::io::stderr());
                ChildStderr::PassedOn { lines, _running }
            }
            _ => ChildStderr::Elsewhere,
        };
        let mut stream = Stream::new(output, input, framing, limit);
        stream.write_first(&self.preamble);
        Ok(Exec::new(
            stream,
            ChildGuard::new(child, self.kill_group_on_exit),
            stderr,
            self.terminate_after,
        ))
    }
}

/// The path of a program: a path is returned as it is, a bare name is searched in PATH.
///
/// # Errors
/// If it is not found, or cannot be executed.
pub fn find(name: &str) -> Result<PathBuf, ExecError> {
    locate(OsStr::new(name))
}

fn locate(name: &OsStr) -> Result<PathBuf, ExecError> {
    let text = name.to_string_lossy();
    if text.contains(std::path::is_separator) {
        let path = PathBuf::from(name);
        return match is_program(&path) {
            true => Ok(path),
            false => Err(ExecError::NotExecutable { path }),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = |folder: PathBuf| {
        let plain = folder.join(name);
        let exe = folder.join(format!("{text}{}", std::env::consts::EXE_SUFFIX));
        [plain, exe]
    };
    std::env::split_paths(&path)
        .flat_map(candidates)
        .find(|path| is_program(path))
        .ok_or_else(|| ExecError::NotFound {
            name: text.into_owned(),
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
