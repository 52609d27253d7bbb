//! MCP 2025-11-25 and 2026-07-28 through the gateway: no message is changed, and no client can tell that
//! there is a gateway between it and its server.
//!
//! `cargo xtask interop mcp` runs these rows, `cargo xtask long mcp` all combinations.

#![allow(clippy::unwrap_used, reason = "a test may")]

use interop_mcp::eras::{Over, Row};
use interop_mcp::sdk::Sdk;
use interop_mcp::table::each;

/// Each client, each server, each kind of connection, and each mixture of eras.
const ROWS: [(Sdk, Sdk, Over); 8] = [
    (Sdk::Npm2025, Sdk::Pypi2025, Over::Stdio),
    (Sdk::Npm2026, Sdk::Npm2026, Over::Stdio),
    (Sdk::Pypi2026, Sdk::Npm2025, Over::Stdio),
    (Sdk::Pypi2025, Sdk::Npm2026, Over::Tunnel),
    (Sdk::Pypi2026, Sdk::Pypi2026, Over::Tunnel),
    (Sdk::Npm2026, Sdk::Pypi2025, Over::Tunnel),
    (Sdk::Pypi2025, Sdk::Npm2025, Over::Relay),
    (Sdk::Pypi2026, Sdk::Npm2026, Over::Relay),
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop mcp"]
async fn clients_and_servers_of_both_eras_agree_as_if_nothing_was_between_them() {
    let rows = ROWS.map(|(client, server, over)| Row {
        client,
        server,
        over,
    });
    each(rows, Row::run).await.unwrap();
}
