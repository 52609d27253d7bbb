//! A document of 2 MB goes from this project's server to the browser and another one back, despite every cap.

use std::path::Path;
use std::time::{Duration, Instant};

use breakbulk::loro::{Doc, Event, Way};
use breakbulk_testkit::bad_path::{BadPath, Way as PathWay, Weather};
use interop_loro::browser::{Browser, Counts, Page};
use interop_loro::content::{Random, edit, fill};
use interop_loro::server::{POST_CAP, Server};
use interop_loro::state::{State, until};
use loro::ExportMode;
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

const SIZE: usize = 2_000_000;

/// The time limit for a document to arrive.
const PATIENCE: Duration = Duration::from_secs(45);

/// The most bytes in a message of a WebSocket.
const MESSAGE_CAP: u64 = 128 << 10;

/// The most bytes in a message of a data channel, as its description says.
const CHANNEL_CAP: u64 = 256 << 10;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop loro"]
async fn two_megabytes_each_way_by_websocket_in_messages_of_128_kb() {
    let server = Server::start().await.unwrap();
    let cap = PathWay {
        message_cap: Some(MESSAGE_CAP),
        ..PathWay::default()
    };
    let weather = Weather::both_ways(cap);
    let path = BadPath::start(server.address, weather).await.unwrap();
    let url = format!("http://{}", path.address());
    let counts = both_ways(&server, Way::WebSocket, &url).await;
    assert!(counts.sent.largest <= MESSAGE_CAP, "{counts:?}");
    assert!(counts.received.largest <= MESSAGE_CAP, "{counts:?}");
    let passed = path.counts();
    assert_eq!(passed.from_client.blocked + passed.from_target.blocked, 0);
    assert_eq!(passed.from_client.largest_message, counts.sent.largest);
    assert_eq!(passed.from_target.largest_message, counts.received.largest);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop loro"]
async fn two_megabytes_each_way_by_events_and_posts_of_100_kb() {
    with_posts(Way::Sse).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop loro"]
async fn two_megabytes_each_way_by_polls_and_posts_of_100_kb() {
    with_posts(Way::Poll).await;
}

async fn with_posts(way: Way) {
    let server = Server::start().await.unwrap();
    let counts = both_ways(&server, way, &server.url()).await;
    // All messages that the page counted as sent have arrived; it may have sent one more after the count.
    let (sent, came) = (&counts.sent, server.posts());
    assert_eq!(sent.largest, came.largest);
    assert!(
        (sent.messages..=sent.messages + 2).contains(&came.messages),
        "{sent:?}, {came:?}"
    );
    assert!(
        (sent.bytes..sent.bytes + 1000).contains(&came.bytes),
        "{sent:?}, {came:?}"
    );
    assert!(counts.sent.largest <= POST_CAP, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop loro"]
async fn two_megabytes_each_way_by_data_channel() {
    let server = Server::start().await.unwrap();
    let counts = both_ways(&server, Way::DataChannel, &server.url()).await;
    assert!(counts.sent.largest <= CHANNEL_CAP, "{counts:?}");
    assert!(counts.received.largest <= CHANNEL_CAP, "{counts:?}");
    assert_eq!(server.posts().messages, 0);
}

/// Syncs a document each way, then an edit each way, and tells what the page counted.
async fn both_ways(server: &Server, way: Way, url: &str) -> Counts {
    let browser = Browser::start().await.unwrap();
    let page = browser.page("large", way, url).await.unwrap();
    let down = server.node.open("down").await.unwrap();
    fill(&down.loro(), SIZE, 1).unwrap();
    down.kept().await.unwrap();
    let ours = State::of(&down.loro());
    let theirs = page.fill("up", SIZE, 2).await.unwrap();
    assert!(ours.bytes > SIZE && theirs.bytes > SIZE);

    let start = Instant::now();
    let mut events = server.node.events();
    page.connect().await.unwrap();
    let rises = async {
        // If the server opened the document earlier, it would request it once more.
        changed(&mut events, "up").await;
        let up = server.node.open("up").await.unwrap();
        let state = until(&up, &theirs.version).await;
        (up, state)
    };
    let (came_down, (up, came_up)) = tokio::join!(page.until("down", &ours.version), rises);
    println!(
        "{way:?}: 2 MB each way in {:.2} s",
        start.elapsed().as_secs_f64()
    );
    assert_eq!(came_down.unwrap(), ours, "{way:?}");
    assert_eq!(came_up.unwrap(), theirs, "{way:?}");

    edits(&page, &down, &up).await;
    let counts = page.counts().await.unwrap();
    println!("{way:?}: {counts:?}");
    // Each document was sent once, over one connection. Events and answers to polls are base64.
    let sizes = [(&up, counts.sent.bytes), (&down, counts.received.bytes)];
    for (doc, passed) in sizes {
        let snapshot = doc.loro().export(ExportMode::Snapshot).unwrap().len() as u64;
        assert!(
            snapshot > SIZE as u64,
            "{way:?}: a snapshot of {snapshot} bytes"
        );
        let once = snapshot..snapshot / 2 * 3;
        assert!(
            once.contains(&passed),
            "{way:?}: {passed} bytes for {snapshot}"
        );
    }
    assert_eq!((counts.opened, counts.gaps), (1, 0));
    let name = format!("loro-{}.png", format!("{way:?}").to_lowercase());
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    page.screenshot(&picture).await.unwrap();
    browser.stop().await.unwrap();
    counts
}

/// Waits until a document changed on the server.
async fn changed(events: &mut Receiver<Event>, wanted: &str) {
    let changes = async {
        loop {
            match events.recv().await {
                Ok(Event::Changed { doc, .. }) if &*doc == wanted => return,
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => panic!("the server has ended"),
            }
        }
    };
    let changed = timeout(PATIENCE, changes).await;
    changed.unwrap_or_else(|_| panic!("no {wanted} within {PATIENCE:?}"));
}

/// Later edits are synced without a request.
async fn edits(page: &Page, down: &Doc, up: &Doc) {
    edit(&down.loro(), "server", 0, &mut Random::new(3)).unwrap();
    let edited = State::of(&down.loro());
    assert_eq!(page.until("down", &edited.version).await.unwrap(), edited);
    let edited: State = page.ask("edit", json!(["up", 4])).await.unwrap();
    assert_eq!(until(up, &edited.version).await.unwrap(), edited);
}
