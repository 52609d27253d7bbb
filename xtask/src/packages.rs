//! Makes the packages of all crates, as for publishing.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::command::{self, cargo, root};

/// Makes a package of every crate under `crates/`; with `verify`, also builds each from its package.
pub(crate) fn run(verify: bool) -> Result<()> {
    let mut package = cargo(&["package", "--quiet", "--allow-dirty"]);
    if !verify {
        package.arg("--no-verify");
    }
    let mut count = 0;
    for entry in fs::read_dir(root().join("crates"))? {
        let folder = entry?.path();
        let manifest = fs::read_to_string(folder.join("Cargo.toml"))?;
        let name = manifest
            .lines()
            .find_map(|line| line.strip_prefix("name = "));
        let name = name.context("a manifest without a name")?.trim_matches('"');
        ensure!(
            !manifest.contains("publish = false"),
            "{name} is not published"
        );
        ensure!(
            folder.join("README.md").is_file(),
            "{name} has no README.md"
        );
        package.args(["--package", name]);
        count += 1;
    }
    command::run(&mut package)?;
    println!("{count} packages{}", if verify { ", verified" } else { "" });
    Ok(())
}
