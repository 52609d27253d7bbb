//! A published SDK, in a process that ends with the value that stands for it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use breakbulk::contextvm::{PublicKey, public_key};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::call::{Answer, Call, Outcome};
use crate::text::About;

/// A peer that says nothing for longer hangs.
const PATIENCE: Duration = Duration::from_secs(150);

/// What `peer.mjs` needs.
const INSTALLED: &str = "node_modules/@contextvm/sdk/package.json";

/// Names the program that is made of the crate `contextvm-sdk`.
pub const RUST_PEER: &str = "CONTEXTVM_SDK_PEER";

/// Which SDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sdk {
    /// npm's `@contextvm/sdk`.
    Npm,
    /// The crate `contextvm-sdk`.
    Rust,
}

/// Which end it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that asks.
    Client,
    /// The end that answers.
    Server,
}

impl Sdk {
    fn command(self) -> Result<Command> {
        match self {
            Self::Npm => {
                let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
                if !folder.join(INSTALLED).is_file() {
                    bail!(
                        "npm's SDK is not installed: run `cargo xtask interop contextvm`, which does"
                    );
                }
                let mut command = Command::new("node");
                command.arg(folder.join("peer.mjs"));
                // What goes wrong is told by the script.
                command.env("LOG_ENABLED", "false");
                Ok(command)
            }
            Self::Rust => {
                let path = std::env::var_os(RUST_PEER).map(PathBuf::from);
                let path = path.with_context(|| {
                    format!("{RUST_PEER} names no program: run `cargo xtask long contextvm`, which builds it")
                })?;
                Ok(Command::new(path))
            }
        }
    }
}

/// A client or a server of an SDK's.
pub struct Peer {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    /// Its key.
    pub key: PublicKey,
    /// What it has said and nobody has asked for yet.
    said: VecDeque<Value>,
    calls: u32,
}

impl Peer {
    /// Starts a server and waits until it is heard of at the relay.
    pub async fn server(sdk: Sdk, plan: &Value) -> Result<Self> {
        Self::start(sdk, Role::Server, plan).await
    }

    /// Starts a client of this server and waits until its session is open.
    pub async fn client(sdk: Sdk, server: &PublicKey, plan: &Value) -> Result<Self> {
        let mut plan = plan.clone();
        plan["server"] = server.to_hex().into();
        Self::start(sdk, Role::Client, &plan).await
    }

    async fn start(sdk: Sdk, role: Role, plan: &Value) -> Result<Self> {
        let role = match role {
            Role::Client => "client",
            Role::Server => "server",
        };
        let mut child = sdk
            .command()?
            .args([role, &plan.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{sdk:?}"))?;
        let stdin = child.stdin.take().context("no standard input")?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut peer = Self {
            child,
            stdin,
            stdout: BufReader::new(stdout).lines(),
            key: PublicKey::from_byte_array([0; 32]),
            said: VecDeque::new(),
            calls: 0,
        };
        let ready = peer
            .hear("ready", |said| said.get("ready").is_some())
            .await?;
        peer.key = public_key(ready["ready"].as_str().context("no key")?)?;
        Ok(peer)
    }

    /// Begins a call; without an answer for `patience` it fails.
    pub async fn begin(&mut self, call: Call, patience: Option<Duration>) -> Result<u32> {
        self.calls += 1;
        let id = self.calls;
        let mut command = json!({"id": id, "call": call.to_json()});
        if let Some(patience) = patience {
            command["timeout"] = u64::try_from(patience.as_millis())?.into();
        }
        let line = format!("{command}\n");
        self.stdin.write_all(line.as_bytes()).await?;
        self.stdin.flush().await?;
        Ok(id)
    }

    /// What came of a call that was begun.
    pub async fn outcome(&mut self, id: u32) -> Result<Outcome> {
        let mut said = self.hear("an answer", |said| said["id"] == id).await?;
        if said.get("error").is_some() {
            return Ok(Outcome::Failed(said["error"].take()));
        }
        let about = |name: &str| {
            About::from_json(&said[name]).with_context(|| format!("the peer says {said}"))
        };
        Ok(Outcome::Answered(Answer {
            text: about("text")?,
            heard: about("heard")?,
            seconds: said["seconds"].as_f64().unwrap_or_default(),
            progress: said["progress"].as_u64().unwrap_or_default(),
        }))
    }

    /// Calls, and waits for what comes of it.
    pub async fn call(&mut self, call: Call) -> Result<Outcome> {
        let id = self.begin(call, None).await?;
        self.outcome(id).await
    }

    /// The next error that none of its callers heard of.
    pub async fn failure(&mut self) -> Result<String> {
        let said = self
            .hear("an error", |said| said.get("failed").is_some())
            .await?;
        Ok(said["failed"].as_str().unwrap_or_default().to_owned())
    }

    /// The errors that were told so far and that nobody asked for.
    pub fn failures(&self) -> Vec<String> {
        let failed = self.said.iter().filter_map(|said| said["failed"].as_str());
        failed.map(str::to_owned).collect()
    }

    async fn hear(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        if let Some(at) = self.said.iter().position(&wanted) {
            return self.said.remove(at).context("it was there");
        }
        loop {
            let line = timeout(PATIENCE, self.stdout.next_line()).await;
            let line = line.map_err(|_| {
                anyhow!("no word of {what} for {PATIENCE:?}, only {:?}", self.said)
            })??;
            let line = line.with_context(|| format!("it ended without {what}: {:?}", self.said))?;
            let said: Value = serde_json::from_str(&line).context(line)?;
            if wanted(&said) {
                return Ok(said);
            }
            self.said.push_back(said);
        }
    }

    /// Lets it end in good order, and waits until it has.
    pub async fn stop(self) -> Result<()> {
        let Self {
            mut child, stdin, ..
        } = self;
        drop(stdin);
        match timeout(PATIENCE, child.wait()).await {
            Ok(ended) if ended.as_ref().is_ok_and(|ended| ended.success()) => Ok(()),
            other => bail!("it did not end well: {other:?}"),
        }
    }
}
