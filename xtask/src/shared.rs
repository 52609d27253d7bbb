//! The build that all tests share, and the build of the program.
//!
//! A build with another profile or other features would compile the dependencies again, which takes
//! minutes.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::command::{self, cargo, root};

/// The arguments of all cargo commands that use the shared build.
pub(crate) const BUILD: [&str; 3] = ["--release", "--workspace", "--all-features"];

/// Builds the program as users do, with its own features, and returns its path.
///
/// It is not part of the shared build, whose features could hide that the program lacks one.
pub(crate) fn program() -> Result<PathBuf> {
    command::run(&mut cargo(&["build", "--quiet", "--release"]))?;
    let name = format!("breakbulk{}", std::env::consts::EXE_SUFFIX);
    Ok(target()?.join("release").join(name))
}

/// All tests of the workspace that need no real peers.
pub(crate) fn all_tests() -> Command {
    let mut tests = if command::has("nextest") {
        cargo(&["nextest", "run", "--profile", "short"])
    } else {
        cargo(&["test", "--lib", "--bins", "--tests"])
    };
    tests.args(BUILD);
    tests
}

/// These test files of a package, including ignored tests, one test at a time, with their output.
pub(crate) fn tests(package: &str, files: &[&str]) -> Command {
    let files = files.iter().flat_map(|file| ["--test", file]);
    if command::has("nextest") {
        let mut tests = cargo(&["nextest", "run", "--run-ignored", "all"]);
        tests.args(BUILD).args(files);
        // Other packages may have files of the same name.
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

/// The absolute path of cargo's target folder, since tests run in other folders.
pub(crate) fn target() -> Result<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(std::path::absolute(target)?)
}
