//! npm's own `@loro-extended/repo` as a client of this project's server and as a server of its clients.
//!
//! They need node and the program `breakbulk`, and are run by `cargo xtask interop loro`. `cargo xtask long
//! loro` shows that two Repos of npm's pass the same tests.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use breakbulk::loro::Way;
use interop_loro::hub::Whose::{Npm, Ours};
use interop_loro::scenes::{self, Row, each};

/// Clients of npm at this project's server, and clients of this project at npm's.
const ROWS: [Row; 6] = [
    row(Way::WebSocket, true),
    row(Way::Sse, true),
    row(Way::Poll, true),
    row(Way::WebSocket, false),
    row(Way::Sse, false),
    row(Way::Poll, false),
];

const fn row(way: Way, we_serve: bool) -> Row {
    let (hub, client) = if we_serve { (Ours, Npm) } else { (Npm, Ours) };
    Row { hub, client, way }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop loro"]
async fn who_waits_for_a_document_that_is_there_has_it_and_all_containers_come_to_all() {
    each(&ROWS, scenes::existing_document).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop loro"]
async fn twenty_megabytes_come_to_another_client() {
    let rows = [row(Way::WebSocket, true), row(Way::WebSocket, false)];
    // A snapshot has the text and its history, so it is twice as long as the text.
    let scene = |row| scenes::large(row, 10_000_000, Duration::from_secs(60));
    each(&rows, scene).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop loro"]
async fn who_waits_for_a_new_document_is_told_that_it_is_empty() {
    each(&ROWS, scenes::new_document).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop loro"]
async fn who_leaves_is_seen_no_more() {
    each(&ROWS, scenes::presence).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop loro"]
async fn restarts_of_either_end_lose_nothing() {
    each(&ROWS, scenes::restarts).await.unwrap();
}
