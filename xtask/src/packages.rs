//! Makes the packages of all crates, as for publishing, and checks the order in which they are published.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::command::{self, cargo, output, root};

/// The page that says in which order crates are published, and the words before and after their names.
const PAGE: &str = "RELEASING.md";
const BEFORE: &str = "publish in this order";
const AFTER: char = '.';

/// What the names of all crates but one begin with; the page leaves it out.
const PREFIX: &str = "breakbulk-";

/// Makes a package of every crate under `crates/`; with `verify`, also builds each from its package.
pub(crate) fn run(verify: bool) -> Result<()> {
    let crates = crates()?;
    let page = fs::read_to_string(root().join(PAGE)).context(PAGE)?;
    check_order(&order(&page)?, &crates).context(PAGE)?;
    let mut package = cargo(&["package", "--quiet", "--allow-dirty"]);
    if !verify {
        package.arg("--no-verify");
    }
    for Crate { name, .. } in &crates {
        package.args(["--package", name]);
    }
    command::run(&mut package)?;
    let count = crates.len();
    println!("{count} packages{}", if verify { ", verified" } else { "" });
    Ok(())
}

/// What `cargo metadata` says.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Crate>,
}

#[derive(Deserialize)]
struct Crate {
    name: String,
    /// An empty list for a crate that is not published.
    publish: Option<Vec<String>>,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `*` if only a path is given: such a dependency (of tests) is left out of the package.
    req: String,
}

/// Every crate under `crates/`.
fn crates() -> Result<Vec<Crate>> {
    let metadata = output(&mut cargo(&[
        "metadata",
        "--no-deps",
        "--format-version=1",
        "--locked",
    ]))?;
    let Metadata { mut packages } = serde_json::from_str(&metadata)?;
    let folder = root().join("crates").canonicalize()?;
    packages.retain(|package| {
        package
            .manifest_path
            .starts_with(&*folder.to_string_lossy())
    });
    for Crate { name, publish, .. } in &packages {
        ensure!(publish.is_none(), "{name} is not published");
    }
    for entry in fs::read_dir(&folder)? {
        let folder = entry?.path();
        let shown = folder.display();
        let manifest = folder.join("Cargo.toml");
        ensure!(
            packages
                .iter()
                .any(|package| manifest.as_os_str() == &*package.manifest_path),
            "{shown} is no crate of the workspace"
        );
        ensure!(
            folder.join("README.md").is_file(),
            "{shown} has no README.md"
        );
    }
    Ok(packages)
}

/// The crates that the page names, in its order.
fn order(page: &str) -> Result<Vec<&str>> {
    let rest = page.split_once(BEFORE).map(|(_, rest)| rest);
    let names = rest.and_then(|rest| {
        let (_, rest) = rest.split_once(": ")?;
        rest.split_once(AFTER).map(|(names, _)| names)
    });
    let names = names.with_context(|| format!("no list of crates after \"{BEFORE}\""))?;
    Ok(names.split(", ").map(str::trim).collect())
}

/// Checks that the order has each crate once, after all its dependencies: a registry refuses a crate whose
/// dependencies it does not have.
fn check_order(order: &[&str], crates: &[Crate]) -> Result<()> {
    let place = |name: &str| {
        let short = name.strip_prefix(PREFIX).unwrap_or(name);
        order.iter().position(|named| *named == short)
    };
    for Crate {
        name, dependencies, ..
    } in crates
    {
        let own = place(name).with_context(|| format!("{name} is missing in the order"))?;
        for Dependency { name: other, req } in dependencies {
            let is_ours = crates.iter().any(|known| known.name == *other);
            if !is_ours || req == "*" {
                continue;
            }
            ensure!(
                place(other).is_some_and(|before| before < own),
                "{name} is published before {other}, which it depends on"
            );
        }
    }
    ensure!(
        order.len() == crates.len(),
        "{} crates are named, and there are {}",
        order.len(),
        crates.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crates_of(table: &[(&str, &[(&str, &str)])]) -> Vec<Crate> {
        let dependency = |&(name, req): &(&str, &str)| Dependency {
            name: name.to_owned(),
            req: req.to_owned(),
        };
        table
            .iter()
            .map(|(name, dependencies)| Crate {
                name: (*name).to_owned(),
                publish: None,
                manifest_path: String::new(),
                dependencies: dependencies.iter().map(dependency).collect(),
            })
            .collect()
    }

    #[test]
    fn a_crate_is_published_behind_what_it_depends_on() {
        let crates = crates_of(&[
            // Only the tests of `link` use the wire, by a path.
            (
                "breakbulk-link",
                &[("breakbulk-wire", "*"), ("bytes", "^1")],
            ),
            ("breakbulk-wire", &[("breakbulk-link", "^0.1.0")]),
            ("breakbulk", &[("breakbulk-wire", "^0.1.0")]),
        ]);
        for (order, wrong) in [
            (&["link", "wire", "breakbulk"][..], ""),
            (
                &["wire", "link", "breakbulk"],
                "breakbulk-wire is published before breakbulk-link, which it depends on",
            ),
            (
                &["link", "breakbulk"],
                "breakbulk-wire is missing in the order",
            ),
            (
                &["link", "wire", "breakbulk", "wire"],
                "4 crates are named, and there are 3",
            ),
        ] {
            let checked = check_order(order, &crates);
            let said = checked.map_or_else(|error| error.to_string(), |()| String::new());
            assert_eq!(said, wrong, "{order:?}");
        }
    }

    #[test]
    fn the_order_of_the_page_fits_the_crates() {
        let page = fs::read_to_string(root().join(PAGE)).unwrap();
        check_order(&order(&page).unwrap(), &crates().unwrap()).unwrap();
    }

    #[test]
    fn the_order_is_read_from_the_page() {
        let page = "5. Then publish in this order, each once (…): link, wire, cli.\n6. A tag.";
        assert_eq!(order(page).unwrap(), ["link", "wire", "cli"]);
        assert!(order("5. Then publish.").is_err());
    }
}
