//! The ContextVM tests that take too long for every change: the Rust crate `contextvm-sdk` as a second real
//! peer, the largest texts in gift wraps, and npm's SDK behind a bad relay.
//!
//! It is run by `cargo xtask long contextvm`. `BREAKBULK_LONG_SEED=7` runs that seed alone.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use breakbulk::contextvm::{Config, Encryption, Keys};
use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use interop_contextvm::call::Call;
use interop_contextvm::matrix::{LARGE, Matrix, SIZES, Theirs};
use interop_contextvm::ours::{self, Caller};
use interop_contextvm::peer::{Peer, Sdk};
use interop_contextvm::text::Text;
use serde_json::json;

const SEEDS: u64 = 10;

fn plain() -> Config {
    Config::default().with(|config| config.encryption = Encryption::Disabled)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask long contextvm"]
async fn the_rust_crate_in_both_directions() {
    for theirs in [Theirs::Client, Theirs::Server] {
        for encryption in [Encryption::Disabled, Encryption::Required] {
            let matrix = Matrix {
                sdk: Sdk::Rust,
                theirs,
                encryption,
                chunk: None,
                texts: &Text::ALL,
                sizes: &SIZES,
            };
            matrix.run().await.unwrap();
        }
    }
}

/// Defect 3, with the crate's own client: it reconnects with the same key and waits for `accept`, which this
/// project's server sends each time.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask long contextvm"]
async fn the_rust_crate_comes_back_with_its_key() {
    let relay = BadRelay::start(Weather::default()).await.unwrap();
    let server = ours::serve(relay.url(), Keys::generate(), Config::default()).await;
    let server = server.unwrap();
    let key = Keys::generate().to_secret_hex();
    let call = Call::new(Text::Ascii, 200_000, 10);
    for stateless in [true, true, false, true] {
        let plan = json!({
            "relay": relay.url(), "key": key, "encryption": "disabled", "stateless": stateless,
        });
        let client = Peer::client(Sdk::Rust, &server.public_key(), &plan).await;
        let mut client = client.unwrap();
        client.call(call).await.unwrap().whole(call).unwrap();
        client.stop().await.unwrap();
    }
    // And this project's client with the crate's server, which knows the client's key the second time.
    let server = Peer::server(Sdk::Rust, &json!({"relay": relay.url()})).await;
    let server = server.unwrap();
    let keys = Keys::generate();
    for _ in 0..2 {
        let client = Caller::connect(relay.url(), keys.clone(), server.key, plain()).await;
        let outcome = client.unwrap().call(call).await.unwrap();
        outcome.whole(call).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask long contextvm"]
async fn the_largest_texts_in_gift_wraps() {
    for (theirs, sizes) in [
        (Theirs::Client, [(10, LARGE)]),
        (Theirs::Server, [(LARGE, 10)]),
    ] {
        let matrix = Matrix {
            sdk: Sdk::Npm,
            theirs,
            encryption: Encryption::Required,
            chunk: None,
            texts: &Text::ALL,
            sizes: &sizes,
        };
        matrix.run().await.unwrap();
    }
}

/// Events come late, twice and out of order to both ends: every transfer whose start and end arrive
/// is received whole.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask long contextvm"]
async fn behind_a_bad_relay() {
    let one = std::env::var("BREAKBULK_LONG_SEED").ok();
    let one = one.map(|seed| seed.parse().expect("BREAKBULK_LONG_SEED is no number"));
    let seeds = one.map_or(1..=SEEDS, |seed: u64| seed..=seed);
    for seed in seeds {
        println!("BREAKBULK_LONG_SEED={seed}");
        let weather = Weather {
            delay: Duration::from_millis(200 * seed),
            doubled: 20,
            seed,
            ..Weather::default()
        };
        let relay = BadRelay::start(weather).await.unwrap();
        let (up, down) = (
            Call::new(Text::Ascii, 600_000, 10),
            Call::new(Text::Cjk, 10, 600_000),
        );
        let server = ours::serve(relay.url(), Keys::generate(), plain())
            .await
            .unwrap();
        let key = server.public_key();
        let client = Caller::connect(relay.url(), Keys::generate(), key, plain()).await;
        let mut client = client.unwrap();
        for call in [up, down] {
            client.call(call).await.unwrap().whole(call).unwrap();
        }
        let plan = json!({"relay": relay.url(), "encryption": "disabled"});
        let mut theirs = Peer::client(Sdk::Npm, &key, &plan).await.unwrap();
        theirs.call(down).await.unwrap().whole(down).unwrap();
        theirs.stop().await.unwrap();

        let server = Peer::server(Sdk::Npm, &plan).await.unwrap();
        let client = Caller::connect(relay.url(), Keys::generate(), server.key, plain()).await;
        let mut client = client.unwrap();
        client.call(up).await.unwrap().whole(up).unwrap();
        client.client.drained().await;
        let stats = client.client.stats();
        assert_eq!(
            (stats.memory, stats.transfers, stats.asked),
            (0, 0, 0),
            "{stats:?}"
        );
        server.stop().await.unwrap();
    }
}
