//! Loro tests that take too long for every change: 20 MB of text over each transport, and all scenarios
//! between two Repos of npm's, which shows that the scenarios ask for nothing that the original does not do.
//!
//! It is run by `cargo xtask long loro`.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use breakbulk::loro::Way;
use interop_loro::hub::Whose::{self, Npm, Ours};
use interop_loro::scenes::{self, Row, each};

const WAYS: [Way; 3] = [Way::WebSocket, Way::Sse, Way::Poll];

fn rows(hub: Whose, client: Whose) -> [Row; 3] {
    WAYS.map(|way| Row { hub, client, way })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask long loro"]
async fn twenty_megabytes_of_text_by_each_way() {
    // With their history they are a snapshot of 40 MB.
    let scene = |row| scenes::large(row, 20_000_000, Duration::from_secs(300));
    for rows in [rows(Ours, Npm), rows(Npm, Ours)] {
        each(&rows, scene).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask long loro"]
async fn two_repos_do_all_that_is_asked_of_ours() {
    let npm = rows(Npm, Npm);
    each(&npm, scenes::existing_document).await.unwrap();
    each(&npm, scenes::new_document).await.unwrap();
    each(&npm, scenes::presence).await.unwrap();
    // Over polls the original does not recover from a restart of its server.
    each(&npm[..2], scenes::restarts).await.unwrap();
}
