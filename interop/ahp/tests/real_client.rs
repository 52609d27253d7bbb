//! The unmodified client of the crates `ahp` and `ahp-ws` 1.0.0 over a path that lets 1 MB through:
//! between two middle boxes, between two ends of a tunnel, over our transport, and with nothing.
//!
//! They need the program `breakbulk` and are run by `cargo xtask interop ahp`.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::{Duration, Instant};

use ahp::{Client, ClientConfig, SessionSubscription, SubscriptionEvent};
use ahp_types::actions::StateAction;
use ahp_types::commands::{
    ContentEncoding, ResourceReadParams, ResourceReadResult, ResourceWriteParams,
};
use ahp_types::state::SnapshotState;
use ahp_ws::WebSocketTransport;
use breakbulk::ahp::Config;
use breakbulk::ahp::foreign::Sessions;
use breakbulk::ahp::transport::Segmenting;
use breakbulk::link::Cap;
use breakbulk::net::ws::ConnectOptions;
use breakbulk_testkit::bad_path::{BadPath, Counts, Way, Weather};
use interop_ahp::app::{ROOT, SESSION};
use interop_ahp::program::{Gateway, HostProgram};
use interop_ahp::text::{Digest, action, digest, text};

/// What the path lets through, as Azure Web PubSub does.
const CAP: u64 = 1_000_000;
/// A large message.
const BIG: usize = 24_000_000;
/// Actions in a burst.
const BURST: u64 = 10_000;
/// The time limit of a test.
const PATIENCE: Duration = Duration::from_secs(600);

/// The largest frame of a host that is not behind a capped path, and so sends every message in one frame.
const WHOLE: [&str; 3] = ["--whole", "--frame", "33554432"];

async fn start_host(arguments: &[&str]) -> HostProgram {
    let path = env!("CARGO_BIN_EXE_ahp-host");
    HostProgram::start(path, arguments).await.unwrap()
}

async fn capped_path(to: &str) -> BadPath {
    let way = Way {
        frame_cap: Some(CAP),
        message_cap: Some(CAP),
        ..Way::default()
    };
    BadPath::start(to, Weather::both_ways(way)).await.unwrap()
}

/// The client's default settings, except for the two numbers that large messages and bursts need.
fn config() -> ClientConfig {
    ClientConfig {
        default_request_timeout: Some(PATIENCE),
        subscription_buffer: 2 * BURST as usize,
    }
}

async fn real_client(url: &str) -> Client {
    let transport = WebSocketTransport::connect(url).await.unwrap();
    Client::connect(transport, config()).await.unwrap()
}

async fn initialize(
    client: &Client,
) -> Result<ahp_types::commands::InitializeResult, ahp::ClientError> {
    let versions = vec!["1.0.0".to_owned(), "0.9.0".to_owned()];
    let channels = vec![ROOT.to_owned(), SESSION.to_owned()];
    client
        .initialize("live".to_owned(), versions, channels)
        .await
}

/// All large messages and the burst arrive; each is compared by its digest.
async fn all_arrives(client: &Client, host: &mut HostProgram) {
    let said = host
        .ask(&format!("snapshot {BIG} 1"), "snapshot")
        .await
        .unwrap();
    let mut session = client.attach_subscription(SESSION).await;

    let start = Instant::now();
    let initialized = initialize(client).await.unwrap();
    let title = initialized
        .snapshots
        .iter()
        .find_map(|one| match &one.state {
            SnapshotState::Session(state) => Some(&*state.title),
            _ => None,
        });
    let title = title.expect("no state of the session");
    assert_eq!(title.len(), BIG);
    assert_eq!(digest([title]), said[0]);
    tell("snapshot in initialize", start, &said[0]);

    let start = Instant::now();
    host.tell(&format!("publish 1 {BIG} 2")).await.unwrap();
    let (seq, title) = next_title(&mut session).await;
    assert_eq!((seq, title.len()), (1, BIG));
    let said = host.hear().await.unwrap();
    assert_eq!(said, format!("published 1 1 {}", digest([&*title])));
    tell("action", start, &said);

    let start = Instant::now();
    let data = text(3, BIG);
    let sent = digest([&*data]);
    let written: serde_json::Value = client.request("resourceWrite", write(data)).await.unwrap();
    assert_eq!(written["sha256"], *sent);
    tell("resourceWrite", start, &sent);

    let start = Instant::now();
    let read: ResourceReadResult = client.request("resourceRead", read()).await.unwrap();
    assert_eq!(
        (read.data.len(), digest([&*read.data])),
        (BIG, sent.clone())
    );
    tell("resourceRead", start, &sent);

    let start = Instant::now();
    let title = text(4, BIG);
    let sent = digest([&*title]);
    let changed = serde_json::from_str(action(&title).unwrap().get()).unwrap();
    client.dispatch(SESSION.to_owned(), changed).await.unwrap();
    let (seq, title) = next_title(&mut session).await;
    assert_eq!((seq, digest([&*title])), (2, sent.clone()));
    tell("dispatchAction and its echo", start, &sent);

    let start = Instant::now();
    host.tell(&format!("publish {BURST} 100 5")).await.unwrap();
    let mut burst = Digest::default();
    for number in 0..BURST {
        let (seq, title) = next_title(&mut session).await;
        assert_eq!(seq, 3 + number);
        burst.add(&title);
    }
    let burst = burst.hex();
    let said = host.hear().await.unwrap();
    assert_eq!(said, format!("published 3 {} {burst}", 2 + BURST));
    tell("10,000 actions", start, &burst);
}

