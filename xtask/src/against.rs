//! `cargo xtask bench --against COMMIT`: runs the benchmark of the wires as it was at a commit and as it is now,
//! alternately, and prints how much longer it takes now.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::command::{self, cargo, output, root};
use crate::shared::target;

const PROGRAM: &str = "breakbulk-bench";

/// Settings of malloc that keep memory, so that both sides reuse it: fresh memory would measure the system.
const MEMORY: [(&str, &str); 2] = [
    ("MALLOC_MMAP_MAX_", "0"),
    ("MALLOC_TRIM_THRESHOLD_", "17179869184"),
];

/// Seconds by the name of the figure.
type Figures = BTreeMap<String, f64>;

pub(crate) fn run(commit: &str, rounds: usize, wires: &[String]) -> Result<()> {
    ensure!(rounds > 0, "--rounds must be at least 1");
    let folder = target()?.join("against");
    fs::create_dir_all(&folder)?;
    let hash = git(
        &root(),
        &["rev-parse", "--short=12", &format!("{commit}^{{commit}}")],
    )?;
    let hash = hash.trim();
    // A commit does not change: its program is built once.
    let before = folder.join(format!("{PROGRAM}-{hash}"));
    if !before.exists() {
        let tree = Worktree::add(folder.join(hash), hash)?;
        build(&tree.0, &before)?;
    }
    let now = build(&root(), &folder.join(format!("{PROGRAM}-now")))?;
    println!(
        "{rounds} rounds in turns: the time now as a multiple of the time at {hash}: median (least to most)\n"
    );
    let mut ratios: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        // Each side goes first as often as the other.
        let (there, here) = if round % 2 == 0 {
            let there = figures(&before, wires)?;
            (there, figures(&now, wires)?)
        } else {
            let here = figures(&now, wires)?;
            (figures(&before, wires)?, here)
        };
        for (name, seconds) in here {
            if let Some(before) = there.get(&name) {
                ratios.entry(name).or_default().push(seconds / before);
            }
        }
    }
    ensure!(
        !ratios.is_empty(),
        "the two programs have no figure in common"
    );
    let mut medians = Vec::new();
    for (name, ratios) in &mut ratios {
        let [least, median, most] = spread(ratios);
        println!("{name:<32} {median:.2} ({least:.2} to {most:.2})");
        medians.push(median);
    }
    let [least, median, most] = spread(&mut medians);
    println!(
        "\n{} figures: {median:.2} ({least:.2} to {most:.2})",
        medians.len()
    );
    Ok(())
}

/// The least, the median and the largest value.
fn spread(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [
        values[0],
        values[values.len() / 2],
        values[values.len() - 1],
    ]
}

/// Builds the benchmark of a source tree. Both share one target folder, so that dependencies are compiled
/// once; the program is copied before the other one replaces it. The command's package is named too, as in
/// other builds of benchmarks: with other features everything would be compiled again.
fn build(tree: &Path, to: &Path) -> Result<PathBuf> {
    let target = target()?;
    let mut build = cargo(&[
        "build",
        "--quiet",
        "--profile=dist",
        "--package=breakbulk-cli",
        "--package",
        PROGRAM,
        "--bin",
        PROGRAM,
    ]);
    command::run(build.current_dir(tree).env("CARGO_TARGET_DIR", &target))?;
    // The copy gets its name only when it is complete.
    let part = to.with_extension("part");
    fs::copy(target.join("dist").join(PROGRAM), &part)?;
    fs::rename(&part, to)?;
    Ok(to.to_owned())
}

/// Runs a program once.
fn figures(program: &Path, wires: &[String]) -> Result<Figures> {
    let mut command = Command::new(program);
    command.arg("--json").args(wires).envs(MEMORY);
    read(&serde_json::from_str(&output(&mut command)?)?)
}

fn read(printed: &Value) -> Result<Figures> {
    let mut figures = Figures::new();
    for row in printed["rows"].as_array().context("no rows")? {
        let word = |name: &str| row[name].as_str().map(str::to_owned);
        let name = format!(
            "{} {} {:>9} bytes",
            word("wire").context("no wire")?,
            word("content").context("no content")?,
            row["bytes"].as_u64().context("no bytes")?
        );
        figures.insert(name, row["seconds"].as_f64().context("no seconds")?);
    }
    let whole = printed["wholeMessagesPerSecond"].as_object();
    for (wire, rate) in whole.into_iter().flatten() {
        let rate = rate.as_f64().context("no rate")?;
        figures.insert(format!("{wire} whole 256-byte messages"), 1.0 / rate);
    }
    for first in printed["firstFrames"].as_array().into_iter().flatten() {
        let word = |name: &str| first[name].as_str().unwrap_or_default().to_owned();
        let seconds = first["seconds"].as_f64().context("no seconds")?;
        let name = format!("{} {} first frame", word("wire"), word("content"));
        figures.insert(name, seconds);
    }
    Ok(figures)
}

/// A checkout of a commit, which is removed when it is dropped.
struct Worktree(PathBuf);

impl Worktree {
    fn add(folder: PathBuf, commit: &str) -> Result<Self> {
        if folder.exists() {
            // Left behind by a run that was killed.
            drop(Self(folder.clone()));
        }
        let path = folder.display().to_string();
        git(
            &root(),
            &["worktree", "add", "--quiet", "--detach", &path, commit],
        )?;
        Ok(Self(folder))
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        let path = self.0.display().to_string();
        let removed = git(&root(), &["worktree", "remove", "--force", &path]);
        if let Err(error) = removed {
            eprintln!("{path} is left behind: {error:#}");
        }
    }
}

fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    output(Command::new("git").args(arguments).current_dir(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_benchmark_prints_is_read_by_name() {
        let printed = serde_json::json!({
            "rows": [{ "wire": "ahp", "content": "CJK", "bytes": 1000, "seconds": 0.5 }],
            "wholeMessagesPerSecond": { "ahp": 4.0 },
            "firstFrames": [{ "wire": "ahp", "content": "CJK", "seconds": 2.0 }],
        });
        let figures = read(&printed).unwrap();
        let figures: Vec<_> = figures
            .iter()
            .map(|(name, value)| (&**name, *value))
            .collect();
        assert_eq!(
            figures,
            [
                ("ahp CJK      1000 bytes", 0.5),
                ("ahp CJK first frame", 2.0),
                ("ahp whole 256-byte messages", 0.25)
            ]
        );
        assert_eq!(spread(&mut [3.0, 1.0, 2.0]), [1.0, 2.0, 3.0]);
    }
}
