//! `cargo xtask vectors`: the recorded cases of a folder, each format's outcome printed.

use std::path::Path;

use anyhow::{Context, Result};

use crate::{command, shared};

/// Runs every recorded case of a folder, which is named as seen from where the command was given.
pub(crate) fn run(folder: &Path) -> Result<()> {
    let folder = folder
        .canonicalize()
        .with_context(|| folder.display().to_string())?;
    let mut tests = shared::tests("interop-recorded", &["recorded"]);
    command::run(tests.env("BREAKBULK_VECTORS", folder))
}
