//! `cargo xtask interop`: live tests against the real peers.

use anyhow::{Result, bail};

/// Protocols that will have live tests, each with its endpoint.
const PROTOCOLS: [&str; 5] = ["ahp", "contextvm", "tywrap", "loro", "vscode"];

pub(crate) fn run(name: Option<&str>) -> Result<()> {
    match name {
        None => {
            println!(
                "no endpoint exists yet, so no live test: {}",
                PROTOCOLS.join(", ")
            );
            Ok(())
        }
        Some(name) if PROTOCOLS.contains(&name) => {
            bail!("{name} has no endpoint yet, and so no live test")
        }
        Some(name) => bail!(
            "{name} is no protocol; it is one of {}",
            PROTOCOLS.join(", ")
        ),
    }
}
