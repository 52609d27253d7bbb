//! `cargo xtask long`: what takes too long for every change.

use anyhow::{Result, bail};

use crate::command::{self, cargo};
use crate::test::step;
use crate::{carry, fuzz};

/// Seeds of each property test.
const SEEDS: &str = "20000";

/// Seeds of the faults between a host and a client.
const FAULT_SEEDS: &str = "2000";

const PARTS: [&str; 5] = ["seeds", "carry", "ahp", "tywrap", "fuzz"];

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
