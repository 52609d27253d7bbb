//! VSCode's own peer, in a process that ends with the value that stands for it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// A peer that says nothing for longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the package's scripts need.
const INSTALLED: &str = "node_modules/@codingame/monaco-vscode-api/package.json";

/// A script of this package, if what it needs is installed.
pub fn script(name: &str) -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !folder.join(INSTALLED).is_file() {
        bail!(
            "VSCode's own modules are not installed: run `cargo xtask interop vscode`, which does"
        );
    }
    Ok(folder.join(name))
}

/// A `peer.mjs`.
pub struct Node {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    /// What it has said and nobody has asked for yet.
    said: VecDeque<Value>,
    calls: u32,
}

impl Node {
    /// Starts one that listens, and tells where.
    pub async fn listen(carrier: &str, options: &[&str]) -> Result<(Self, String)> {
        let mut node = Self::start(&["--listen", "127.0.0.1:0", "--carrier", carrier], options)?;
        let said = node.hear("listening").await?;
        let address = said["listening"].as_str().context("no address")?.to_owned();
        Ok((node, address))
    }

    /// Starts one that connects to `address`. It is [`opened`](Self::opened) once it has.
    pub fn connect(carrier: &str, address: &str, options: &[&str]) -> Result<Self> {
        Self::start(&["--connect", address, "--carrier", carrier], options)
    }

    fn start(way: &[&str], options: &[&str]) -> Result<Self> {
        let mut child = Command::new("node")
            .arg(script("peer.mjs")?)
            .args(way)
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("node")?;
        let stdin = child.stdin.take().context("no standard input")?;
        let stdout = child.stdout.take().context("no standard output")?;
        Ok(Self {
            child,
            stdin,
            stdout: BufReader::new(stdout).lines(),
            said: VecDeque::new(),
            calls: 0,
        })
    }

    /// Waits until its session is open.
    pub async fn opened(&mut self) -> Result<()> {
        self.hear("opened").await.map(drop)
    }

    /// Gives it a command.
    pub async fn tell(&mut self, command: &Value) -> Result<()> {
        let line = format!("{command}\n");
        self.stdin.write_all(line.as_bytes()).await?;
        Ok(self.stdin.flush().await?)
    }

    /// The next thing that it says with this key in it. What it says meanwhile is kept.
    pub async fn hear(&mut self, key: &str) -> Result<Value> {
        self.hear_that(key, |said| said.get(key).is_some()).await
    }

    async fn hear_that(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        if let Some(at) = self.said.iter().position(&wanted) {
            return self.said.remove(at).context("it was there");
        }
        loop {
            let line = timeout(PATIENCE, self.stdout.next_line()).await;
            let line = line.map_err(|_| {
                anyhow!(
                    "node says nothing of {what} for {PATIENCE:?}, only {:?}",
                    self.said
                )
            })??;
            let line = line.with_context(|| format!("node has ended without {what}"))?;
            let said: Value = serde_json::from_str(&line).context(line)?;
            if wanted(&said) {
                return Ok(said);
            }
            self.said.push_back(said);
        }
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

    /// What came of a call: what it returned, or what it threw.
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
        self.hear_that(&what, |said| said["id"] == id).await
    }

    /// Calls, and waits for what comes of it.
    pub async fn call(&mut self, method: &str, args: Value) -> Result<Result<Value, Value>> {
        let id = self.begin(method, args, Token::None).await?;
        self.outcome(id).await
    }

    /// Cancels a call that was begun with a live token.
    pub async fn cancel(&mut self, id: u32) -> Result<()> {
        self.tell(&json!({ "cancel": id })).await
    }

    /// Makes so many calls of `$add` at once, and returns how many came to the right sum.
    pub async fn many(&mut self, count: u32) -> Result<Value> {
        let id = self.begin_many(count).await?;
        self.right(id).await
    }

    /// Begins so many calls.
    pub async fn begin_many(&mut self, count: u32) -> Result<u32> {
        self.calls += 1;
        let id = self.calls;
        self.tell(&json!({"id": id, "many": count})).await?;
        Ok(id)
    }

    /// How many of them came to the right sum.
    pub async fn right(&mut self, id: u32) -> Result<Value> {
        Ok(self.answer(id).await?["right"].take())
    }

    /// Ends its socket without a word.
    pub async fn cut(&mut self) -> Result<()> {
        self.tell(&json!({"cut": true})).await
    }

    /// Lets it end in good order, and waits until it has.
    pub async fn stop(self) -> Result<()> {
        let Self {
            mut child, stdin, ..
        } = self;
        drop(stdin);
        match timeout(PATIENCE, child.wait()).await {
            Ok(ended) if ended.as_ref().is_ok_and(|ended| ended.success()) => Ok(()),
            other => bail!("node did not end well: {other:?}"),
        }
    }
}

/// A call's cancellation token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// It has none.
    None,
    /// One that can be cancelled.
    Live,
    /// One that was cancelled before the call.
    Cancelled,
}
