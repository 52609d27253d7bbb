//! Three peers edit one document at once while their connections break.

use std::time::Duration;

use breakbulk::loro::Way;
use interop_loro::browser::Browser;
use interop_loro::converge::Plan;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop loro"]
async fn two_rust_peers_and_a_browser_converge_through_cuts() {
    let plan = Plan {
        browser: Way::DataChannel,
        peers: [Way::WebSocket, Way::Sse],
        time: Duration::from_secs(30),
        seed: 1,
    };
    let browser = Browser::start().await.unwrap();
    let outcome = plan.run(&browser).await.unwrap();
    println!("{plan:?}: {outcome:?}");
    // Each peer made many edits, and lost many connections meanwhile.
    assert!(
        outcome.edits.iter().all(|edits| *edits > 100),
        "{outcome:?}"
    );
    let connections = outcome.connections;
    assert!(connections.iter().all(|opened| *opened > 5), "{outcome:?}");
    assert_eq!(outcome.gaps, 0, "{outcome:?}");
    browser.stop().await.unwrap();
}
