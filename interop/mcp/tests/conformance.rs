//! npm's `@modelcontextprotocol/conformance` gives a server the same verdicts through gateways.
//!
//! `cargo xtask interop mcp` runs it. With `BREAKBULK_RECORD=1` the verdicts of the direct connection are
//! written to `conformance/verdicts.json`.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::path::PathBuf;

use anyhow::{Result, ensure};
use interop_mcp::conformance::{Verdicts, differences, run, server};
use interop_mcp::doors::{BETWEEN, Between, Door};
use interop_mcp::table::each;

/// The recorded verdicts of the direct connection.
fn recorded() -> (PathBuf, Verdicts) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance/verdicts.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| "{}".to_owned());
    (path, serde_json::from_str(&text).unwrap())
}

/// Checks that hold for a direct connection only: when a server ends the stream of an answer early, the
/// gateway reconnects to the server, and its own client keeps its stream.
const OF_ONE_CONNECTION: [(&str, &str, &str); 1] = [(
    "2025-11-25",
    "server-sse-polling",
    "server-sse-disconnect-resume",
)];

/// The expected verdicts through a gateway.
fn through_a_gateway(mut verdicts: Verdicts) -> Verdicts {
    for (revision, scenario, check) in OF_ONE_CONNECTION {
        let scenarios = verdicts.get_mut(revision).unwrap();
        let checks = scenarios.get_mut(scenario).unwrap();
        checks.get_mut("SUCCESS").unwrap().retain(|id| id != check);
    }
    verdicts
}

/// Runs the conformance package against the server, through `between` if given, and compares the verdicts.
async fn check(between: Option<Between>) -> Result<()> {
    let server = server().await?;
    let found = match between {
        None => run(&server.address).await?,
        Some(between) => {
            let door = Door::open(between, &server.address).await?;
            let found = run(&door.url).await?;
            door.stop().await?;
            found
        }
    };
    let (path, mut expected) = recorded();
    if between.is_none() && std::env::var_os("BREAKBULK_RECORD").is_some() {
        std::fs::write(path, serde_json::to_string_pretty(&found)? + "\n")?;
        expected = recorded().1;
    }
    if between.is_some() {
        expected = through_a_gateway(expected);
    }
    let different = differences(&expected, &found);
    ensure!(different.is_empty(), "{}", different.join("\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop mcp"]
async fn a_server_is_judged_alike_whatever_is_between() {
    let between = BETWEEN.into_iter().map(Some);
    each([None].into_iter().chain(between), check)
        .await
        .unwrap();
}
