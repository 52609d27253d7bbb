//! `cargo xtask vectors`: runs the program that compares recorded bytes with ours.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{command, shared};

/// Runs every recorded case of a folder, which is named as seen from where the command was given.
pub(crate) fn run(folder: &Path) -> Result<()> {
    let program = shared::program("xtask-vectors")?;
    command::run(Command::new(program).arg(folder))
}
