//! The rule for `cargo`: what would be compiled or tested is looked up instead.

use std::path::PathBuf;

use crate::root;

/// The program itself, run by cargo: run without it.
const PROGRAM: &str = "cargo run --release -- ";

/// `None` if the line is not of cargo; else what is run in its place, which may be empty.
///
/// # Errors
/// Why the command does not exist.
pub(crate) fn checked(line: &str) -> Result<Option<String>, String> {
    let line = line.split(" #").next().unwrap_or_default().trim();
    if let Some(rest) = line.strip_prefix(PROGRAM) {
        return Ok(Some(format!("breakbulk {rest}")));
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["cargo", command, rest @ ..] = &words[..] else {
        return Ok(None);
    };
    let value = |names: &[&str]| {
        let at = rest.iter().position(|word| names.contains(word))?;
        rest.get(at + 1).copied()
    };
    match *command {
        "xtask" => xtask(rest)?,
        "install" => exists(&format!(
            "{}/Cargo.toml",
            value(&["--path"]).ok_or("no --path")?
        ))?,
        "test" | "run" | "check" | "build" => {
            let package = value(&["-p", "--package"]);
            let folder = package.map(folder).transpose()?;
            for target in every(rest, "--test") {
                let tests = folder.as_ref().ok_or("--test without -p")?.join("tests");
                let found = [format!("{target}.rs"), format!("{target}/main.rs")];
                if !found.iter().any(|path| tests.join(path).exists()) {
                    return Err(format!("there is no test {target:?}"));
                }
            }
            for example in every(rest, "--example") {
                let folder = folder.as_ref().ok_or("--example without -p")?;
                let path = folder.join(format!("examples/{example}.rs"));
                if !path.exists() {
                    return Err(format!("there is no example {example:?}"));
                }
            }
            if package.is_none() && *command != "build" {
                return Err("it names no package".to_owned());
            }
        }
        _ => return Err("no rule for this command of cargo".to_owned()),
    }
    if let Some(profile) = value(&["--profile"]) {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        if !manifest.contains(&format!("[profile.{profile}]")) {
            return Err(format!("there is no profile {profile:?}"));
        }
    }
    Ok(Some(String::new()))
}

/// The values of an option that may come several times.
fn every<'a>(words: &'a [&'a str], option: &'a str) -> impl Iterator<Item = &'a str> {
    let pairs = words.windows(2);
    pairs
        .filter(move |pair| pair[0] == option)
        .map(|pair| pair[1])
}

/// `cargo xtask COMMAND [PART]`: the command is one of its enum, the part is named in its file.
fn xtask(words: &[&str]) -> Result<(), String> {
    let Some(command) = words.first() else {
        return Ok(());
    };
    let source = |name: &str| std::fs::read_to_string(root().join("xtask/src").join(name));
    let commands = source("main.rs").unwrap();
    let is_command = |line: &str| {
        let name = line.trim().trim_end_matches([',', ' ', '{']);
        name.to_lowercase() == command.replace('-', "")
    };
    if !commands.lines().any(is_command) {
        return Err(format!("there is no cargo xtask {command}"));
    }
    let Some(part) = words.get(1).filter(|word| !word.starts_with('-')) else {
        return Ok(());
    };
    let named = source(&format!("{command}.rs")).unwrap_or_default();
    match named.contains(&format!("{part:?}")) || root().join(part).exists() {
        true => Ok(()),
        false => Err(format!("cargo xtask {command} has no {part:?}")),
    }
}

/// The folder of a package.
fn folder(package: &str) -> Result<PathBuf, String> {
    let name = package.strip_prefix("breakbulk-").unwrap_or(package);
    ["crates", "interop", ""]
        .map(|above| root().join(above).join(name))
        .into_iter()
        .find(|folder| folder.join("Cargo.toml").exists())
        .ok_or_else(|| format!("there is no package {package:?}"))
}

fn exists(path: &str) -> Result<(), String> {
    match root().join(path).exists() {
        true => Ok(()),
        false => Err(format!("there is no {path}")),
    }
}

#[test]
fn commands_are_looked_up() {
    for (line, expected) in [
        ("breakbulk demo", Ok(None)),
        (
            "cargo run --release -- demo ahp",
            Ok(Some("breakbulk demo ahp")),
        ),
        ("cargo xtask test", Ok(Some(""))),
        ("cargo xtask interop mcp", Ok(Some(""))),
        ("cargo xtask interop nothing", Err("has no \"nothing\"")),
        ("cargo xtask dance", Err("there is no cargo xtask dance")),
        (
            "cargo install --profile dist --path crates/cli   # puts it on the PATH",
            Ok(Some("")),
        ),
        (
            "cargo install --profile fast --path crates/cli",
            Err("no profile"),
        ),
        (
            "cargo test --release -p breakbulk-link --test memory --test hostile",
            Ok(Some("")),
        ),
        (
            "cargo test --release -p breakbulk-link --test nothing",
            Err("no test \"nothing\""),
        ),
        (
            "cargo run --release -p breakbulk-loro --example nothing",
            Err("no example"),
        ),
        ("cargo test -p breakbulk-moon", Err("no package")),
        ("cargo publish", Err("no rule")),
    ] {
        match (checked(line), expected) {
            (Ok(checked), Ok(expected)) => assert_eq!(checked.as_deref(), expected, "{line}"),
            (Err(why), Err(part)) => assert!(why.contains(part), "{line}: {why}"),
            (checked, expected) => panic!("{line}: {checked:?} instead of {expected:?}"),
        }
    }
}