fn write(data: String) -> ResourceWriteParams {
    ResourceWriteParams {
        channel: SESSION.to_owned(),
        meta: None,
        uri: "file:///live".to_owned(),
        data,
        encoding: ContentEncoding::Utf8,
        content_type: None,
        create_only: None,
        mode: None,
        position: None,
        if_match: None,
    }
}

fn read() -> ResourceReadParams {
    ResourceReadParams {
        channel: SESSION.to_owned(),
        meta: None,
        uri: "file:///live".to_owned(),
        encoding: None,
    }
}

fn tell(what: &str, start: Instant, said: &str) {
    println!("{what}: {:.2} s, {said}", start.elapsed().as_secs_f64());
}

async fn next_title(session: &mut SessionSubscription) -> (u64, String) {
    match session.recv().await {
        Some(SubscriptionEvent::Action(envelope)) => match envelope.action {
            StateAction::SessionTitleChanged(changed) => (envelope.server_seq, changed.title),
            other => panic!("another action: {other:?}"),
        },
        other => panic!("no action: {other:?}"),
    }
}

/// The path refused no message, and all bytes went over it.
fn passed_the_cap(counts: Counts) {
    println!("{counts:?}");
    for (passed, bytes) in [(counts.from_client, 2 * BIG), (counts.from_target, 4 * BIG)] {
        assert_eq!(passed.blocked, 0);
        assert!(passed.largest_frame <= CAP && passed.largest_message <= CAP);
        assert!(passed.bytes > bytes as u64);
    }
    assert_eq!((counts.accepted, counts.cuts), (1, 0));
}

async fn between_gateways(tunnel: &str) {
    let mut host = start_host(&WHOLE).await;
    let to = format!("whole+ws://{}", host.address);
    let before_host = Gateway::start(&format!("ws://0?tunnel={tunnel}"), &to)
        .await
        .unwrap();
    let path = capped_path(&before_host.address).await;
    let to = format!("ws://{}?tunnel={tunnel}", path.address());
    let before_client = Gateway::start("whole+ws://0", &to).await.unwrap();
    let client = real_client(&format!("ws://{}", before_client.address)).await;
    all_arrives(&client, &mut host).await;
    passed_the_cap(path.counts());
    client.shutdown().await;
    before_client.stop().await.unwrap();
    before_host.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop ahp"]
async fn the_real_client_and_a_plain_host_between_two_middle_boxes() {
    let test = between_gateways("never");
    tokio::time::timeout(PATIENCE, test).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop ahp"]
async fn the_real_client_and_a_plain_host_through_a_tunnel() {
    let test = between_gateways("always");
    tokio::time::timeout(PATIENCE, test).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop ahp"]
async fn the_real_client_over_our_transport_and_our_host() {
    let test = async {
        let mut host = start_host(&[]).await;
        let path = capped_path(&host.address).await;
        let capped = Config::default().with(|config| config.cap = Cap::frame(900_000));
        let url = format!("ws://{}", path.address());
        let options = ConnectOptions::default();
        let transport = Segmenting::connect(&url, &options, capped, Sessions::default());
        let client = Client::connect(transport.await.unwrap(), config());
        let client = client.await.unwrap();
        all_arrives(&client, &mut host).await;
        passed_the_cap(path.counts());
        client.shutdown().await;
    };
    tokio::time::timeout(PATIENCE, test).await.unwrap();
}

/// Shows that the cap takes effect: without gateways it ends the connection.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop ahp"]
async fn with_nothing_between_the_cap_ends_the_connection() {
    let test = async {
        let mut host = start_host(&WHOLE).await;
        let path = capped_path(&host.address).await;
        let url = format!("ws://{}", path.address());

        // From the client.
        let client = real_client(&url).await;
        initialize(&client).await.unwrap();
        let request = client.request::<_, serde_json::Value>("resourceWrite", write(text(3, BIG)));
        let error = request.await.unwrap_err();
        println!("resourceWrite: {error}");
        let counts = path.until(|counts| counts.from_client.blocked == 1).await;
        assert_eq!(counts.from_target.blocked, 0);
        drop(client);

        // From the host.
        let client = real_client(&url).await;
        host.ask(&format!("snapshot {BIG} 1"), "snapshot")
            .await
            .unwrap();
        let error = initialize(&client).await.unwrap_err();
        println!("initialize: {error}");
        let counts = path.until(|counts| counts.from_target.blocked == 1).await;
        assert_eq!(counts.from_client.blocked, 1);
        assert!(
            counts
                .from_client
                .largest_message
                .max(counts.from_target.largest_message)
                <= CAP
        );
    };
    tokio::time::timeout(PATIENCE, test).await.unwrap();
}
