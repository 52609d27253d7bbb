//! What may depend on what, and under which licenses.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{cargo, output, root};

/// A crate, and all that may stand below it (by name) or must not.
const ONLY: &[(&str, &[&str])] = &[("breakbulk-link", &["breakbulk-link", "bytes"])];
const NEVER: &[(&str, &[&str])] = &[
    (
        "breakbulk-message",
        &["tokio", "breakbulk-link", "breakbulk-wire", "breakbulk-net"],
    ),
    ("breakbulk-wire", &["tokio", "breakbulk-net"]),
];

pub(crate) fn check() -> Result<()> {
    for (name, only) in ONLY {
        let extra: Vec<_> = tree(name)?
            .into_iter()
            .filter(|below| !only.contains(&below.as_str()))
            .collect();
        if !extra.is_empty() {
            bail!(
                "{name} depends on {}; it may depend on {} alone",
                extra.join(", "),
                only.join(", ")
            );
        }
        println!("{name}: {}", only.join(", "));
    }
    for (name, never) in NEVER {
        let tree = tree(name)?;
        if let Some(found) = never.iter().find(|below| tree.contains(**below)) {
            bail!("{name} depends on {found}");
        }
        println!("{name}: none of {}", never.join(", "));
    }
    dist_is_optimised()?;
    licenses_and_bans()
}

/// A profile inherits what another one says of single packages, so `dist` must name again what `release` spares itself.
fn dist_is_optimised() -> Result<()> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml"))?;
    let levels = |profile: &str| -> Result<BTreeMap<&str, &str>> {
        let table = format!("[profile.{profile}.package]\n");
        let (_, rest) = manifest
            .split_once(&table)
            .with_context(|| format!("Cargo.toml: no {}", table.trim()))?;
        Ok(rest
            .lines()
            .take_while(|line| !line.starts_with('['))
            .filter_map(|line| line.split_once(".opt-level = "))
            .collect())
    };
    let (release, dist) = (levels("release")?, levels("dist")?);
    for (package, level) in &release {
        let level = dist.get(package).unwrap_or(level);
        if *level != "3" {
            bail!("Cargo.toml: {package} has opt-level {level} in the profile dist");
        }
    }
    println!("dist: {} packages of release at opt-level 3", release.len());
    Ok(())
}

/// The names of all crates that a crate needs to run.
fn tree(name: &str) -> Result<BTreeSet<String>> {
    let text = output(&mut cargo(&[
        "tree",
        "--package",
        name,
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]))?;
    Ok(text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect())
}

fn licenses_and_bans() -> Result<()> {
    let deny = std::fs::read_to_string(root().join("deny.toml"))?;
    let allowed = strings_of(&deny, "allow = [").context("deny.toml: no licenses.allow")?;
    let banned = strings_of(&deny, "\ndeny = [").context("deny.toml: no bans.deny")?;
    let metadata: Value = serde_json::from_str(&output(&mut cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--all-features",
    ]))?)?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata: no packages")?;
    let mut wrong = BTreeMap::new();
    for package in packages {
        let (name, license) = (
            package["name"].as_str().unwrap_or(""),
            package["license"].as_str().unwrap_or(""),
        );
        // One of the alternatives must do; all parts of it.
        let fine = license
            .split(" OR ")
            .flat_map(|part| part.split('/'))
            .any(|alternative| {
                alternative.split(" AND ").all(|part| {
                    allowed
                        .iter()
                        .any(|one| one == part.trim_matches(['(', ')', ' ']))
                })
            });
        if !fine {
            wrong.insert(
                name,
                format!("license {license:?} is not among those of deny.toml"),
            );
        }
        if banned.iter().any(|one| one == name) {
            wrong.insert(name, "banned by deny.toml".to_owned());
        }
    }
    if !wrong.is_empty() {
        bail!("{wrong:#?}");
    }
    println!(
        "{} packages: licenses and bans of deny.toml hold",
        packages.len()
    );
    Ok(())
}

/// The quoted strings of a list in a TOML file, from its opening to its end.
fn strings_of(text: &str, opening: &str) -> Option<Vec<String>> {
    let list = text.split_once(opening)?.1;
    let list = list.split_once("\n]").map_or(list, |(list, _)| list);
    let list = list.split_once("\n[").map_or(list, |(list, _)| list);
    Some(
        list.split('"')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect(),
    )
}
