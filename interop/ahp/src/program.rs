//! Runs programs beside a test: `breakbulk gateway` and `ahp-host`. They are killed when dropped.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, anyhow, bail};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// What a program prints before its address once it accepts connections.
const LISTENING: &str = "listening on ";

/// Where the program `breakbulk` is, as `cargo xtask interop` sets it.
pub fn breakbulk() -> Result<PathBuf> {
    let path = std::env::var_os("BREAKBULK_BIN").map(PathBuf::from);
    let path = path.context(
        "BREAKBULK_BIN does not name the program breakbulk: run `cargo xtask interop ahp`, which builds it and says where it is",
    )?;
    if !path.is_file() {
        bail!(
            "BREAKBULK_BIN names {}, and there is no such file: run `cargo xtask interop ahp`, which builds it",
            path.display()
        );
    }
    Ok(path)
}

/// A running `breakbulk gateway`.
pub struct Gateway {
    child: Child,
    /// Host and port; for a Nostr relay, what a client gives as its target.
    pub address: String,
}

impl Gateway {
    /// Starts a gateway and waits until it listens. Its log goes to the test's own output.
    pub async fn start(listen: &str, to: &str) -> Result<Self> {
        let mut child = command(&breakbulk()?)
            // A check of the target would be one more connection on a path that counts connections.
            .args(["gateway", "--no-check", "--listen", listen, "--to", to])
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().context("no standard error")?;
        let mut lines = BufReader::new(stderr).lines();
        let address = listening(&mut lines).await?;
        let name = format!("gateway {listen}");
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                eprintln!("{name}: {line}");
            }
        });
        Ok(Self { child, address })
    }

    /// Sends the gateway SIGINT, as Ctrl-C does, and waits until it has ended without an error.
    pub async fn stop(mut self) -> Result<()> {
        let id = self.child.id().context("the gateway has ended before")?;
        let kill = Command::new("kill")
            .args(["-INT", &id.to_string()])
            .status();
        if !kill.await?.success() {
            bail!("the gateway could not be interrupted");
        }
        match self.child.wait().await? {
            ended if ended.success() => Ok(()),
            ended => bail!("the gateway ended with {ended}"),
        }
    }
}

/// A running `ahp-host`.
pub struct HostProgram {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    /// Host and port.
    pub address: String,
}

impl HostProgram {
    /// Starts a host and waits until it listens.
    pub async fn start(path: &str, arguments: &[impl AsRef<OsStr>]) -> Result<Self> {
        let mut child = command(Path::new(path))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| path.to_owned())?;
        let stdin = child.stdin.take().context("no standard input")?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut stdout = BufReader::new(stdout).lines();
        let address = listening(&mut stdout).await?;
        Ok(Self {
            child,
            stdin,
            stdout,
            address,
        })
    }

    /// Sends the host a command.
    pub async fn tell(&mut self, command: &str) -> Result<()> {
        let line = format!("{command}\n");
        self.stdin.write_all(line.as_bytes()).await?;
        Ok(self.stdin.flush().await?)
    }

    /// The host's next answer.
    pub async fn hear(&mut self) -> Result<String> {
        let line = self.stdout.next_line().await?;
        let line = line.ok_or_else(|| anyhow!("the host has ended"))?;
        match line.strip_prefix("error: ") {
            Some(error) => bail!("the host says: {error}"),
            None => Ok(line),
        }
    }

    /// Sends the host a command and returns the words of the answer after `word`, with which it must begin.
    pub async fn ask(&mut self, command: &str, word: &str) -> Result<Vec<String>> {
        self.tell(command).await?;
        let answer = self.hear().await?;
        let mut words = answer.split_whitespace();
        if words.next() != Some(word) {
            bail!("{command}: {word} was expected, and the host says {answer}");
        }
        Ok(words.map(str::to_owned).collect())
    }

    /// The id of the host's process.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Kills the host as `kill -9` does, and waits until it is gone.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.context("killing the host")
    }
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.kill_on_drop(true).env_remove("BREAKBULK_TOKEN");
    command
}

/// Reads until the program says where it listens.
async fn listening<R: AsyncRead + Unpin>(lines: &mut Lines<BufReader<R>>) -> Result<String> {
    let mut said = Vec::new();
    while let Some(line) = lines.next_line().await? {
        if let Some((_, address)) = line.split_once(LISTENING) {
            let address = address.trim();
            return Ok(address.strip_prefix("ws://").unwrap_or(address).to_owned());
        }
        said.push(line);
    }
    bail!("a program ended before it listened: {}", said.join(" / "))
}
