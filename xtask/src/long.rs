//! `cargo xtask long`: what takes too long for every change.

use anyhow::{Result, bail};

use crate::command::{self, cargo};
use crate::test::step;
use crate::{carry, fuzz};

/// Seeds of each property test.
const SEEDS: &str = "20000";

pub(crate) fn run(name: Option<&str>, fuzz_seconds: u64, fuzz_target: Option<&str>) -> Result<()> {
    if let Some(name) = name
        && !["seeds", "carry", "fuzz"].contains(&name)
    {
        bail!("{name} is no part of the long form; it is one of seeds, carry, fuzz");
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
