//! Runs npm's own `@loro-extended/repo` in a process of node, as a client or as a server.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use breakbulk::loro::Way;
use breakbulk_testkit::node::{Script, node};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::browser::transport;

/// A Repo, which is killed when it is dropped.
pub struct Repo {
    /// Its peer id.
    pub peer_id: String,
    script: Script,
    calls: u64,
}

impl Repo {
    /// Starts a client that connects to `url` by this transport.
    pub async fn client(name: &str, way: Way, url: &str) -> Result<Self> {
        let plan = json!({"way": transport(way), "url": url});
        Ok(Self::start(name, plan).await?.0)
    }

    /// Starts a server on this port of the loopback (0: any), and returns the port.
    pub async fn server(name: &str, port: u16) -> Result<(Self, u16)> {
        let (repo, ready) = Self::start(name, json!({"port": port})).await?;
        let port = ready.as_u64().context("no port")?;
        Ok((repo, u16::try_from(port)?))
    }

    async fn start(name: &str, mut plan: Value) -> Result<(Self, Value)> {
        let peer_id = fresh_peer_id();
        plan["name"] = name.into();
        plan["peerId"] = peer_id.as_str().into();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = node(folder, "repo.mjs", "@loro-extended/repo")?;
        command.arg(plan.to_string());
        let mut script = Script::start(command)?;
        let ready = script.hear("ready", |said| said.get("ready").is_some());
        let ready = ready.await.with_context(|| format!("Repo {name}"))?;
        let repo = Self {
            peer_id,
            script,
            calls: 0,
        };
        Ok((repo, ready["ready"].clone()))
    }

    /// Calls a method of the script's `lab`. An error has the last messages that were exchanged.
    pub async fn call<T: DeserializeOwned>(
        &mut self,
        method: &str,
        args: Value,
        within: Duration,
    ) -> Result<T> {
        self.calls += 1;
        let id = self.calls;
        let command =
            json!({"id": id, "call": method, "args": args, "within": within.as_millis() as u64});
        self.script.tell(&command).await?;
        let answer = self.script.hear(method, |said| said["id"] == id);
        let mut answer = answer.await?;
        if let Some(error) = answer["error"].as_str() {
            let passed = serde_json::to_string_pretty(&answer["passed"])?;
            bail!("{method}{args}: {error}; passed: {passed}");
        }
        serde_json::from_value(answer["ok"].take()).with_context(|| format!("answer of {method}"))
    }

    /// Disconnects and ends the process in good order.
    pub async fn stop(self) -> Result<()> {
        Ok(self.script.stop().await?)
    }

    /// Kills the process.
    pub async fn kill(self) -> Result<()> {
        Ok(self.script.kill().await?)
    }
}

/// A number that no other peer of this process has.
pub(crate) fn fresh_peer_id() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1_000);
    NEXT.fetch_add(1, Ordering::Relaxed).to_string()
}
