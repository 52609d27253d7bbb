//! Runs npm's `@modelcontextprotocol/conformance` against a server on npm's SDK, and reads its verdicts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use interop_ahp::program::HostProgram;
use serde::Deserialize;
use tokio::process::Command;
use tokio::time::timeout;

/// The revisions of MCP whose requirements are checked, each at its own version of the protocol.
pub const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// The time limit for all scenarios of a revision, which take a few seconds.
const PATIENCE: Duration = Duration::from_secs(240);

/// The folder of a scenario's results is named with this prefix, the scenario, and the time of the run.
const RESULT: &str = "server-";
const TIME: &str = "-2026-11-16T14-08-15-722Z";

/// The status of a check that only reports something.
const INFO: &str = "INFO";

/// The names of a scenario's checks by their status.
pub type Checks = BTreeMap<String, Vec<String>>;

/// The checks of each scenario.
pub type Scenarios = BTreeMap<String, Checks>;

/// The scenarios of each revision.
pub type Verdicts = BTreeMap<String, Scenarios>;

/// Starts the server, which serves both eras on one URL.
pub async fn server() -> Result<HostProgram> {
    let script = folder().join("conformance/server.mjs");
    HostProgram::start("node", &[script]).await
}

/// Checks all requirements of each revision at the server of a URL.
pub async fn run(url: &str) -> Result<Verdicts> {
    let mut verdicts = Verdicts::new();
    for revision in REVISIONS {
        let scenarios = run_revision(url, revision).await;
        let scenarios = scenarios.with_context(|| format!("requirements {revision} of {url}"))?;
        verdicts.insert(revision.to_owned(), scenarios);
    }
    Ok(verdicts)
}

async fn run_revision(url: &str, revision: &str) -> Result<Scenarios> {
    let packages = packages();
    let results = tempfile::tempdir()?;
    // The package needs a newer node than Debian has: npm installed one in its folder.
    let mut command = Command::new(packages.join(".bin/node"));
    command
        .arg(packages.join("@modelcontextprotocol/conformance/dist/index.js"))
        .args(["server", "--url", url, "--requirements", revision, "-o"])
        .arg(results.path());
    let run = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(PATIENCE, run).await.context("it hangs")??;
    let scenarios = read(results.path())?;
    ensure!(
        !scenarios.is_empty(),
        "no results, {}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(scenarios)
}

#[derive(Deserialize)]
struct Check {
    id: String,
    status: String,
}

fn read(results: &Path) -> Result<Scenarios> {
    let mut scenarios = Scenarios::new();
    for entry in std::fs::read_dir(results)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let scenario = name.strip_prefix(RESULT);
        let scenario = scenario.and_then(|name| name.get(..name.len().checked_sub(TIME.len())?));
        let Some(scenario) = scenario else {
            bail!("{name} is no result of a scenario");
        };
        let text = std::fs::read_to_string(entry.path().join("checks.json"))?;
        let found: Vec<Check> = serde_json::from_str(&text).with_context(|| name.clone())?;
        let mut checks = Checks::new();
        for check in found.into_iter().filter(|check| check.status != INFO) {
            checks.entry(check.status).or_default().push(check.id);
        }
        checks.values_mut().for_each(|ids| ids.sort());
        scenarios.insert(scenario.to_owned(), checks);
    }
    Ok(scenarios)
}

/// How the found verdicts differ from the expected ones, a line for each scenario.
pub fn differences(expected: &Verdicts, found: &Verdicts) -> Vec<String> {
    let mut lines = Vec::new();
    for revision in REVISIONS {
        let none = Scenarios::new();
        let [expected, found] =
            [expected, found].map(|verdicts| verdicts.get(revision).unwrap_or(&none));
        let names = expected
            .keys()
            .chain(found.keys().filter(|name| !expected.contains_key(*name)));
        for name in names {
            let (expected, found) = (expected.get(name), found.get(name));
            if expected != found {
                lines.push(format!("{revision} {name}: {}", changed(expected, found)));
            }
        }
    }
    lines
}

/// The checks whose status differs.
fn changed(expected: Option<&Checks>, found: Option<&Checks>) -> String {
    let list = |checks: Option<&Checks>| -> Vec<String> {
        let checks = checks.into_iter().flatten();
        checks
            .flat_map(|(status, ids)| ids.iter().map(move |id| format!("{id} {status}")))
            .collect()
    };
    let (mut missing, mut more) = (list(expected), Vec::new());
    for check in list(found) {
        match missing.iter().position(|expected| *expected == check) {
            Some(index) => drop(missing.remove(index)),
            None => more.push(check),
        }
    }
    format!("[{}] became [{}]", missing.join(", "), more.join(", "))
}

/// The folder of the packages that npm installed.
pub(crate) fn packages() -> PathBuf {
    folder().join("node_modules")
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_came_to_something_else_is_named() {
        let verdicts = |text: &str| serde_json::from_str::<Verdicts>(text).unwrap();
        let one = verdicts(r#"{"2025-11-25": {"ping": {"SUCCESS": ["a", "b", "b"]}}}"#);
        let other =
            verdicts(r#"{"2025-11-25": {"ping": {"SUCCESS": ["a", "b"], "FAILURE": ["b"]}}}"#);
        let none = Verdicts::new();
        for (expected, found, lines) in [
            (&one, &one, vec![]),
            (
                &one,
                &other,
                vec!["2025-11-25 ping: [b SUCCESS] became [b FAILURE]"],
            ),
            (
                &one,
                &none,
                vec!["2025-11-25 ping: [a SUCCESS, b SUCCESS, b SUCCESS] became []"],
            ),
            (
                &none,
                &other,
                vec!["2025-11-25 ping: [] became [b FAILURE, a SUCCESS, b SUCCESS]"],
            ),
        ] {
            assert_eq!(differences(expected, found), lines);
        }
    }
}
