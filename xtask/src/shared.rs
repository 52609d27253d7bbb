//! The one build that all tests share, and the program beside it.
//!
//! Another profile or another set of features compiles the dependencies again, which takes minutes.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::command::{self, cargo, root};

/// What every command of cargo is told that takes part.
pub(crate) const BUILD: [&str; 3] = ["--release", "--workspace", "--all-features"];

/// Builds the program as its users do, with its own features, and gives its path.
///
/// Not a part of the shared build: what the tests' own features add would hide that one is missing.
pub(crate) fn program() -> Result<PathBuf> {
    command::run(&mut cargo(&["build", "--quiet", "--release"]))?;
    let name = format!("breakbulk{}", std::env::consts::EXE_SUFFIX);
    Ok(target()?.join("release").join(name))
}

/// All tests of the workspace that need no peer from elsewhere.
pub(crate) fn all_tests() -> Command {
    let mut tests = if command::has("nextest") {
        cargo(&["nextest", "run"])
    } else {
        cargo(&["test", "--lib", "--bins", "--tests"])
    };
    tests.args(BUILD);
    tests
}

/// Those test files of a package, the ignored tests too, one after the other, with all they print.
pub(crate) fn tests(package: &str, files: &[&str]) -> Command {
    let files = files.iter().flat_map(|file| ["--test", file]);
    if command::has("nextest") {
        let mut tests = cargo(&["nextest", "run", "--run-ignored", "all"]);
        tests.args(BUILD).args(files);
        // Another package may have a file of the same name.
        tests.args(["--filterset", &format!("package(={package})")]);
        tests.args(["--test-threads", "1", "--success-output", "immediate"]);
        tests
    } else {
        let mut tests = cargo(&["test", "--release", "--all-features", "--package", package]);
        tests.args(files);
        tests.args(["--", "--include-ignored", "--nocapture", "--test-threads=1"]);
        tests
    }
}

/// Where cargo builds, from wherever one looks: tests run in their own folder.
pub(crate) fn target() -> Result<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(std::path::absolute(target)?)
}
