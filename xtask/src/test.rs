//! `cargo xtask test`: runs all steps in order, and lists at the end what was skipped and why.

use anyhow::{Result, bail};

use crate::command::{self, cargo, root};
use crate::shared::BUILD;
use crate::steps::Steps;
use crate::{
    carry, counts, examples, fuzz, installable, interop, packages, rules, shared, vectors,
};

pub(crate) fn run(strict: bool) -> Result<()> {
    let mut steps = Steps::new();
    let mut skipped = Vec::new();
    steps.step("format", || {
        command::run(&mut cargo(&["fmt", "--all", "--check"]))
    })?;
    // Lints and docs share the checked dependencies, and their build scripts with all later steps.
    steps.step("lints", || {
        let mut lints = cargo(&["clippy", "--quiet", "--all-targets"]);
        command::run(lints.args(BUILD).args(["--", "-D", "warnings"]))
    })?;
    steps.step("docs", || {
        let mut docs = cargo(&["doc", "--quiet", "--no-deps"]);
        command::run(docs.args(BUILD).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    steps.step("rules", rules::check)?;
    steps.step("machines without a runtime", || {
        rules::PROTOCOLS.iter().try_for_each(|protocol| {
            let mut check = cargo(&["check", "--quiet", "--release", "--no-default-features"]);
            command::run(check.args(["--package", protocol]))
        })
    })?;
    steps.step("packages", || packages::run(false))?;
    // Run like a user does, with the program's own features; later steps use this program.
    steps.step("the program and its demo", || {
        command::run(&mut cargo(&["run", "--quiet", "--release", "--", "demo"]))
    })?;
    steps.step("packages for people without a compiler", || {
        installable::check(&shared::program()?)
    })?;
    steps.step("round trips and memory of the program", || {
        carry::run(carry::Form::Short)
    })?;
    match fuzz::unavailable() {
        None => steps.step("fuzz smoke", || {
            fuzz::run(fuzz::Mode::Smoke { seconds: 5 }, None)
        })?,
        Some(why) => skipped.push(format!("fuzz smoke: {why}")),
    }
    steps.step("build of all tests", || {
        command::run(cargo(&["build", "--quiet", "--all-targets"]).args(BUILD))
    })?;
    match counts::unavailable() {
        None => steps.step("instruction counts", counts::run)?,
        Some(why) => skipped.push(format!("instruction counts: {why}")),
    }
    steps.step("examples", examples::run)?;
    steps.step("vectors", || vectors::run(&root().join("vectors")))?;
    steps.step("live tests", || interop::run(None))?;
    skipped.extend(interop::skipped());
    steps.step("doc tests", || {
        command::run(cargo(&["test", "--quiet", "--doc"]).args(BUILD))
    })?;
    match &skipped[..] {
        [] => println!("\nnothing was skipped"),
        skipped => println!("\nskipped: {}", skipped.join("; ")),
    }
    if strict && !skipped.is_empty() {
        bail!("--strict: a skipped step is a failure");
    }
    // Last, so that the output ends with the test runner's count and the table of times.
    steps.step("tests", || command::run(&mut shared::all_tests()))
}
