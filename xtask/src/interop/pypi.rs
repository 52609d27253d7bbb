//! Installs packages of PyPI, of the versions that a folder's `requirements.txt` names, in a virtual
//! environment of that folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::command;

/// A copy of the requirements that were installed last.
const INSTALLED: &str = ".venv/installed-requirements.txt";

/// Why packages of PyPI cannot run here; `None` if they can.
pub(super) fn unavailable() -> Option<String> {
    let found = Command::new("python3")
        .args(["-c", "import ensurepip, venv"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let why =
        "there is no python3 with venv and ensurepip in PATH; install python3 and python3-venv";
    (!found.is_ok_and(|status| status.success())).then(|| why.to_owned())
}

/// Installs the folder's requirements, unless they are installed already; returns the interpreter that
/// has them.
pub(super) fn install(folder: &Path) -> Result<PathBuf> {
    let requirements = folder.join("requirements.txt");
    let wanted =
        std::fs::read(&requirements).with_context(|| requirements.display().to_string())?;
    let (installed, python) = (folder.join(INSTALLED), folder.join(".venv/bin/python"));
    if std::fs::read(&installed).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    let make = ["-m", "venv", "--clear", ".venv"];
    command::run(Command::new("python3").args(make).current_dir(folder))?;
    // Wheels only: nothing is built, and no code of a package runs before its tests do.
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ];
    let what = ["--only-binary", ":all:", "-r", "requirements.txt"];
    command::run(
        Command::new(&python)
            .args(pip)
            .args(what)
            .current_dir(folder),
    )?;
    std::fs::write(&installed, wanted).with_context(|| installed.display().to_string())?;
    Ok(python)
}
