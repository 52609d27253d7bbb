//! MCP clients and servers of both eras, as npm and PyPI have them, with the program between them.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use breakbulk_testkit::bad_path::{BadPath, Way, Weather};
use breakbulk_testkit::bad_relay::{self, BadRelay};
use interop_ahp::program::{Gateway, breakbulk};
use interop_ahp::text::digest;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

/// A client that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// What texts are made of, as `words.mjs` has it.
const UNIT: &str = "a \"quoted\" \\ é 漢 🚢\n";

/// Values of progress that each server tells, with their total.
const PROGRESS: [(f64, Option<f64>); 3] = [(0.0, Some(3.0)), (1.0, Some(3.0)), (3.0, Some(3.0))];

/// How many units are sent and asked for: a few bytes, and 250 KB each way, which no path takes whole.
const CALLS: [(usize, usize); 3] = [(3, 2), (10_000, 1), (1, 10_000)];

/// Whose client or server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sdk {
    /// `@modelcontextprotocol/sdk` 1.x.
    Npm2025,
    /// `@modelcontextprotocol/client` and `@modelcontextprotocol/server` 2.x.
    Npm2026,
    /// `mcp` 1.x.
    Pypi2025,
    /// `mcp` 2.x.
    Pypi2026,
}

/// All of them.
pub const SDKS: [Sdk; 4] = [Sdk::Npm2025, Sdk::Npm2026, Sdk::Pypi2025, Sdk::Pypi2026];

/// What is between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// One gateway, which starts the server.
    Stdio,
    /// A tunnel of two gateways over a WebSocket path of 128 KB.
    Tunnel,
    /// Two gateways at a Nostr relay of 64 KB.
    Relay,
}

/// All of them.
pub const OVER: [Over; 3] = [Over::Stdio, Over::Tunnel, Over::Relay];

/// Who calls whom, over what.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Who calls.
    pub client: Sdk,
    /// Who is called.
    pub server: Sdk,
    /// What is between them.
    pub over: Over,
}

impl Sdk {
    fn is_modern(self) -> bool {
        matches!(self, Self::Npm2026 | Self::Pypi2026)
    }

    /// The program and its script.
    fn command(self) -> [String; 2] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (program, script) = match self {
            Self::Npm2025 => (PathBuf::from("node"), "npm_2025.mjs"),
            Self::Npm2026 => (PathBuf::from("node"), "npm_2026.mjs"),
            Self::Pypi2025 => (folder.join("venv-2025/bin/python"), "pypi.py"),
            Self::Pypi2026 => (folder.join("venv-2026/bin/python"), "pypi.py"),
        };
        let script = folder.join("peers").join(script);
        [program, script].map(|path| path.display().to_string())
    }

    /// Its server, as the program starts it.
    fn endpoint(self) -> String {
        let [program, script] = self.command();
        format!("exec:'{program}' '{script}' server?max-message=64MiB")
    }
}

