//! Checks the dependency rules between crates, forbidden words, the licenses of dependencies, and that
//! the tables of the documents name tests that exist.

mod decisions;
mod named_tests;
mod tables;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
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

/// Crates of a runtime or a network, on which pure crates must not depend.
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

/// Names from single formats, which general crates must not contain, in code or comments, in any case.
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

/// Names from protocols, which `net` must not contain either.
const PROTOCOL_WORDS: [&str; 4] = ["jsonrpc", "mcp", "peerid", "clientid"];

pub(crate) fn check() -> Result<()> {
    only("breakbulk-link", &["breakbulk-link", "bytes"])?;
    only(
        "breakbulk-escape",
        &["breakbulk-escape", "base64-turbo", "cpufeatures"],
    )?;
    unsafe_in_one_crate()?;
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
    no_words("crates/link/src", &FORMATS)?;
    no_words("crates/net/src", &[&FORMATS[..], &PROTOCOL_WORDS].concat())?;
    dist_is_optimised()?;
    decisions::check()?;
    tables::check()?;
    licenses_and_bans()
}

/// Checks that a crate depends only on these crates.
fn only(name: &str, only: &[&str]) -> Result<()> {
    let extra: Vec<_> = tree(name, &[])?
        .into_iter()
        .filter(|below| !only.contains(&below.as_str()))
        .collect();
    if !extra.is_empty() {
        let (extra, only) = (extra.join(", "), only.join(", "));
        bail!("{name} depends on {extra}; it may depend only on {only}");
    }
    println!("{name}: {}", only.join(", "));
    Ok(())
}

/// Checks that a crate with these features does not depend on these crates.
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

/// Checks that the files of a folder contain none of these words. The names of our own crates, such as
/// `breakbulk-ahp`, are different words.
fn no_words(folder: &str, never: &[&str]) -> Result<()> {
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

/// Checks that no crate but `breakbulk-escape` lets `unsafe` through: all others have the workspace's lints.
fn unsafe_in_one_crate() -> Result<()> {
    let mut strict = 0;
    for entry in std::fs::read_dir(root().join("crates"))? {
        let folder = entry?.path();
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml"))?;
        let inherits = manifest.contains("[lints]\nworkspace = true");
        let escape = folder.ends_with("escape");
        ensure!(
            inherits != escape,
            "{}: only crates/escape may have lints of its own",
            folder.display()
        );
        strict += usize::from(inherits);
    }
    let workspace = std::fs::read_to_string(root().join("Cargo.toml"))?;
    ensure!(
        workspace.contains("\nunsafe_code = \"deny\"\n"),
        "Cargo.toml: [workspace.lints.rust] does not deny unsafe_code"
    );
    println!("{strict} crates deny unsafe code; breakbulk-escape has some");
    Ok(())
}

/// This project's crates that touch every byte, or run for each frame.
const HOT: [&str; 5] = [
    "breakbulk-escape",
    "breakbulk-link",
    "breakbulk-message",
    "breakbulk-net",
    "breakbulk-wire",
];

/// Checks that `dist` optimises these crates: a profile inherits settings of single packages, so it must
/// come from `dev`, and `dev` must have none.
fn dist_is_optimised() -> Result<()> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml"))?;
    let table = |name: &str| -> Result<Vec<&str>> {
        let (_, table) = manifest
            .split_once(&format!("[{name}]\n"))
            .with_context(|| format!("Cargo.toml: no [{name}]"))?;
        let lines = table.lines();
        Ok(lines.take_while(|line| !line.starts_with('[')).collect())
    };
    let dist = table("profile.dist")?;
    for wanted in ["inherits = \"dev\"", "opt-level = 3"] {
        ensure!(
            dist.contains(&wanted),
            "Cargo.toml: [profile.dist] does not say {wanted}"
        );
    }
    ensure!(
        !manifest.contains("[profile.dev.package"),
        "Cargo.toml: [profile.dev.package…] lowers packages in the profile dist"
    );
    let single = table("profile.dist.package")?;
    for hot in HOT {
        ensure!(
            !single.iter().any(|line| line.starts_with(hot)),
            "Cargo.toml: [profile.dist.package] lowers {hot}, which runs for each frame"
        );
    }
    println!("dist: {} at opt-level 3", HOT.join(", "));
    Ok(())
}

/// The names of all crates that a crate depends on at run time, including itself.
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
        if !is_allowed(license, &allowed) {
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

/// Whether a license expression allows what the allowed licenses allow: one of its alternatives, with all parts.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.trim();
    let alternatives = split_outside(expression, &[" OR ", "/"]);
    if alternatives.len() > 1 {
        return alternatives.iter().any(|part| is_allowed(part, allowed));
    }
    let parts = split_outside(expression, &[" AND "]);
    if parts.len() > 1 {
        return parts.iter().all(|part| is_allowed(part, allowed));
    }
    let inner = expression.strip_prefix('(');
    match inner.and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => is_allowed(inner, allowed),
        None => allowed.iter().any(|one| one == expression),
    }
}

/// The parts of an expression between these words, where they stand outside of parentheses.
fn split_outside<'a>(expression: &'a str, words: &[&str]) -> Vec<&'a str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0);
    for (at, character) in expression.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        let rest = &expression[at..];
        if depth == 0
            && at >= begin
            && let Some(word) = words.iter().find(|word| rest.starts_with(**word))
        {
            parts.push(&expression[begin..at]);
            begin = at + word.len();
        }
    }
    parts.push(&expression[begin..]);
    parts
}

/// The quoted strings of a list in a TOML file that begins with `opening`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_license_must_be_allowed() {
        let allowed = ["MIT", "Zlib"].map(str::to_owned);
        for (expression, expected) in [
            ("MIT", true),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0/MIT", true),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR Apache-2.0) AND GPL-3.0", false),
            ("(MIT OR Apache-2.0) AND Zlib", true),
            ("GPL-3.0 OR (MIT AND (Zlib OR GPL-3.0))", true),
            ("", false),
        ] {
            assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
        }
    }
}
