//! What takes too long for every change: every client with every server over everything.
//!
//! It is run by `cargo xtask long mcp`.

#![allow(clippy::unwrap_used, reason = "a test may")]

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
