//! Installs packages of PyPI in virtual environments, exactly as in a file of requirements.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::command;

/// A copy of the requirements that were installed last.
const INSTALLED: &str = "installed.txt";

/// Why packages of PyPI cannot run here; `None` if they can.
pub(super) fn unavailable() -> Option<String> {
    let modules = Command::new("python3")
        .args(["-c", "import ensurepip, venv"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let found = modules.is_ok_and(|status| status.success());
    (!found)
        .then(|| "there is no python3 with venv in PATH; install Python 3.10 or later".to_owned())
}

/// Installs what a file of requirements names, unless it is installed already.
pub(super) fn install(requirements: &Path, environment: &Path) -> Result<()> {
    let wanted = std::fs::read(requirements).with_context(|| requirements.display().to_string())?;
    let installed = environment.join(INSTALLED);
    if std::fs::read(&installed).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let mut make = Command::new("python3");
    command::run(make.args(["-m", "venv", "--clear"]).arg(environment))?;
    let mut pip = Command::new(environment.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    // Each file must have the digest from the requirements, and none is built here.
    pip.args([
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--requirement",
    ]);
    command::run(pip.arg(requirements))?;
    std::fs::write(&installed, wanted).with_context(|| installed.display().to_string())
}
