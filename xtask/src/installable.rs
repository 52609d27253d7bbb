//! Packs the program for npm, PyPI and Debian and as an archive, installs it from the packed files without
//! a network, runs it as a user would, and checks the pages that come with it.

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
    for (kind, Installed { program, pages }) in [
        ("npm", npm(&folder, &packed)?),
        ("PyPI", pypi(&folder, &packed)?),
        ("Debian", debian(&folder, &packed)?),
        ("archive", archive(&folder, &packed)?),
    ] {
        check_pages(&pages).context(kind)?;
        let told = output(Command::new(&program).arg("--version"))?;
        ensure!(told == version, "{kind}: another version is told: {told}");
        let shown = output(Command::new(&program).args(["demo", "ahp"]))?;
        ensure!(shown.contains("identical"), "{kind}: {shown}");
        // An error reaches the user with the program's own exit code.
        let wrong = Command::new(&program).arg("keygen").arg("-").output()?;
        ensure!(wrong.status.code() == Some(2), "{kind}: {}", wrong.status);
        println!("{kind}: packed, installed without a network, and run");
    }
    Ok(())
}

/// The places of the program and of the pages in an installed package.
struct Installed {
    program: PathBuf,
    pages: PathBuf,
}

/// Checks that the pages exist which errors and the help name, and that no link in a page is dead.
fn check_pages(folder: &Path) -> Result<()> {
    for name in ["ERRORS.md", "OPERATIONS.md"] {
        ensure!(folder.join(name).is_file(), "{name} is missing");
    }
    let readme = folder.with_file_name("README.md");
    let mut pages = vec![readme];
    for entry in fs::read_dir(folder)? {
        pages.push(entry?.path());
    }
    let is_page = |page: &&PathBuf| page.extension().is_some_and(|it| it == "md") && page.exists();
    for page in pages.iter().filter(is_page) {
        let text = fs::read_to_string(page)?;
        let links = text.split("](").skip(1);
        for link in links.filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            let is_there = file.is_empty() || page.with_file_name(file).exists();
            let page = page.display();
            ensure!(
                is_there || link.starts_with("https://"),
                "{page}: {link} leads nowhere"
            );
        }
    }
    Ok(())
}

/// The only packed file with this beginning and end.
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

fn npm(folder: &Path, packed: &Path) -> Result<Installed> {
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
    let own = place.join(format!("node_modules/{}/package.json", npm_name()));
    let about = fs::read_to_string(&own).with_context(|| own.display().to_string())?;
    ensure!(
        about.contains("\"libc\""),
        "npm would install it where there is no glibc: {about}"
    );
    Ok(Installed {
        program: place.join("node_modules/.bin/breakbulk"),
        pages: place.join("node_modules/breakbulk/docs"),
    })
}

/// The name of the npm package with the program for this system.
fn npm_name() -> String {
    let processor = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("breakbulk-linux-{processor}")
}

fn pypi(folder: &Path, packed: &Path) -> Result<Installed> {
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
    Ok(Installed {
        program: place.join("bin/breakbulk"),
        pages: place.join("share/doc/breakbulk"),
    })
}

/// Unpacks the Debian package; installing it would change this machine.
fn debian(folder: &Path, packed: &Path) -> Result<Installed> {
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
    Ok(Installed {
        program: place.join("usr/bin/breakbulk"),
        pages: place.join("usr/share/doc/breakbulk"),
    })
}

/// Unpacks the archive.
fn archive(folder: &Path, packed: &Path) -> Result<Installed> {
    let place = folder.join("archive");
    fs::create_dir_all(&place)?;
    let packed = packed_file(packed, "breakbulk-", ".tar.gz")?;
    run(Command::new("tar")
        .args(["--extract", "--strip-components=1", "--file"])
        .arg(packed)
        .arg("--directory")
        .arg(&place))?;
    Ok(Installed {
        program: place.join("breakbulk"),
        pages: place.join("docs"),
    })
}
