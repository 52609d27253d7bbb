//! `cargo xtask long`: what takes too long for every change.

use anyhow::{Result, bail};

use crate::command::{self, cargo};
use crate::test::step;
use crate::{carry, fuzz, interop};

/// Seeds of each property test.
const SEEDS: &str = "20000";

/// Seeds of the faults between a host and a client.
const FAULT_SEEDS: &str = "2000";

const PARTS: [&str; 7] = [
    "seeds",
    "carry",
    "ahp",
    "tywrap",
    "contextvm",
    "loro",
    "fuzz",
];

/// How often a sync server is killed.
const KILLS: &str = "20";

/// Bytes of the text that goes to Python and back.
const ECHO_BYTES: &str = "200000000";

pub(crate) fn run(name: Option<&str>, fuzz_seconds: u64, fuzz_target: Option<&str>) -> Result<()> {
    if let Some(name) = name
        && !PARTS.contains(&name)
    {
        let parts = PARTS.join(", ");
        bail!("{name} is no part of the long form; it is one of {parts}");
    }
    let wanted = |part: &str| name.is_none_or(|name| name == part);
    if wanted("seeds") {
        step("all seeds", || {
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
        step("round trips and memory, big sizes", || {
            carry::run(carry::Form::Long)
        })?;
    }
    if wanted("ahp") {
        step("a host and a client, many faults", || {
            let tests = [
                "test",
                "--release",
                "--package",
                "breakbulk",
                "--all-features",
                "--test",
                "ahp_faults",
                "--",
                "--nocapture",
            ];
            command::run(cargo(&tests).env("BREAKBULK_FAULT_SEEDS", FAULT_SEEDS))
        })?;
        step("a host and a client at full size", || {
            let tests = [
                "test",
                "--release",
                "--package",
                "interop-ahp",
                "--test",
                "long",
                "--",
                "--include-ignored",
                "--nocapture",
            ];
            command::run(&mut cargo(&tests))
        })?;
    }
    if wanted("tywrap") {
        step("a large text to Python and back", || {
            let tests = [
                "test",
                "--release",
                "--package",
                "breakbulk",
                "--features",
                "tywrap",
                "--test",
                "tywrap_large",
                "--",
                "--nocapture",
            ];
            command::run(cargo(&tests).env("BREAKBULK_ECHO_BYTES", ECHO_BYTES))
        })?;
    }
    if wanted("contextvm") {
        step("ContextVM's own crate, and a bad relay", contextvm)?;
    }
    if wanted("loro") {
        step("a sync server, killed again and again", || {
            let tests = [
                "test",
                "--release",
                "--package",
                "breakbulk-cli",
                "--test",
                "loro",
                "crash",
                "--",
                "--nocapture",
            ];
            command::run(cargo(&tests).env("BREAKBULK_KILLS", KILLS))
        })?;
        step("a browser and two Rust peers, many cuts", || {
            interop::install("loro")?;
            let tests = [
                "test",
                "--release",
                "--package",
                "interop-loro",
                "--test",
                "long",
                "--",
                "--include-ignored",
                "--nocapture",
            ];
            command::run(&mut cargo(&tests))
        })?;
    }
    if wanted("fuzz") {
        step("fuzzing", || {
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

/// The crate `contextvm-sdk` in a workspace of its own and npm's SDK, against our client and server.
fn contextvm() -> Result<()> {
    interop::install("contextvm")?;
    let target = interop::target()?.join("contextvm-sdk");
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
    let tests = [
        "test",
        "--release",
        "--package",
        "interop-contextvm",
        "--test",
        "long",
        "--",
        "--include-ignored",
        "--nocapture",
        "--test-threads",
        "1",
    ];
    let peer = target.join("release").join(name);
    command::run(cargo(&tests).env("CONTEXTVM_SDK_PEER", peer))
}
