//! Published MCP programs over HTTP: a client at the gateway's door, a gateway at a server's URL, and both with
//! a path with a cap between them: WebSockets of 128 KB, HTTP bodies of 64 KB, NATS with 64 KB.
//!
//! `cargo xtask interop mcp` runs these rows, `cargo xtask long mcp` all combinations.

#![allow(clippy::unwrap_used, reason = "a test may")]

use interop_mcp::doors::{
    Between::{self, Gateway, Tunnel},
    Row,
    Speaks::{self, Http, Stdio},
};
use interop_mcp::paths::Over::{Http as Bodies, Nats, WebSocket};
use interop_mcp::sdk::Sdk::{self, Npm2025, Npm2026, Pypi2025, Pypi2026};
use interop_mcp::table::each;

/// Each client, each server, each kind of connection, and each mixture of eras.
const ROWS: [Row; 14] = [
    row((Npm2025, Http), Gateway, (Pypi2025, Stdio)),
    row((Npm2026, Http), Gateway, (Npm2026, Stdio)),
    row((Pypi2026, Http), Gateway, (Pypi2026, Stdio)),
    row((Pypi2025, Http), Gateway, (Npm2026, Stdio)),
    row((Npm2026, Stdio), Gateway, (Pypi2026, Http)),
    row((Pypi2025, Stdio), Gateway, (Npm2025, Http)),
    row((Npm2026, Http), Gateway, (Npm2026, Http)),
    row((Pypi2026, Http), Gateway, (Npm2025, Http)),
    row((Npm2025, Http), Tunnel(WebSocket), (Npm2025, Http)),
    row((Pypi2026, Stdio), Tunnel(WebSocket), (Npm2026, Http)),
    row((Npm2026, Http), Tunnel(Bodies), (Pypi2026, Http)),
    row((Pypi2025, Http), Tunnel(Bodies), (Npm2026, Stdio)),
    row((Pypi2026, Http), Tunnel(Nats), (Npm2026, Http)),
    row((Npm2025, Http), Tunnel(Nats), (Pypi2025, Http)),
];

/// 20 MB each way. The README says of clients on standard streams what these rows show.
const LARGE: [Row; 6] = [
    large((Npm2026, Http), Gateway, (Npm2026, Http)),
    large((Npm2025, Http), Tunnel(WebSocket), (Npm2025, Http)),
    large((Npm2026, Http), Tunnel(Bodies), (Pypi2026, Http)),
    large((Npm2026, Stdio), Tunnel(Nats), (Npm2026, Http)),
    large((Pypi2025, Stdio), Tunnel(WebSocket), (Pypi2025, Stdio)),
    large((Pypi2026, Stdio), Tunnel(WebSocket), (Npm2026, Stdio)),
];

const fn row(client: (Sdk, Speaks), between: Between, server: (Sdk, Speaks)) -> Row {
    Row {
        client,
        between,
        server,
        large: false,
    }
}

const fn large(client: (Sdk, Speaks), between: Between, server: (Sdk, Speaks)) -> Row {
    let row = row(client, between, server);
    Row { large: true, ..row }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop mcp"]
async fn clients_and_servers_over_http_agree_as_if_nothing_was_between_them() {
    each(ROWS, Row::run).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop mcp"]
async fn arguments_and_results_of_20_mb_pass_over_http() {
    each(LARGE, Row::run).await.unwrap();
}
