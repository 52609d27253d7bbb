//! The client of MCP's TypeScript SDK with its own limit of 10 MiB: an answer of one byte more ends it, and
//! `client=mcp-typescript` turns that answer into an error.
//!
//! It needs the program `breakbulk` and node, and is run by `cargo xtask interop mcp`.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::path::Path;
use std::process::Command;

use interop_ahp::program::breakbulk;
use serde_json::Value;

/// What the client reports of three calls: the largest answer that it accepts, one byte more, a small one.
fn calls(listen: &str) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("own_limit.mjs");
    let mut node = Command::new("node");
    let output = node
        .arg(script)
        .arg(breakbulk().unwrap())
        .arg(listen)
        .output();
    let output = output.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let calls: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(calls.len(), 3, "{text} {said}");
    calls
}

#[test]
#[ignore = "cargo xtask interop mcp"]
fn an_answer_over_the_clients_own_limit_is_an_error_and_the_client_lives() {
    let direct = calls("stdio:");
    assert!(direct[0]["length"].is_number(), "{direct:#?}");
    // The client closes its connection, which ends the session.
    assert_eq!(direct[1]["code"], -32000, "{direct:#?}");
    assert!(direct[2]["length"].is_null(), "{direct:#?}");

    let bounded = calls("stdio:?client=mcp-typescript");
    assert_eq!(bounded[0], direct[0]);
    assert_eq!(bounded[1]["code"], -32011, "{bounded:#?}");
    let message = bounded[1]["message"].as_str().unwrap();
    let words = "message too large: 10485760 bytes, and the program at its receiver takes 10485759 (client=mcp-typescript of the gateway there)";
    assert!(message.contains(words), "{message}");
    assert_eq!(bounded[2]["length"], 5, "{bounded:#?}");
}
