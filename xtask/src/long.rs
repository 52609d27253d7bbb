//! `cargo xtask long`: runs the tests that take too long for every change.

use anyhow::{Result, bail};

use crate::command::{self, cargo, root};
use crate::steps::Steps;
use crate::{carry, fuzz, installable, interop, packages, shared};

/// The most bytes that the published program may have; it had 23,719,032 on 2026-11-19, and 20 MB are the aim.
const PROGRAM_MAX: u64 = 25_000_000;

/// How many seeds each property test tries.
const SEEDS: &str = "20000";

/// How many seeds the test of faults between a host and a client tries.
const FAULT_SEEDS: &str = "200000";

const PARTS: [&str; 11] = [
    "seeds",
    "carry",
    "ahp",
    "tywrap",
    "mcp",
    "contextvm",
    "loro",
    "fleet",
    "soak",
    "package",
    "fuzz",
];

/// How often a sync server is killed.
const KILLS: &str = "20";

/// For how many seconds members and NATS servers are killed, and how often one of them is.
const FLEET: [(&str, &str); 2] = [
    ("BREAKBULK_FLEET_SECONDS", "600"),
    ("BREAKBULK_FLEET_KILL_SECONDS", "10"),
];

/// How long the soak takes.
const SOAK_SECONDS: &str = "1800";

/// The size of the text that is sent to Python and back.
const ECHO_BYTES: &str = "200000000";

pub(crate) fn run(name: Option<&str>, fuzz_seconds: u64, fuzz_target: Option<&str>) -> Result<()> {
    if let Some(name) = name
        && !PARTS.contains(&name)
    {
        let parts = PARTS.join(", ");
        bail!("{name} is no part of the long form; it is one of {parts}");
    }
    let mut steps = Steps::new();
    let wanted = |part: &str| name.is_none_or(|name| name == part);
    if wanted("seeds") {
        steps.step("all seeds", || {
            let tests = [
                "test",
                "--release",
                "--package",
                "breakbulk-wire",
                "--package",
                "breakbulk-link",
                "--package",
                "breakbulk-message",
                "--all-features",
            ];
            command::run(cargo(&tests).env("BREAKBULK_SEEDS", SEEDS))
        })?;
    }
    if wanted("carry") {
        steps.step("round trips and memory, big sizes", || {
            carry::run(carry::Form::Long)
        })?;
    }
    if wanted("ahp") {
        steps.step("a host and a client, many faults", || {
            let mut tests = shared::tests("breakbulk-ahp", &["faults"]);
            command::run(tests.env("BREAKBULK_FAULT_SEEDS", FAULT_SEEDS))
        })?;
        steps.step("a host and a client at full size", || {
            let mut tests = shared::tests("interop-ahp", &["long"]);
            command::run(&mut tests)
        })?;
    }
    if wanted("tywrap") {
        steps.step("a large text to Python and back", || {
            let mut tests = shared::tests("breakbulk-tywrap", &["large"]);
            command::run(tests.env("BREAKBULK_ECHO_BYTES", ECHO_BYTES))
        })?;
    }
    if wanted("mcp") {
        steps.step("every MCP client with every server", interop::mcp_long)?;
    }
    if wanted("contextvm") {
        steps.step("ContextVM's own crate, and a bad relay", contextvm)?;
    }
    if wanted("loro") {
        steps.step("a sync server, killed again and again", || {
            let mut tests = shared::tests("breakbulk-cli", &["loro"]);
            tests.arg("crash");
            command::run(tests.env("BREAKBULK_KILLS", KILLS))
        })?;
        steps.step(
            "a browser and two Rust peers, many cuts; 20 MB to and from npm's Repo",
            interop::loro_long,
        )?;
    }
    if wanted("fleet") {
        steps.step("AHP hosts that share a log, killed for ten minutes", || {
            let mut tests = shared::tests("interop-ahp", &["fleet"]);
            command::run(tests.envs(FLEET))
        })?;
        steps.step("sync servers that share documents, the same", || {
            let mut tests = shared::tests("breakbulk-cli", &["loro"]);
            tests.arg("fleet");
            command::run(tests.envs(FLEET))
        })?;
    }
    if wanted("soak") {
        steps.step(
            "200 clients, cuts, reloads, restarts for half an hour",
            soak,
        )?;
    }
    if wanted("package") {
        steps.step("packages, each built from what is published", || {
            packages::run(true)
        })?;
        steps.step("packages for people without a compiler", || {
            let build = [
                "build",
                "--quiet",
                "--profile",
                "dist",
                "--package",
                "breakbulk-cli",
            ];
            command::run(&mut cargo(&build))?;
            let program = shared::target()?.join("dist/breakbulk");
            let size = std::fs::metadata(&program)?.len();
            println!("the program has {size} bytes");
            anyhow::ensure!(size <= PROGRAM_MAX, "it may have {PROGRAM_MAX}");
            installable::check(&program)
        })?;
    }
    if wanted("fuzz") {
        steps.step("fuzzing", || {
            fuzz::run(
                fuzz::Mode::Long {
                    seconds: fuzz_seconds,
                },
                fuzz_target,
            )
        })?;
    }
    Ok(())
}

/// Runs the soak test, and copies its picture to the documents.
fn soak() -> Result<()> {
    let mut tests = shared::tests("breakbulk-cli", &["soak"]);
    // A value that is set already makes the run shorter or longer.
    if std::env::var_os("BREAKBULK_SOAK_SECONDS").is_none() {
        tests.env("BREAKBULK_SOAK_SECONDS", SOAK_SECONDS);
    }
    command::run(&mut tests)?;
    let picture = shared::target()?.join("tmp/soak/soak.svg");
    std::fs::copy(picture, root().join("docs/soak.svg"))?;
    Ok(())
}

/// The crate `contextvm-sdk` (in a workspace of its own) and the SDK from npm, against our client
/// and server.
fn contextvm() -> Result<()> {
    interop::install("contextvm")?;
    let target = shared::target()?.join("contextvm-sdk");
    let build = [
        "build",
        "--release",
        "--locked",
        "--manifest-path",
        "interop/contextvm-sdk/Cargo.toml",
        "--target-dir",
    ];
    command::run(cargo(&build).arg(&target))?;
    let name = format!("contextvm-sdk-peer{}", std::env::consts::EXE_SUFFIX);
    let mut tests = shared::tests("interop-contextvm", &["long"]);
    let peer = target.join("release").join(name);
    command::run(tests.env("CONTEXTVM_SDK_PEER", peer))
}
