//! Runs a client to its end, and checks what it tells of its calls.

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

/// A client that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// What texts are made of, as `words.mjs` has it.
const UNIT: &str = "a \"quoted\" \\ é 漢 🚢\n";

/// Values of progress that each server tells, with their total.
const PROGRESS: [(f64, Option<f64>); 3] = [(0.0, Some(3.0)), (1.0, Some(3.0)), (3.0, Some(3.0))];

/// How a client answers when a server asks, as `words.mjs` has it.
const ANSWER_END: &str = "!";
const COLOUR: &str = "blue";

/// How many units are sent and asked for in one call.
pub type Sizes = (usize, usize);

/// A few bytes, and 250 KB each way, which no path takes whole.
pub const CALLS: [Sizes; 3] = [(3, 2), (10_000, 1), (1, 10_000)];

/// Calls at once: together more than a path takes in one frame.
const PARALLEL: [Sizes; 6] = [
    (1, 4_000),
    (4_000, 1),
    (2, 2),
    (500, 700),
    (6_000, 3),
    (3, 6_000),
];

/// How many units a server asks with, and is answered.
const ASKED: usize = 10_000;

/// How a client gets to its server.
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

    /// The beginning of a client's plan.
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

/// What a client shall do, and what is expected of it.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Who calls.
    pub client: Sdk,
    /// What both agree on.
    pub version: &'static str,
    /// Calls one after the other.
    pub calls: &'a [Sizes],
    /// Then calls at once, a call whose server asks in turn, and a call that is cancelled.
    pub extras: bool,
    /// Whether somebody on the way tells of progress, too.
    pub more_progress: bool,
}

impl Plan<'_> {
    /// Runs the client to its end. An error says what is not as it would be without anything between.
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
        // Others tell of transfers, with other totals or none.
        told.retain(|(_, total)| !self.more_progress || *total == PROGRESS[0].1);
        // A client of npm forgets progress that comes together with the answer.
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

/// Runs a client with a plan to its end: the lines that it tells.
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

/// The end of what a program said.
fn shorten(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let skip = said.chars().count().saturating_sub(2_000);
    said.chars().skip(skip).collect()
}
