//! Runs the program `breakbulk` as a loro server. It is killed when dropped.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use interop_ahp::program::breakbulk;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A running `breakbulk loro serve`.
pub struct Program {
    child: Child,
    /// Host and port.
    pub address: String,
}

impl Program {
    /// Starts a server that keeps its documents in this folder, and waits until it listens.
    pub async fn start(data: &Path) -> Result<Self> {
        Self::start_at("127.0.0.1:0", data).await
    }

    /// Starts a server as [`start`](Self::start) does, at this address.
    pub async fn start_at(address: &str, data: &Path) -> Result<Self> {
        let mut child = Command::new(breakbulk()?)
            .args(["loro", "serve", "--listen", address, "--data"])
            .arg(data)
            .env_remove("BREAKBULK_TOKEN")
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stderr = child.stderr.take().context("no standard error")?;
        let mut lines = BufReader::new(stderr).lines();
        let mut said = Vec::new();
        while let Some(line) = lines.next_line().await? {
            let address = line
                .split_once("ws://")
                .and_then(|(_, at)| at.split_once("/ws"));
            if let Some((address, _)) = address {
                let address = address.to_owned();
                tokio::spawn(async move {
                    while let Ok(Some(line)) = lines.next_line().await {
                        eprintln!("program: {line}");
                    }
                });
                return Ok(Self { child, address });
            }
            said.push(line);
        }
        bail!("the program ended before it listened: {}", said.join(" / "))
    }

    /// Asks the server to end, and waits until it has ended without an error.
    pub async fn stop(mut self) -> Result<()> {
        let id = self.child.id().context("the program has ended before")?;
        let asked = Command::new("kill").arg(id.to_string()).status().await?;
        if !asked.success() {
            bail!("the program could not be asked to end");
        }
        match self.child.wait().await? {
            ended if ended.success() => Ok(()),
            ended => bail!("the program ended with {ended}"),
        }
    }

    /// Kills the server.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}
