//! Runs npm's `@modelcontextprotocol/inspector --cli`.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use interop_ahp::program::breakbulk;
use tokio::process::Command;
use tokio::time::timeout;

use crate::conformance::packages;
use crate::told::Reach;

/// The time limit for one call of a server, which takes a second or two.
const PATIENCE: Duration = Duration::from_secs(90);

/// The inspector's output for one call, with these arguments and this era of the protocol.
pub async fn says(reach: &Reach, era: &str, arguments: &[&str]) -> Result<String> {
    // The inspector keeps its knowledge of servers in the home folder.
    let home = tempfile::tempdir()?;
    let mut command = Command::new(packages().join(".bin/node"));
    command
        .arg(packages().join(".bin/mcp-inspector"))
        .args(["--cli", "--quiet", "--protocol-era", era])
        .args(arguments)
        .env("HOME", home.path());
    match reach {
        Reach::Http(url) => command.args(["--transport", "http", "--server-url", url]),
        Reach::Stdio { listen, to } => {
            command.args(["--transport", "stdio", "--"]);
            command.arg(breakbulk()?);
            command.args(["gateway", "--listen", listen, "--to", to])
        }
    };
    let run = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(PATIENCE, run).await.context("it hangs")??;
    let said = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success(),
        "{}: {said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}
