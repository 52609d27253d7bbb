//! Loro tests that take too long for every change: a browser and two Rust peers edit, over each transport.
//!
//! It is run by `cargo xtask long loro`. `BREAKBULK_LONG_SEED=7` runs that seed alone.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use breakbulk::loro::Way;
use interop_loro::browser::Browser;
use interop_loro::converge::Plan;

const SEEDS: u64 = 3;

/// The browser's way, and those of the Rust peers.
const WAYS: [(Way, [Way; 2]); 4] = [
    (Way::DataChannel, [Way::WebSocket, Way::Sse]),
    (Way::WebSocket, [Way::Sse, Way::Poll]),
    (Way::Sse, [Way::Poll, Way::WebSocket]),
    (Way::Poll, [Way::WebSocket, Way::Sse]),
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask long loro"]
async fn they_converge_by_all_transports() {
    let one = std::env::var("BREAKBULK_LONG_SEED").ok();
    let one: Option<u64> = one.map(|seed| seed.parse().unwrap());
    let seeds = one.map_or(1..=SEEDS, |seed| seed..=seed);
    for seed in seeds {
        for (browser, peers) in WAYS {
            let plan = Plan {
                browser,
                peers,
                time: Duration::from_secs(30),
                seed,
            };
            println!("{plan:?}");
            let browser = Browser::start().await.unwrap();
            let outcome = plan.run(&browser).await.unwrap();
            println!("{outcome:?}");
            assert_eq!(outcome.gaps, 0);
            browser.stop().await.unwrap();
        }
    }
}
