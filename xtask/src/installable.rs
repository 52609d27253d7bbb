//! Packs the program for npm, PyPI and Debian, installs it from the packed files without a network, and
//! runs it as whoever installed it would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::command::{output, root, run};
use crate::shared;

/// Packs and tries this program.
pub(crate) fn check(program: &Path) -> Result<()> {
    let folder = shared::target()?.join("installable");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let packed = folder.join("packed");
    fs::create_dir_all(&packed)?;
    // Symbols are for a debugger, and make the packages several times as large.
    let stripped = folder.join("breakbulk");
    run(Command::new("strip")
        .arg("-o")
        .args([&stripped, &program.to_owned()]))?;
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    run(Command::new("python3")
        .arg(root().join("packaging/pack.py"))
        .args(["--target", &target, "--program"])
        .arg(&stripped)
        .arg("--out")
        .arg(&packed))?;
    run(Command::new("sha256sum")
        .args(["--check", "--quiet", "SHA256SUMS"])
        .current_dir(&packed))?;
    let version = output(Command::new(program).arg("--version"))?;
    for (kind, installed) in [
        ("npm", npm(&folder, &packed)?),
        ("PyPI", pypi(&folder, &packed)?),
        ("Debian", debian(&folder, &packed)?),
    ] {
        let told = output(Command::new(&installed).arg("--version"))?;
        ensure!(told == version, "{kind}: another version is told: {told}");
        let shown = output(Command::new(&installed).args(["demo", "ahp"]))?;
        ensure!(shown.contains("identical"), "{kind}: {shown}");
        // A failure is told as the program itself tells it.
        let wrong = Command::new(&installed).arg("keygen").arg("-").output()?;
        ensure!(wrong.status.code() == Some(2), "{kind}: {}", wrong.status);
        println!("{kind}: packed, installed without a network, and run");
    }
    Ok(())
}

/// The only file of this kind.
fn packed_file(packed: &Path, begins: &str, ends: &str) -> Result<PathBuf> {
    for entry in fs::read_dir(packed)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(begins) && name.ends_with(ends) {
            return Ok(path);
        }
    }
    Err(anyhow::anyhow!("{begins}…{ends} was not packed"))
}

fn npm(folder: &Path, packed: &Path) -> Result<PathBuf> {
    let place = folder.join("npm");
    fs::create_dir_all(&place)?;
    fs::write(place.join("package.json"), "{\"private\": true}\n")?;
    let own = packed_file(packed, "breakbulk-linux-", ".tgz")?;
    let version = env!("CARGO_PKG_VERSION");
    let all = packed_file(packed, &format!("breakbulk-{version}"), ".tgz")?;
    run(Command::new("npm")
        .args([
            "install",
            "--offline",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ])
        .args([&own, &all])
        .env("npm_config_cache", folder.join("npm-cache"))
        .current_dir(&place))?;
    Ok(place.join("node_modules/.bin/breakbulk"))
}

fn pypi(folder: &Path, packed: &Path) -> Result<PathBuf> {
    let place = folder.join("pypi");
    run(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
    let wheel = packed_file(packed, "breakbulk-", ".whl")?;
    run(Command::new(place.join("bin/pip"))
        .args([
            "install",
            "--quiet",
            "--no-index",
            "--disable-pip-version-check",
        ])
        .arg(wheel))?;
    Ok(place.join("bin/breakbulk"))
}

/// Unpacked and not installed, since that would change this machine.
fn debian(folder: &Path, packed: &Path) -> Result<PathBuf> {
    let place = folder.join("debian");
    let package = packed_file(packed, "breakbulk_", ".deb")?;
    let about = output(Command::new("dpkg-deb").arg("--info").arg(&package))?;
    ensure!(about.contains("Package: breakbulk"), "{about}");
    run(Command::new("dpkg-deb")
        .arg("--extract")
        .args([&package, &place]))?;
    for file in [
        "usr/lib/systemd/system/breakbulk.service",
        "usr/share/man/man1/breakbulk-gateway.1.gz",
        "usr/share/bash-completion/completions/breakbulk",
    ] {
        let path = place.join(file);
        fs::metadata(&path).with_context(|| format!("{file} is missing"))?;
    }
    Ok(place.join("usr/bin/breakbulk"))
}
