//! 2 MB over a slow path (1.5 Mbit/s, 60 ms there and back), by every protocol and transport that has one.
//!
//! tywrap speaks over pipes, whose bytes a tunnel carries. WebRTC has a path of its own (`udp`). `paused` has
//! 24 MB in simulated time for the endpoints that work on any transport; the formats by themselves:
//! `crates/link/tests/slow_path.rs`.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod library;
mod paused;
mod programs;
mod udp;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use breakbulk_testkit::bad_path::{BadPath, Way, Weather};
use tokio::task::JoinSet;

/// The size of what crosses.
const SIZE: usize = 2_000_000;

/// 1.5 Mbit/s.
const BYTES_A_SECOND: u64 = 187_500;

/// The delay of each direction.
const DELAY: Duration = Duration::from_millis(30);

/// No row takes longer: it takes 11 s one way.
const PATIENCE: Duration = Duration::from_secs(120);

type Row = Pin<Box<dyn Future<Output = ()> + Send>>;

fn slow() -> Weather {
    Weather::both_ways(Way {
        pace: Some(BYTES_A_SECOND),
        delay: DELAY,
        ..Way::default()
    })
}

/// A path to an address; `web_socket` if nothing else goes over it.
async fn path(target: impl ToString, web_socket: bool) -> BadPath {
    let path = match web_socket {
        true => BadPath::start(target, slow()).await,
        false => BadPath::start_tcp(target, slow()).await,
    };
    path.unwrap()
}

/// Checks that the path was as slow as it should be, and that nothing came twice, which would be 2 MB more.
fn crossed(path: &BadPath, ways: u64) {
    let counts = path.counts();
    let bytes = counts.from_client.bytes + counts.from_target.bytes;
    let once = SIZE as u64 * ways;
    assert!(
        (once..once * 2).contains(&bytes),
        "{bytes} bytes for {once}"
    );
}

/// All rows at once: they wait, and hardly work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_megabytes_arrive_over_a_slow_path_by_every_protocol() {
    let rows: Vec<(&str, Row)> = vec![
        ("a tunnel", Box::pin(programs::tunnel())),
        ("a relay", Box::pin(programs::relay())),
        (
            "loro by WebSocket",
            Box::pin(programs::loro("ws://", "/ws")),
        ),
        (
            "loro by SSE",
            Box::pin(programs::loro("http://", "?transport=sse")),
        ),
        (
            "loro by polls",
            Box::pin(programs::loro("http://", "?transport=poll")),
        ),
        ("loro by WebRTC", Box::pin(udp::loro())),
        ("AHP", Box::pin(library::ahp())),
        ("VSCode's RPC", Box::pin(library::vscode())),
    ];
    let mut running = JoinSet::new();
    for (name, row) in rows {
        running.spawn(async move {
            let done = tokio::spawn(tokio::time::timeout(PATIENCE, row)).await;
            (name, done.map(|done| done.is_ok()))
        });
    }
    let mut wrong = Vec::new();
    while let Some(row) = running.join_next().await {
        match row.unwrap() {
            (_, Ok(true)) => {}
            (name, Ok(false)) => wrong.push(format!("{name}: not within {PATIENCE:?}")),
            (name, Err(error)) => wrong.push(format!("{name}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
