//! A published SDK as client or server, in a process that is killed when the value is dropped.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use breakbulk::contextvm::{PublicKey, public_key};
use breakbulk_testkit::node::{Script, node};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::call::{Answer, Call, Outcome};
use crate::text::About;

/// The environment variable that names the program built from the crate `contextvm-sdk`.
pub const RUST_PEER: &str = "CONTEXTVM_SDK_PEER";

/// Which SDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sdk {
    /// npm's `@contextvm/sdk`.
    Npm,
    /// The crate `contextvm-sdk`.
    Rust,
}

/// Which end the SDK is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that sends requests.
    Client,
    /// The end that answers requests.
    Server,
}

impl Sdk {
    fn command(self) -> Result<Command> {
        match self {
            Self::Npm => {
                let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
                let mut command = node(folder, "peer.mjs", "@contextvm/sdk")?;
                // The script itself reports errors.
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

/// A running client or server of an SDK.
pub struct Peer {
    script: Script,
    /// The public key of the peer.
    pub key: PublicKey,
    /// The version of MCP that a client agreed on, if the client reports it.
    pub version: Option<String>,
    calls: u32,
}

impl Peer {
    /// Starts a server and waits until it is reachable at the relay.
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
        let mut command = sdk.command()?;
        command.args([role, &plan.to_string()]);
        let mut script = Script::start(command).with_context(|| format!("{sdk:?}"))?;
        let ready = script.hear("ready", |said| said.get("ready").is_some());
        let ready = ready.await?;
        Ok(Self {
            script,
            key: public_key(ready["ready"].as_str().context("no key")?)?,
            version: ready["version"].as_str().map(str::to_owned),
            calls: 0,
        })
    }

    /// Begins a call, which fails if there is no answer within `patience`.
    pub async fn begin(&mut self, call: Call, patience: Option<Duration>) -> Result<u32> {
        self.calls += 1;
        let id = self.calls;
        let mut command = json!({"id": id, "call": call.to_json()});
        if let Some(patience) = patience {
            command["timeout"] = u64::try_from(patience.as_millis())?.into();
        }
        self.script.tell(&command).await?;
        Ok(id)
    }

    /// The outcome of a call that was begun.
    pub async fn outcome(&mut self, id: u32) -> Result<Outcome> {
        let answer = self.script.hear("an answer", |said| said["id"] == id);
        let mut said = answer.await?;
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

    /// Makes a call and waits for its outcome.
    pub async fn call(&mut self, call: Call) -> Result<Outcome> {
        let id = self.begin(call, None).await?;
        self.outcome(id).await
    }

    /// The next error that the SDK reported without reference to a call.
    pub async fn failure(&mut self) -> Result<String> {
        let failed = |said: &Value| said.get("failed").is_some();
        let said = self.script.hear("an error", failed).await?;
        Ok(said["failed"].as_str().unwrap_or_default().to_owned())
    }

    /// The errors so far that the SDK reported without reference to a call.
    pub fn failures(&self) -> Vec<String> {
        let failed = self
            .script
            .said()
            .filter_map(|said| said["failed"].as_str());
        failed.map(str::to_owned).collect()
    }

    /// Ends the peer in good order, and waits until its process has ended.
    pub async fn stop(self) -> Result<()> {
        Ok(self.script.stop().await?)
    }
}
