//! VSCode's own peer, in a process of node that is killed when the value is dropped.

use std::path::Path;

use anyhow::{Context, Result, bail};
use breakbulk_testkit::node::{Script, node};
use serde_json::{Value, json};
use tokio::process::Command;

/// `node` with a script of this package.
pub fn script(name: &str) -> Result<Command> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(node(folder, name, "@codingame/monaco-vscode-api")?)
}

/// A running `peer.mjs`.
pub struct Node {
    script: Script,
    calls: u32,
}

impl Node {
    /// Starts a peer that listens on a free port, and returns its address.
    pub async fn listen(carrier: &str, options: &[&str]) -> Result<(Self, String)> {
        Self::listen_at("127.0.0.1:0", carrier, options).await
    }

    /// Starts a peer that listens at `HOST:PORT` or `unix:PATH`, and returns its address.
    pub async fn listen_at(
        address: &str,
        carrier: &str,
        options: &[&str],
    ) -> Result<(Self, String)> {
        let mut node = Self::start(&["--listen", address, "--carrier", carrier], options)?;
        let said = node.hear("listening").await?;
        let address = said["listening"].as_str().context("no address")?.to_owned();
        Ok((node, address))
    }

    /// Starts a peer that connects to `address`. [`opened`](Self::opened) waits until it has.
    pub fn connect(carrier: &str, address: &str, options: &[&str]) -> Result<Self> {
        Self::start(&["--connect", address, "--carrier", carrier], options)
    }

    fn start(way: &[&str], options: &[&str]) -> Result<Self> {
        let mut command = script("peer.mjs")?;
        command.args(way).args(options);
        Ok(Self {
            script: Script::start(command)?,
            calls: 0,
        })
    }

    /// Waits until its session is open.
    pub async fn opened(&mut self) -> Result<()> {
        self.hear("opened").await.map(drop)
    }

    /// Sends the peer a command.
    pub async fn tell(&mut self, command: &Value) -> Result<()> {
        Ok(self.script.tell(command).await?)
    }

    /// The peer's next message that has this key. Other messages are kept for later.
    pub async fn hear(&mut self, key: &str) -> Result<Value> {
        let said = self.script.hear(key, |said| said.get(key).is_some());
        Ok(said.await?)
    }

    /// Begins a call, with a token where `token` says so, and returns its number.
    pub async fn begin(&mut self, method: &str, args: Value, token: Token) -> Result<u32> {
        self.calls += 1;
        let id = self.calls;
        let mut command = json!({"id": id, "call": method, "args": args});
        match token {
            Token::None => {}
            Token::Live => command["token"] = "live".into(),
            Token::Cancelled => command["token"] = "cancelled".into(),
        }
        self.tell(&command).await?;
        Ok(id)
    }

    /// The outcome of a call: what it returned, or what it threw.
    pub async fn outcome(&mut self, id: u32) -> Result<Result<Value, Value>> {
        let said = self.answer(id).await?;
        match (said.get("ok"), said.get("error")) {
            (Some(ok), None) => Ok(Ok(ok.clone())),
            (None, Some(error)) => Ok(Err(error.clone())),
            _ => bail!("node says {said}"),
        }
    }

    async fn answer(&mut self, id: u32) -> Result<Value> {
        let what = format!("call {id}");
        Ok(self.script.hear(&what, |said| said["id"] == id).await?)
    }

    /// Makes a call and waits for its outcome.
    pub async fn call(&mut self, method: &str, args: Value) -> Result<Result<Value, Value>> {
        let id = self.begin(method, args, Token::None).await?;
        self.outcome(id).await
    }

    /// Cancels a call that was begun with a live token.
    pub async fn cancel(&mut self, id: u32) -> Result<()> {
        self.tell(&json!({ "cancel": id })).await
    }

    /// Makes this many concurrent calls of `$add`, and returns how many results were right.
    pub async fn many(&mut self, count: u32) -> Result<Value> {
        let id = self.begin_many(count).await?;
        self.right(id).await
    }

    /// Begins this many concurrent calls of `$add`.
    pub async fn begin_many(&mut self, count: u32) -> Result<u32> {
        self.calls += 1;
        let id = self.calls;
        self.tell(&json!({"id": id, "many": count})).await?;
        Ok(id)
    }

    /// How many of these calls had the right result.
    pub async fn right(&mut self, id: u32) -> Result<Value> {
        Ok(self.answer(id).await?["right"].take())
    }

    /// Destroys the peer's socket without a message to the other end.
    pub async fn cut(&mut self) -> Result<()> {
        self.tell(&json!({"cut": true})).await
    }

    /// Ends the peer in good order, and waits until its process has ended.
    pub async fn stop(self) -> Result<()> {
        Ok(self.script.stop().await?)
    }
}

/// The cancellation token of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// No token.
    None,
    /// A token that can be cancelled.
    Live,
    /// A token that was cancelled before the call.
    Cancelled,
}