impl Row {
    /// What both agree on: the newest that both know.
    fn version(self) -> &'static str {
        if self.client.is_modern() && self.server.is_modern() {
            "2026-07-28"
        } else {
            "2025-11-25"
        }
    }

    /// Makes all calls. An error says what is not as it would be without anything between them.
    async fn run(self) -> Result<()> {
        match self.over {
            Over::Stdio => self.client(&self.server.endpoint()).await,
            Over::Tunnel => self.over_tunnel().await,
            Over::Relay => self.over_relay().await,
        }
    }

    async fn over_tunnel(self) -> Result<()> {
        let options = "tunnel=always&preset=aws-api-gateway";
        let listen = format!("ws://127.0.0.1:0?{options}");
        let gateway = Gateway::start(&listen, &self.server.endpoint()).await?;
        let way = Way {
            frame_cap: Some(32_768),
            message_cap: Some(131_072),
            text_only: true,
            ..Way::default()
        };
        let path = BadPath::start(&gateway.address, Weather::both_ways(way)).await?;
        let to = format!("ws://{}?{options}", path.address());
        self.client(&to).await?;
        let passed = path.counts();
        let blocked = passed.from_client.blocked + passed.from_target.blocked;
        ensure!(blocked == 0, "{blocked} messages were too large");
        gateway.stop().await
    }

    async fn over_relay(self) -> Result<()> {
        let relay = BadRelay::start(bad_relay::Weather::default()).await?;
        let folder = tempfile::tempdir()?;
        let key = folder.path().join("key");
        let made = Command::new(breakbulk()?).arg("keygen").arg(&key).output();
        ensure!(made.await?.status.success(), "no key was made");
        let listen = format!("cep22+nostr:{}?key={}", relay.url(), key.display());
        let gateway = Gateway::start(&listen, &self.server.endpoint()).await?;
        self.client(&gateway.address).await?;
        ensure!(
            relay.refused() == 0,
            "{} events were refused",
            relay.refused()
        );
        gateway.stop().await
    }

    /// Runs the client to its end. Its server is a gateway to that endpoint.
    async fn client(self, to: &str) -> Result<()> {
        let gateway = [
            "gateway",
            "--listen",
            "stdio:?max-message=64MiB",
            "--to",
            to,
        ];
        let calls = CALLS.map(|(up, down)| json!({"up": up, "down": down}));
        let plan = json!({"command": breakbulk()?, "args": gateway, "calls": calls});
        let [program, script] = self.client.command();
        let mut command = Command::new(program);
        command.args([&script, "client", &plan.to_string()]);
        let run = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = timeout(PATIENCE, run).await.context("the client hangs")??;
        let told = String::from_utf8_lossy(&output.stdout);
        let lines = told.lines().map(serde_json::from_str);
        let lines: Vec<Value> = lines.collect::<Result<_, _>>()?;
        ensure!(
            output.status.success() && lines.len() == 1 + CALLS.len(),
            "{}: {told}{}",
            output.status,
            shorten(&output.stderr)
        );
        let (agreed, version) = (&lines[0]["version"], self.version());
        ensure!(agreed == version, "they agreed on {agreed}, not {version}");
        for (line, (up, down)) in lines[1..].iter().zip(CALLS) {
            let checked = self.check(line, up, down);
            checked.with_context(|| format!("{up} up, {down} down: {line}"))?;
        }
        Ok(())
    }

    /// Checks what the client told of one call.
    fn check(self, line: &Value, up: usize, down: usize) -> Result<()> {
        let called: Called = serde_json::from_value(line.clone())?;
        ensure!(called.heard == About::of(up), "not what was sent");
        ensure!(called.text == About::of(down), "not what was asked for");
        let grows = called.progress.is_sorted_by(|one, next| one.0 < next.0);
        ensure!(grows, "progress that does not grow");
        // At relays the gateway tells of transfers too, with other totals or none.
        let whole = self.over != Over::Relay;
        let mut told = called.progress;
        told.retain(|(_, total)| whole || *total == PROGRESS[0].1);
        // A client of npm forgets progress that comes together with the answer.
        let forgets = matches!(self.client, Sdk::Npm2025 | Sdk::Npm2026);
        let as_told = told.iter().all(|heard| PROGRESS.contains(heard));
        ensure!(
            as_told && (forgets || told.len() == PROGRESS.len()),
            "progress is not {PROGRESS:?}"
        );
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
struct Called {
    text: About,
    heard: About,
    progress: Vec<(f64, Option<f64>)>,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct About {
    bytes: usize,
    sha256: String,
}

impl About {
    fn of(units: usize) -> Self {
        let text = UNIT.repeat(units);
        Self {
            bytes: text.len(),
            sha256: digest([text.as_str()]),
        }
    }
}

/// Runs each row, and fails with all that fail.
pub async fn each(rows: impl IntoIterator<Item = Row>) -> Result<()> {
    let mut failed = Vec::new();
    for row in rows {
        let start = Instant::now();
        match row.run().await {
            Ok(()) => println!("{row:?}: {:.1} s", start.elapsed().as_secs_f64()),
            Err(error) => failed.push(format!("{row:?}: {error:#}")),
        }
    }
    ensure!(
        failed.is_empty(),
        "{} rows fail:\n{}",
        failed.len(),
        failed.join("\n")
    );
    Ok(())
}

/// The end of what a program said.
fn shorten(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let skip = said.chars().count().saturating_sub(2_000);
    said.chars().skip(skip).collect()
}
