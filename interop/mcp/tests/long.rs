//! MCP tests that take too long for every change: every client with every server over every connection.
//!
//! It is run by `cargo xtask long mcp`.

#![allow(clippy::unwrap_used, reason = "a test may")]

use interop_mcp::doors::{
    self, BETWEEN,
    Speaks::{Http, Stdio},
};
use interop_mcp::eras::{OVER, Row};
use interop_mcp::sdk::SDKS;
use interop_mcp::table::each;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask long mcp"]
async fn every_client_with_every_server_over_everything() {
    let pairs = SDKS
        .into_iter()
        .flat_map(|client| SDKS.map(|server| (client, server)));
    let rows = pairs.flat_map(|(client, server)| {
        OVER.map(|over| Row {
            client,
            server,
            over,
        })
    });
    each(rows, Row::run).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask long mcp"]
async fn every_client_with_every_server_by_every_door() {
    let speaks = [(Http, Http), (Http, Stdio), (Stdio, Http)];
    let rows = BETWEEN.into_iter().flat_map(|between| {
        let pairs = SDKS
            .into_iter()
            .flat_map(|client| SDKS.map(|server| (client, server)));
        pairs.flat_map(move |(client, server)| {
            speaks.map(|(at_client, at_server)| doors::Row {
                client: (client, at_client),
                between,
                server: (server, at_server),
                large: false,
            })
        })
    });
    each(rows, doors::Row::run).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask long mcp"]
async fn arguments_and_results_of_20_mb_by_every_sdk_and_every_door() {
    let rows = BETWEEN.into_iter().flat_map(|between| {
        SDKS.map(|sdk| doors::Row {
            client: (sdk, Http),
            between,
            server: (sdk, Http),
            large: true,
        })
    });
    each(rows, doors::Row::run).await.unwrap();
}
