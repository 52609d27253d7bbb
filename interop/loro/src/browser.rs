//! Runs a headless Chromium beside the test; its pages have sync peers that the test controls.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use breakbulk::loro::Way;
use breakbulk_testkit::node::node;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::state::{State, Version};

/// The time limit for anything that a page does.
const PATIENCE: Duration = Duration::from_secs(90);

/// A browser and its pages.
pub struct Browser {
    child: Child,
    shared: Arc<Shared>,
    listening: JoinHandle<()>,
}

struct Shared {
    stdin: tokio::sync::Mutex<Option<ChildStdin>>,
    calls: AtomicU64,
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    /// Calls that wait for an answer, by number.
    waiting: HashMap<u64, oneshot::Sender<Value>>,
    /// Errors that no code in the pages caught.
    uncaught: Vec<String>,
    ended: bool,
}

impl Browser {
    /// Starts the browser, without a page.
    pub async fn start() -> Result<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut child = node(folder, "browser.mjs", "playwright-core")?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("node")?;
        let stdin = child.stdin.take().context("no standard input")?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let started = timeout(PATIENCE, lines.next_line()).await;
        let started = started.context("the browser does not start")??;
        let started = started.context("the browser ended at once")?;
        println!("{started}");
        let shared = Arc::new(Shared {
            stdin: tokio::sync::Mutex::new(Some(stdin)),
            calls: AtomicU64::new(0),
            said: Mutex::default(),
        });
        let listening = tokio::spawn(listen(shared.clone(), lines));
        Ok(Self {
            child,
            shared,
            listening,
        })
    }

    /// Opens a page whose peer will connect to `url` by this transport. It does not connect yet.
    pub async fn page(&self, name: &str, way: Way, url: &str) -> Result<Page> {
        let page = Page {
            name: name.to_owned(),
            shared: self.shared.clone(),
        };
        page.shared.run(json!({"page": name, "open": true})).await?;
        let transport = transport(way);
        // Each peer needs a number of its own.
        let peer_id = format!("1000{}", self.shared.calls.load(Ordering::Relaxed));
        let options = json!({"peerId": peer_id, "name": name, "transport": transport, "url": url});
        page.call("make", json!([options])).await?;
        Ok(page)
    }

    /// Ends the browser in good order. Fails if there was an uncaught error in a page.
    pub async fn stop(mut self) -> Result<()> {
        self.shared.stdin.lock().await.take();
        let ended = timeout(PATIENCE, self.child.wait()).await;
        let ended = ended.context("the browser does not end")??;
        self.listening.await?;
        let uncaught = std::mem::take(&mut self.shared.said().uncaught);
        if !ended.success() || !uncaught.is_empty() {
            bail!("the browser ended with {ended}; uncaught: {uncaught:?}");
        }
        Ok(())
    }
}

/// The name of a transport in `transports.js` and `repo.mjs`.
pub(crate) fn transport(way: Way) -> &'static str {
    match way {
        Way::WebSocket => "ws",
        Way::Sse => "sse",
        Way::Poll => "poll",
        Way::DataChannel => "webrtc",
        Way::Exchange => "none",
    }
}

impl Shared {
    fn said(&self) -> std::sync::MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(&self, mut command: Value) -> Result<Value> {
        let id = self.calls.fetch_add(1, Ordering::Relaxed);
        let what = command.to_string();
        command["id"] = id.into();
        let (answer, answered) = oneshot::channel();
        {
            let mut said = self.said();
            if said.ended {
                bail!("{what}: the browser has ended");
            }
            said.waiting.insert(id, answer);
        }
        if let Some(stdin) = self.stdin.lock().await.as_mut() {
            stdin.write_all(format!("{command}\n").as_bytes()).await?;
            stdin.flush().await?;
        }
        let answer = timeout(PATIENCE, answered).await.map_err(|_| {
            let uncaught = &self.said().uncaught;
            anyhow!("{what}: nothing for {PATIENCE:?}; uncaught: {uncaught:?}")
        })?;
        let mut answer = answer.with_context(|| format!("{what}: the browser has ended"))?;
        match answer.get("error") {
            Some(error) => bail!("{what}: {error}"),
            None => Ok(answer["ok"].take()),
        }
    }
}

/// Reads the browser's answers and hands each to the call that waits for it.
async fn listen(shared: Arc<Shared>, mut lines: Lines<BufReader<ChildStdout>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        let told: Value = serde_json::from_str(&line).unwrap_or_default();
        let mut said = shared.said();
        if let Some(answer) = told["id"].as_u64().and_then(|id| said.waiting.remove(&id)) {
            let _ = answer.send(told);
        } else {
            eprintln!("browser: {line}");
            said.uncaught.push(line);
        }
    }
    let mut said = shared.said();
    said.ended = true;
    said.waiting.clear();
}

/// A page with one sync peer.
#[derive(Clone)]
pub struct Page {
    name: String,
    shared: Arc<Shared>,
}

/// What passed in one direction: WebSocket and channel messages, POST bodies, events, answers to polls.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct Passed {
    /// How many.
    pub messages: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// Bytes of the largest.
    pub largest: u64,
}

/// What a page's peer counted.
#[derive(Clone, Debug, Deserialize)]
pub struct Counts {
    /// Connections that were opened.
    pub opened: u64,
    /// From the page.
    pub sent: Passed,
    /// To the page.
    pub received: Passed,
    /// Updates that came before the answer to which they are relative.
    pub early: u64,
    /// Updates without the updates they depend on, though every request was answered: something was lost.
    pub gaps: u64,
    /// Why connections ended.
    pub reasons: Vec<String>,
}

/// The edits that a page made.
#[derive(Debug, Deserialize)]
pub struct Edits {
    /// How many.
    pub count: u64,
    /// The document's version after them.
    pub version: Version,
}

impl Page {
    /// Calls a method of the page's `window.lab`.
    pub async fn call(&self, method: &str, args: Value) -> Result<Value> {
        let command = json!({"page": self.name, "call": method, "args": args});
        self.shared.run(command).await
    }

    /// Calls a method, and parses its answer as this type.
    pub async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        method: &str,
        args: Value,
    ) -> Result<T> {
        let answer = self.call(method, args).await?;
        serde_json::from_value(answer).with_context(|| format!("the answer of {method}"))
    }

    /// Connects the page to the server, and waits until the handshake is done.
    pub async fn connect(&self) -> Result<()> {
        self.call("connect", json!([])).await.map(drop)
    }

    /// Fills a document with so many bytes of text.
    pub async fn fill(&self, doc: &str, bytes: usize, seed: u32) -> Result<State> {
        let options = json!({"bytes": bytes, "seed": seed});
        self.ask("fill", json!([doc, options])).await
    }

    /// Waits until the page's document has all of a version, and tells its state.
    pub async fn until(&self, doc: &str, version: &Version) -> Result<State> {
        self.ask("until", json!([doc, version])).await
    }

    /// What the page's peer counted so far.
    pub async fn counts(&self) -> Result<Counts> {
        self.ask("counts", json!([])).await
    }

    /// Saves a screenshot of the page.
    pub async fn screenshot(&self, path: &Path) -> Result<()> {
        let command = json!({"page": self.name, "screenshot": path});
        self.shared.run(command).await?;
        println!("a screenshot is kept as {}", path.display());
        Ok(())
    }
}
