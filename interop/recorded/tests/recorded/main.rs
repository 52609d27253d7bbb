//! Checks this project's code against the recorded bytes of the real implementations, a test per format.
//!
//! The recordings are in `vectors/`; `cargo xtask vectors DIR` runs another folder of that layout.
//!
//! A case either gives what was recorded, or differs by a [`Rule`] that says why, or fails.
//! Files that hold recordings of live peers may be `deferred` until their endpoint exists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

mod ahp;
mod cep22;
mod drive;
mod loro;
mod loro_frames;
mod tywrap;
mod vscode;

/// An intended difference from the recorded implementation. It names a kind of case, never one case.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
}

/// `Ok(None)`: as recorded. `Ok(Some(rule))`: differs as that rule says. `Err`: why the case failed.
pub(crate) type Verdict = std::result::Result<Option<&'static Rule>, String>;

/// The outcomes of the cases of one format.
#[derive(Default)]
pub(crate) struct Tally {
    passed: usize,
    left: usize,
    failures: Vec<String>,
    used: BTreeSet<&'static str>,
}

impl Tally {
    pub(crate) fn check(&mut self, file: &str, case: &str, verdict: Verdict) {
        match verdict {
            Ok(rule) => {
                self.passed += 1;
                self.used.extend(rule.map(|rule| rule.name));
            }
            Err(why) => self.failures.push(format!("{file}: {case}: {why}")),
        }
    }

    /// Counts recorded sessions that need a whole endpoint: the tests of the endpoint's crate replay them.
    pub(crate) fn leave_to_tests(&mut self, cases: usize) {
        self.left += cases;
    }
}

/// One format's folder: how its files are run, and how this project may differ.
struct Format {
    name: &'static str,
    rules: &'static [Rule],
    /// Runs one file; `None` if the format has no such file.
    run: fn(file: &str, value: &Value, tally: &mut Tally) -> Option<()>,
}

const FORMATS: &[Format] = &[
    Format {
        name: "ahp",
        rules: ahp::RULES,
        run: ahp::run,
    },
    Format {
        name: "cep22",
        rules: cep22::RULES,
        run: cep22::run,
    },
    Format {
        name: "loro",
        rules: loro::RULES,
        run: loro::run,
    },
    Format {
        name: "tywrap",
        rules: tywrap::RULES,
        run: tywrap::run,
    },
    Format {
        name: "vscode",
        rules: vscode::RULES,
        run: vscode::run,
    },
];

#[test]
fn ahp() -> Result<()> {
    run("ahp")
}

#[test]
fn cep22() -> Result<()> {
    run("cep22")
}

#[test]
fn loro() -> Result<()> {
    run("loro")
}

#[test]
fn tywrap() -> Result<()> {
    run("tywrap")
}

#[test]
fn vscode() -> Result<()> {
    run("vscode")
}

#[test]
fn every_folder_is_a_format() -> Result<()> {
    for folder in entries(&recorded())?.iter().filter(|path| path.is_dir()) {
        let name = file_name(folder);
        ensure!(
            FORMATS.iter().any(|format| format.name == name),
            "{}: no format is called {name}",
            folder.display()
        );
    }
    Ok(())
}

/// The project's own recordings.
fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

/// The recordings to run: our own unless `BREAKBULK_VECTORS` names another folder.
fn recorded() -> PathBuf {
    std::env::var_os("BREAKBULK_VECTORS").map_or_else(own, PathBuf::from)
}

/// Runs one format's folder, and fails if any of its cases did.
///
/// In the project's own folder a rule that no case uses any more is a failure too; another folder
/// may hold fewer kinds of cases.
fn run(name: &str) -> Result<()> {
    let recorded = recorded();
    let own = recorded.canonicalize().ok() == own().canonicalize().ok();
    let format = FORMATS.iter().find(|format| format.name == name);
    let format = format.with_context(|| format!("no format is called {name}"))?;
    let folder = recorded.join(name);
    if !own && !folder.is_dir() {
        println!("{name}: no recordings in {}", recorded.display());
        return Ok(());
    }
    match run_format(format, &folder, own)? {
        0 => Ok(()),
        failed => bail!("{failed} recorded cases failed"),
    }
}

fn run_format(format: &Format, folder: &Path, own: bool) -> Result<usize> {
    let mut tally = Tally::default();
    for path in entries(folder)? {
        let file = file_name(&path);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let ran = serde_json::from_str(&text)
            .ok()
            .and_then(|value: Value| (format.run)(&file, &value, &mut tally));
        if ran.is_none() {
            tally
                .failures
                .push(format!("{file}: not a file of this format"));
        }
    }
    if own {
        let unused = format
            .rules
            .iter()
            .filter(|rule| !tally.used.contains(rule.name));
        let unused: Vec<_> = unused
            .map(|rule| format!("rule {}: no case uses it any more", rule.name))
            .collect();
        tally.failures.extend(unused);
    }
    for failure in &tally.failures {
        println!("  {}: {failure}", format.name);
    }
    for rule in format
        .rules
        .iter()
        .filter(|rule| tally.used.contains(rule.name))
    {
        println!(
            "  {}: differs on purpose: {}: {}",
            format.name, rule.name, rule.reason
        );
    }
    let left = match tally.left {
        0 => String::new(),
        // The variable is set only for another folder than the project's own.
        left => format!(
            ", {left} of sessions left to: BREAKBULK_VECTORS={} cargo nextest run --release -p breakbulk-loro --all-features --test sync recorded",
            folder.parent().unwrap_or(folder).display()
        ),
    };
    println!(
        "{}: {} passed, {} failed{left}",
        format.name,
        tally.passed,
        tally.failures.len()
    );
    Ok(tally.failures.len())
}

fn entries(dir: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}
