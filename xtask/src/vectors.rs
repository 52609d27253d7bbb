//! `cargo xtask vectors`: runs the recorded cases of a folder.

use std::path::Path;

use anyhow::{Context, Result};

use crate::{command, shared};

/// Runs every recorded case of a folder; a relative path is relative to the current directory.
pub(crate) fn run(folder: &Path) -> Result<()> {
    let folder = folder
        .canonicalize()
        .with_context(|| folder.display().to_string())?;
    let mut tests = shared::tests("interop-recorded", &["recorded"]);
    command::run(tests.env("BREAKBULK_VECTORS", folder))
}
