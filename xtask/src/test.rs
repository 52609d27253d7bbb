//! `cargo xtask test`: the steps in their order, and at the end what was skipped and why.

use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::command::{self, cargo, root};
use crate::{carry, fuzz, interop, rules, vectors};

pub(crate) fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("\n== {name}");
    let start = Instant::now();
    work().with_context(|| name.to_owned())?;
    println!("== {name}: {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

pub(crate) fn run(strict: bool) -> Result<()> {
    let mut skipped = Vec::new();
    step("format", || {
        command::run(&mut cargo(&["fmt", "--all", "--check"]))
    })?;
    step("lints", || {
        command::run(&mut cargo(&[
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    step("docs", || {
        command::run(
            cargo(&[
                "doc",
                "--quiet",
                "--workspace",
                "--no-deps",
                "--all-features",
            ])
            .env("RUSTDOCFLAGS", "-D warnings"),
        )
    })?;
    step("dependency rules", rules::check)?;
    step("vectors", || vectors::run(&root().join("vectors")))?;
    step("round trips and memory of the program", || {
        carry::run(carry::Form::Short)
    })?;
    step("demo", || {
        command::run(&mut cargo(&["run", "--quiet", "--release", "--", "demo"]))
    })?;
    match fuzz::unavailable() {
        None => step("fuzz smoke", || {
            fuzz::run(fuzz::Mode::Smoke { seconds: 5 }, None)
        })?,
        Some(why) => skipped.push(format!("fuzz smoke: {why}")),
    }
    step("live tests", || interop::run(None))?;
    skipped.extend(interop::skipped());
    step("doc tests", || {
        command::run(&mut cargo(&["test", "--quiet", "--workspace", "--doc"]))
    })?;
    match &skipped[..] {
        [] => println!("\nnothing was skipped"),
        skipped => println!("\nskipped: {}", skipped.join("; ")),
    }
    if strict && !skipped.is_empty() {
        bail!("--strict: a skipped step is a failure");
    }
    // Last and bare, so that the output ends with the test runner's count.
    println!("\n== tests");
    if command::has("nextest") {
        command::run(&mut cargo(&[
            "nextest",
            "run",
            "--workspace",
            "--all-features",
        ]))
    } else {
        let kinds = ["--lib", "--bins", "--tests"];
        command::run(cargo(&["test", "--workspace", "--all-features"]).args(kinds))
    }
}
