//! Runs the examples: each must be short, need no arguments or servers, and end by itself.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::command::root;
use crate::shared;

/// The most lines of an example.
const LINES: usize = 40;

/// How long an example may run.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs all examples of the crates, from the shared build.
pub(crate) fn run() -> Result<()> {
    let programs = shared::target()?.join("release/examples");
    for source in sources()? {
        let lines = fs::read_to_string(&source)?.lines().count();
        let shown = source.display();
        ensure!(
            lines <= LINES,
            "{shown} has {lines} lines, more than {LINES}"
        );
        let name = source.file_stem().unwrap_or_default();
        let mut program = programs.join(name);
        program.set_extension(std::env::consts::EXE_EXTENSION);
        let printed = output(&program).with_context(|| shown.to_string())?;
        println!(
            "{}: {}",
            name.to_string_lossy(),
            printed.trim().replace('\n', "; ")
        );
    }
    Ok(())
}

/// The files of all examples.
fn sources() -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(root().join("crates"))? {
        let folder = entry?.path().join("examples");
        if folder.is_dir() {
            for file in fs::read_dir(folder)? {
                sources.push(file?.path());
            }
        }
    }
    sources.sort();
    ensure!(!sources.is_empty(), "there are no examples");
    Ok(sources)
}

/// The output of a program, if it succeeds in time.
fn output(program: &PathBuf) -> Result<String> {
    let mut child = Command::new(program)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let started = Instant::now();
    // Examples print only a few lines, which fit in the pipe's buffer.
    while child.try_wait()?.is_none() {
        if started.elapsed() > TIMEOUT {
            child.kill()?;
            bail!("it runs for more than {} s", TIMEOUT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
