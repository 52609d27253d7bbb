//! npm's `@modelcontextprotocol/conformance` says the same of a server whatever is between them.
//!
//! `cargo xtask interop mcp` runs it. With `BREAKBULK_RECORD=1` what it says without anything between them is
//! written to `conformance/verdicts.json`.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::path::PathBuf;
use std::time::Instant;

use interop_mcp::conformance::{Verdicts, differences, run, server};

/// What is said of the server without anything between them.
fn recorded() -> (PathBuf, Verdicts) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance/verdicts.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| "{}".to_owned());
    (path, serde_json::from_str(&text).unwrap())
}

#[track_caller]
fn is_as_recorded(over: &str, found: &Verdicts) {
    let different = differences(&recorded().1, found);
    assert!(different.is_empty(), "{over}:\n{}", different.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop mcp"]
async fn the_server_alone_is_as_recorded() {
    let server = server().await.unwrap();
    let start = Instant::now();
    let found = run(&server.address).await.unwrap();
    println!("{:.1} s", start.elapsed().as_secs_f64());
    if std::env::var_os("BREAKBULK_RECORD").is_some() {
        let text = serde_json::to_string_pretty(&found).unwrap();
        std::fs::write(recorded().0, text + "\n").unwrap();
    }
    is_as_recorded("nothing between", &found);
}
