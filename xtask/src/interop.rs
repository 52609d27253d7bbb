//! `cargo xtask interop`: live tests against the real peers.

mod npm;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::command::{self, cargo, root};

/// What runs the live tests of a protocol; none where there are none yet.
type Live = Option<fn() -> Result<()>>;

/// All protocols.
const PROTOCOLS: [(&str, Live); 6] = [
    ("ahp", Some(ahp)),
    ("mcp", Some(mcp)),
    ("contextvm", None),
    ("tywrap", None),
    ("loro", None),
    ("vscode", Some(vscode)),
];

pub(crate) fn run(name: Option<&str>) -> Result<()> {
    let Some(name) = name else {
        for (name, live) in PROTOCOLS {
            match (live, unavailable(name)) {
                (Some(live), None) => live()?,
                (Some(_), Some(why)) => println!("{name} is skipped: {why}"),
                (None, _) => {}
            }
        }
        let missing = PROTOCOLS.iter().filter(|(_, live)| live.is_none());
        let missing: Vec<_> = missing.map(|(name, _)| *name).collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            println!("no live test exists yet: {missing}");
        }
        return Ok(());
    };
    match PROTOCOLS.iter().find(|(known, _)| *known == name) {
        Some((_, Some(live))) => live(),
        Some((_, None)) => bail!("{name} has no live test yet"),
        None => {
            let names = PROTOCOLS.map(|(name, _)| name).join(", ");
            bail!("{name} is no protocol; it is one of {names}")
        }
    }
}

/// Live tests that cannot run here, each with its reason.
pub(crate) fn skipped() -> Vec<String> {
    PROTOCOLS
        .iter()
        .filter_map(|(name, _)| Some(format!("live tests of {name}: {}", unavailable(name)?)))
        .collect()
}

/// Why a protocol's peers cannot run here; none if they can.
fn unavailable(name: &str) -> Option<String> {
    match name {
        "mcp" | "vscode" => npm::unavailable(),
        _ => None,
    }
}

/// The real client of the crates `ahp` and `ahp-ws` against our host, by all ways.
fn ahp() -> Result<()> {
    tests("interop-ahp", &["real_client", "protocol_errors"])
}

/// A server and a client of npm, between two gateways.
fn mcp() -> Result<()> {
    install("mcp")?;
    tests("interop-mcp", &["published_server"])
}

/// VSCode's own RPCProtocol in node against our endpoint, by all carriers.
fn vscode() -> Result<()> {
    install("vscode")?;
    tests("interop-vscode", &["real_node"])
}

/// What a protocol's live tests need of npm.
fn install(name: &str) -> Result<()> {
    if let Some(why) = npm::unavailable() {
        bail!("{name}: {why}");
    }
    npm::install(&root().join("interop").join(name))
}

/// Runs those test files of a package, with the program beside them.
fn tests(package: &str, files: &[&str]) -> Result<()> {
    let program = program()?;
    let tests = files.iter().flat_map(|file| ["--test", file]);
    let package = ["--release", "--package", package];
    let mut command = if command::has("nextest") {
        let mut command = cargo(&["nextest", "run"]);
        command.args(package).args(tests);
        // One at a time: each is large, and their times are told.
        let options = ["--run-ignored", "all", "--test-threads", "1"];
        command.args(options);
        command.args(["--success-output", "immediate"]);
        command
    } else {
        let mut command = cargo(&["test"]);
        command.args(package).args(tests);
        command.args([
            "--",
            "--include-ignored",
            "--nocapture",
            "--test-threads",
            "1",
        ]);
        command
    };
    command::run(command.env("BREAKBULK_BIN", program))
}

/// The program, built as users have it, for tests that run it beside them.
pub(crate) fn program() -> Result<PathBuf> {
    command::run(&mut cargo(&[
        "build",
        "--release",
        "--package",
        "breakbulk-cli",
    ]))?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let name = format!("breakbulk{}", std::env::consts::EXE_SUFFIX);
    // Tests run in their own folder.
    Ok(std::path::absolute(target.join("release").join(name))?)
}
