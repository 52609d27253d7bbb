//! Installs npm packages, exactly as in a folder's lockfile.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::command;

/// A copy of the lockfile that was installed last.
const INSTALLED: &str = "node_modules/.installed-lock.json";

/// Why npm packages cannot run here; `None` if they can.
pub(super) fn unavailable() -> Option<String> {
    let missing = ["node", "npm"].into_iter().find(|program| {
        let version = Command::new(program)
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        !version.is_ok_and(|status| status.success())
    });
    missing.map(|program| format!("there is no {program} in PATH; install Node.js 20 or later"))
}

/// Installs the packages of the folder's lockfile, unless they are installed already.
pub(super) fn install(folder: &Path) -> Result<()> {
    let lockfile = folder.join("package-lock.json");
    let wanted = std::fs::read(&lockfile).with_context(|| lockfile.display().to_string())?;
    let installed = folder.join(INSTALLED);
    if std::fs::read(&installed).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    // None of the packages needs a build, so their scripts are not run. Not `ci`: it wants the optional
    // packages of all platforms in the lockfile, and a registry may not have them.
    let arguments = [
        "install",
        "--no-save",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
    ];
    command::run(Command::new("npm").args(arguments).current_dir(folder))?;
    std::fs::write(&installed, wanted).with_context(|| installed.display().to_string())
}
