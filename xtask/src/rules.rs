//! What may depend on what, and under which licenses.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{cargo, output, root};

/// The crates of the protocols.
pub(crate) const PROTOCOLS: [&str; 5] = [
    "breakbulk-ahp",
    "breakbulk-contextvm",
    "breakbulk-loro",
    "breakbulk-tywrap",
    "breakbulk-vscode",
];

/// What a runtime or a network brings along: none of it stands below what is pure.
const IMPURE: [&str; 8] = [
    "axum",
    "breakbulk-net",
    "breakbulk-testkit",
    "futures-util",
    "hyper",
    "nostr-sdk",
    "reqwest",
    "tokio",
];

/// Words that a room must not know, in code and comments alike, whatever their case.
const FORMATS: [&str; 9] = [
    "ahp",
    "batchid",
    "cep22",
    "contextvm",
    "groupid",
    "loro",
    "progresstoken",
    "tywrap",
    "vscode",
];
const SPOKEN: [&str; 4] = ["jsonrpc", "mcp", "peerid", "clientid"];

pub(crate) fn check() -> Result<()> {
    only("breakbulk-link", &["breakbulk-link", "bytes"])?;
    let above_message = ["breakbulk-link", "breakbulk-wire"];
    never(
        "breakbulk-message",
        &[],
        &[&IMPURE[..], &above_message].concat(),
    )?;
    never("breakbulk-wire", &[], &IMPURE)?;
    for protocol in PROTOCOLS {
        never(protocol, &["--no-default-features"], &IMPURE)?;
        let others: Vec<&str> = PROTOCOLS.into_iter().filter(|it| *it != protocol).collect();
        let above = [
            "breakbulk",
            "breakbulk-gateway",
            "breakbulk-cli",
            "breakbulk-testkit",
        ];
        never(
            protocol,
            &["--all-features"],
            &[&others[..], &above].concat(),
        )?;
    }
    let above = ["breakbulk", "breakbulk-cli", "breakbulk-testkit"];
    never("breakbulk-gateway", &["--all-features"], &above)?;
    never(
        "breakbulk",
        &["--all-features"],
        &["breakbulk-cli", "breakbulk-testkit"],
    )?;
    never("breakbulk-net", &["--all-features"], &PROTOCOLS)?;
    words("crates/link/src", &FORMATS)?;
    words("crates/net/src", &[&FORMATS[..], &SPOKEN].concat())?;
    dist_is_optimised()?;
    licenses_and_bans()
}

/// All that may stand below a crate.
fn only(name: &str, only: &[&str]) -> Result<()> {
    let extra: Vec<_> = tree(name, &[])?
        .into_iter()
        .filter(|below| !only.contains(&below.as_str()))
        .collect();
    if !extra.is_empty() {
        let (extra, only) = (extra.join(", "), only.join(", "));
        bail!("{name} depends on {extra}; it may depend on {only} alone");
    }
    println!("{name}: {}", only.join(", "));
    Ok(())
}

/// What must not stand below a crate with these features.
fn never(name: &str, features: &[&str], never: &[&str]) -> Result<()> {
    let tree = tree(name, features)?;
    if let Some(found) = never.iter().find(|below| tree.contains(**below)) {
        bail!("{name} {} depends on {found}", features.join(" "));
    }
    println!(
        "{name} {}: none of {}",
        features.join(" "),
        never.join(", ")
    );
    Ok(())
}

/// No word of these in the files of a folder. Names of our own crates are no words of a format.
fn words(folder: &str, never: &[&str]) -> Result<()> {
    let (mut files, mut folders) = (0, vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            files += 1;
            let text = std::fs::read_to_string(&path)?;
            for (number, line) in text.lines().enumerate() {
                let found = line
                    .split(|c: char| !c.is_alphanumeric() && c != '-')
                    .map(|word| word.replace('-', "").to_lowercase())
                    .find(|word| never.contains(&word.as_str()));
                if let Some(word) = found {
                    bail!(
                        "{}:{}: {word:?} is a word of one format: {}",
                        path.display(),
                        number + 1,
                        line.trim()
                    );
                }
            }
        }
    }
    println!("{folder}: {files} files, none of {}", never.join(", "));
    Ok(())
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

/// The names of all crates that a crate needs to run, its own among them.
fn tree(name: &str, features: &[&str]) -> Result<BTreeSet<String>> {
    let arguments = [
        "tree", "--edges", "normal", "--prefix", "none", "--format", "{p}",
    ];
    let text = output(cargo(&arguments).args(["--package", name]).args(features))?;
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
