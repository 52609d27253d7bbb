//! Runs a client to its end, and checks what it reports about its calls.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use interop_ahp::program::breakbulk;
use interop_ahp::text::digest;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::sdk::{MAX_MESSAGE, Sdk};

/// The time limit of a client.
const PATIENCE: Duration = Duration::from_secs(120);

/// The unit of which texts are made; `words.mjs` has the same.
const UNIT: &str = "a \"quoted\" \\ é 漢 🚢\n";

/// The progress values that each server sends, with their total.
const PROGRESS: [(f64, Option<f64>); 3] = [(0.0, Some(3.0)), (1.0, Some(3.0)), (3.0, Some(3.0))];

/// How a client answers requests of a server; `words.mjs` has the same.
const ANSWER_END: &str = "!";
const COLOUR: &str = "blue";

/// How many units a call sends, and how many it asks for.
pub type Sizes = (usize, usize);

/// A small call, and one with 250 KB in each direction, which no path lets through in one piece.
pub const CALLS: [Sizes; 3] = [(3, 2), (10_000, 1), (1, 10_000)];

/// Concurrent calls, whose messages together exceed a frame of any path.
const PARALLEL: [Sizes; 6] = [
    (1, 4_000),
    (4_000, 1),
    (2, 2),
    (500, 700),
    (6_000, 3),
    (3, 6_000),
];

/// How many units a server's own request has.
const ASKED: usize = 10_000;

/// How a client reaches its server.
#[derive(Clone, Debug)]
pub enum Reach {
    /// It starts a gateway between these endpoints.
    Stdio {
        /// The client's standard streams.
        listen: String,
        /// The server, or the gateway before it.
        to: String,
    },
    /// It goes to this URL.
    Http(String),
}

impl Reach {
    /// It starts a gateway to this endpoint.
    pub fn stdio(to: &str) -> Self {
        Self::Stdio {
            listen: format!("stdio:?max-message={MAX_MESSAGE}"),
            to: to.to_owned(),
        }
    }

    /// The plan's members that tell the client how to reach its server.
    pub(crate) fn plan(&self) -> Result<Value> {
        Ok(match self {
            Self::Http(url) => json!({ "url": url }),
            Self::Stdio { listen, to } => {
                let gateway = ["gateway", "--listen", listen, "--to", to];
                json!({"command": breakbulk()?, "args": gateway})
            }
        })
    }
}

/// What a client does, and what is expected of it.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The client.
    pub client: Sdk,
    /// The version of MCP that both ends should agree on.
    pub version: &'static str,
    /// Calls one after the other.
    pub calls: &'a [Sizes],
    /// Then concurrent calls, a call during which the server sends requests, and one that is cancelled.
    pub extras: bool,
    /// Whether something between the two also sends progress notifications.
    pub more_progress: bool,
}

impl Plan<'_> {
    /// Runs the client to its end. Fails if anything differs from a direct connection.
    pub async fn run(self, reach: &Reach) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let lines = self.told(reach, folder.path()).await?;
        let (agreed, version) = (&lines[0]["version"], self.version);
        ensure!(agreed == version, "they agreed on {agreed}, not {version}");
        for (line, sizes) in lines[1..].iter().zip(self.calls) {
            self.check(line, *sizes)?;
        }
        if self.extras {
            self.check_extras(&lines[1 + self.calls.len()..])?;
        }
        Ok(())
    }

    async fn told(self, reach: &Reach, folder: &Path) -> Result<Vec<Value>> {
        let sizes = |(up, down): &Sizes| json!({"up": up, "down": down});
        let mut plan = reach.plan()?;
        plan["calls"] = self.calls.iter().map(sizes).collect();
        if self.extras {
            let parallel: Value = PARALLEL.iter().map(sizes).collect();
            plan["extras"] = json!({"parallel": parallel, "units": ASKED, "folder": folder});
        }
        let expected = 1 + self.calls.len() + if self.extras { 4 } else { 0 };
        let lines = lines(self.client, &plan).await?;
        ensure!(lines.len() == expected, "not {expected} lines: {lines:?}");
        Ok(lines)
    }

    /// Checks what the client told of one call.
    fn check(self, line: &Value, (up, down): Sizes) -> Result<()> {
        let checked = self.checked(line, (up, down));
        checked.with_context(|| format!("{up} up, {down} down: {line}"))
    }

    fn checked(self, line: &Value, (up, down): Sizes) -> Result<()> {
        let called: Called = serde_json::from_value(line.clone())?;
        ensure!(called.heard == About::units(up), "not what was sent");
        ensure!(called.text == About::units(down), "not what was asked for");
        let grows = called.progress.is_sorted_by(|one, next| one.0 < next.0);
        ensure!(grows, "progress that does not grow");
        let mut told = called.progress;
        // A relay's gateways report the progress of transfers, with other totals or none.
        told.retain(|(_, total)| !self.more_progress || *total == PROGRESS[0].1);
        // A client of npm drops progress that arrives together with the answer.
        let forgets = self.client.is_npm();
        let as_told = told.iter().all(|heard| PROGRESS.contains(heard));
        ensure!(
            as_told && (forgets || told.len() == PROGRESS.len()),
            "progress is not {PROGRESS:?}"
        );
        Ok(())
    }

    fn check_extras(self, lines: &[Value]) -> Result<()> {
        let [parallel, asked, cancelled, after] = lines else {
            anyhow::bail!("not four lines: {lines:?}");
        };
        let calls = parallel["parallel"]
            .as_array()
            .context("no parallel calls")?;
        ensure!(calls.len() == PARALLEL.len(), "{} calls", calls.len());
        for (line, sizes) in calls.iter().zip(PARALLEL) {
            self.check(line, sizes).context("in parallel")?;
        }
        let answer = About::of(&(UNIT.repeat(ASKED) + ANSWER_END));
        let sampled: About = serde_json::from_value(asked["sampled"].clone())?;
        ensure!(sampled == answer, "not what was sampled: {asked}");
        ensure!(
            asked["elicited"] == COLOUR,
            "not what was filled in: {asked}"
        );
        ensure!(cancelled["cancelled"] == "cancelled", "{cancelled}");
        self.check(after, (1, 1)).context("after a cancelled call")
    }
}

/// Runs a client with a plan to its end, and returns its output lines.
pub(crate) async fn lines(client: Sdk, plan: &Value) -> Result<Vec<Value>> {
    let [program, script] = client.command();
    let mut command = Command::new(program);
    command.args([&script, "client", &plan.to_string()]);
    let run = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(PATIENCE, run).await.context("the client hangs")??;
    let told = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "{}: {told}{}",
        output.status,
        shorten(&output.stderr)
    );
    let lines = told.lines().map(serde_json::from_str);
    Ok(lines.collect::<Result<_, _>>()?)
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
    fn units(count: usize) -> Self {
        Self::of(&UNIT.repeat(count))
    }

    fn of(text: &str) -> Self {
        Self {
            bytes: text.len(),
            sha256: digest([text]),
        }
    }
}

/// The end of a program's output.
fn shorten(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let skip = said.chars().count().saturating_sub(2_000);
    said.chars().skip(skip).collect()
}
