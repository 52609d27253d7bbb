//! Programs of node that speak JSON, one value a line: the peers of live tests.
//!
//! A [`Script`] ends its program when it is dropped, and keeps the values that nobody asked for yet.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// A program that says nothing for longer hangs.
const PATIENCE: Duration = Duration::from_secs(150);

/// `node` with a script of a package, if what the package needs is installed.
///
/// # Errors
/// If it is not: `npm ci` in `folder` installs it.
pub fn node(folder: &Path, script: &str, installed: &str) -> io::Result<Command> {
    if !folder.join("node_modules").join(installed).is_dir() {
        let folder = folder.display();
        let text = format!(
            "{installed} is not installed in {folder}: run `cargo xtask interop`, which does"
        );
        return Err(io::Error::other(text));
    }
    let mut command = Command::new("node");
    command.arg(folder.join(script));
    Ok(command)
}

/// A program that takes commands and gives answers, as lines of JSON.
#[derive(Debug)]
pub struct Script {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    said: VecDeque<Value>,
}

impl Script {
    /// Starts it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let missing = || io::Error::other("a standard stream is missing");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        Ok(Self {
            child,
            stdin,
            stdout: BufReader::new(stdout).lines(),
            said: VecDeque::new(),
        })
    }

    /// Gives it a command.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn tell(&mut self, command: &Value) -> io::Result<()> {
        let line = format!("{command}\n");
        self.stdin.write_all(line.as_bytes()).await?;
        self.stdin.flush().await
    }

    /// The next thing it says that is `wanted`; `what` names it in errors. All else is kept.
    ///
    /// # Errors
    /// If it ends before, hangs, or says what is no JSON.
    pub async fn hear(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> io::Result<Value> {
        let known = self.said.iter().position(&wanted);
        if let Some(said) = known.and_then(|at| self.said.remove(at)) {
            return Ok(said);
        }
        loop {
            let said = match timeout(PATIENCE, self.stdout.next_line()).await {
                Ok(line) => line?,
                Err(_) => {
                    let text = format!("no {what} for {PATIENCE:?}, only {:?}", self.said);
                    return Err(io::Error::other(text));
                }
            };
            let Some(line) = said else {
                let text = format!("it ended without {what}: {:?}", self.said);
                return Err(io::Error::other(text));
            };
            let said: Value = serde_json::from_str(&line)
                .map_err(|error| io::Error::other(format!("{error}: {line}")))?;
            if wanted(&said) {
                return Ok(said);
            }
            self.said.push_back(said);
        }
    }

    /// What it said and nobody asked for yet.
    pub fn said(&self) -> impl Iterator<Item = &Value> {
        self.said.iter()
    }

    /// Ends its input, and waits until it has ended well.
    ///
    /// # Errors
    /// If it ends with an error, or not at all.
    pub async fn stop(self) -> io::Result<()> {
        let Self {
            mut child, stdin, ..
        } = self;
        drop(stdin);
        match timeout(PATIENCE, child.wait()).await {
            Ok(ended) if ended.as_ref().is_ok_and(|ended| ended.success()) => Ok(()),
            other => Err(io::Error::other(format!("it did not end well: {other:?}"))),
        }
    }

    /// Ends it without a word, and waits until it has ended.
    ///
    /// # Errors
    /// If it cannot be ended.
    pub async fn kill(mut self) -> io::Result<()> {
        self.child.kill().await
    }
}
