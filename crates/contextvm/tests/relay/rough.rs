//! Relays that are slow, send duplicates, limit rates, ask for authentication, refuse events, or are gone.

use std::time::Duration;

use breakbulk_contextvm::{Config, Encryption, Keys, OpenError, Server, ServerConfig, Wraps};
use breakbulk_net::nostr::RelaysError;
use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use breakbulk_testkit::log::{Level, Log};

use super::{PATIENCE, connect, echo_server, exchange, relay_options};

fn plain() -> Config {
    Config::default().with(|config| config.encryption = Encryption::Disabled)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_are_late_doubled_and_out_of_order() {
    let relay = BadRelay::start(Weather {
        delay: Duration::from_millis(100),
        doubled: 20,
        seed: 7,
        ..Weather::default()
    })
    .await
    .unwrap();
    for encryption in [Encryption::Disabled, Encryption::Required] {
        let config = Config::default().with(|config| config.encryption = encryption);
        let server = echo_server(&[relay.url()], config.clone()).await;
        let client = connect(&server, &[relay.url()], config).await;
        exchange(&client, 1, 0, 600_000, 600_000).await;
        exchange(&client, 2, 1, 100_000, 100_000).await;
    }
}

#[tokio::test]
async fn a_relay_that_takes_less_than_it_should() {
    let log = Log::capture();
    let relay = BadRelay::start(Weather {
        event_max: 30_000,
        ..Weather::default()
    })
    .await
    .unwrap();
    let server = echo_server(&[relay.url()], plain()).await;
    let client = connect(&server, &[relay.url()], plain()).await;
    exchange(&client, 1, 0, 10, 10).await;
    exchange(&client, 2, 0, 300_000, 300_000).await;
    assert!(relay.refused() > 0);
    let line = [
        "a relay refused an event as too large; smaller pieces are tried once",
        "limit 30000",
    ];
    log.assert_line(Level::INFO, &line);
    // Both ends have learned the smaller size.
    relay.reset();
    exchange(&client, 3, 0, 300_000, 300_000).await;
    assert_eq!(relay.refused(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_asks_who_is_there() {
    let relay = BadRelay::start(Weather {
        auth: true,
        ..Weather::default()
    })
    .await
    .unwrap();
    let server = echo_server(&[relay.url()], plain()).await;
    let client = connect(&server, &[relay.url()], plain()).await;
    exchange(&client, 1, 0, 100_000, 100_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_of_which_one_is_bad_or_gone() {
    let good = BadRelay::start(Weather::default()).await.unwrap();
    let bad = BadRelay::start(Weather {
        event_max: 100,
        ..Weather::default()
    })
    .await
    .unwrap();
    let relays = [good.url(), bad.url()];
    let server = echo_server(&relays, plain()).await;
    let client = connect(&server, &relays, plain()).await;
    exchange(&client, 1, 0, 200_000, 200_000).await;
    drop(bad);
    exchange(&client, 2, 1, 200_000, 200_000).await;
    // Over two good relays every event arrives twice, and counts once.
    let second = BadRelay::start(Weather::default()).await.unwrap();
    let relays = [good.url(), second.url()];
    let server = echo_server(&relays, plain()).await;
    let client = connect(&server, &relays, plain()).await;
    exchange(&client, 1, 0, 10, 10).await;
    exchange(&client, 2, 0, 10, 10).await;
    assert_eq!(server.stats().served, 0);
}

#[tokio::test]
async fn no_relay_is_a_clear_error() {
    let bind = |relays: Vec<String>| {
        let mut setup = ServerConfig::new(Keys::generate(), relays);
        setup.relay_options = relay_options();
        setup.relay_options.connect = Duration::from_millis(500);
        Server::bind(setup)
    };
    let none = bind(vec![]).await.err().unwrap();
    assert_eq!(none, OpenError::Relays(RelaysError::None));
    let wrong = bind(vec!["https://example.org".to_owned()])
        .await
        .err()
        .unwrap();
    assert!(
        wrong.to_string().contains("write it as ws:// or wss://"),
        "{wrong}"
    );
    // A port on which nothing listens.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    drop(listener);
    let gone = bind(vec![url]).await.err().unwrap();
    assert!(gone.to_string().contains("none of 1 relays"), "{gone}");
}

/// For example a relay that accepts events only of listed authors.
#[tokio::test]
async fn what_no_relay_takes_is_an_error_and_in_the_log() {
    let log = Log::capture();
    let relay = BadRelay::start(Weather::default()).await.unwrap();
    let server = echo_server(&[relay.url()], plain()).await;
    let client = connect(&server, &[relay.url()], plain()).await;
    exchange(&client, 1, 0, 10, 10).await;
    relay.refuse_all(true);
    let request = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
    client.send(request).await.unwrap();
    let told = tokio::time::timeout(PATIENCE, client.recv()).await;
    let told = told.unwrap().unwrap();
    let told = std::str::from_utf8(&told.bytes).unwrap();
    assert!(told.contains(r#""reason":"lost""#), "{told}");
    let warning = ["no relay accepted an event", "blocked: not for you"];
    log.assert_line(Level::WARN, &warning);
    // The next message is sent as usual.
    relay.refuse_all(false);
    exchange(&client, 3, 0, 10, 10).await;
}

// CEP22-25, CEP22-26
/// A restarted relay or a broken network cuts off both ends. The relay sends what it has stored, newest
/// first; events that it does not store are published again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_all_connections_are_cut_the_transfer_arrives() {
    let mut cases = tokio::task::JoinSet::new();
    for wraps in [Wraps::Persistent, Wraps::Ephemeral] {
        for after in [1, 2, 4, 9, 15, 20, 40] {
            cases.spawn(async move {
                let relay = BadRelay::start(Weather {
                    shim: true,
                    ..Weather::default()
                })
                .await
                .unwrap();
                let config = Config::default().with(|config| {
                    config.encryption = Encryption::Required;
                    config.wraps = wraps;
                });
                let server = echo_server(&[relay.url()], config.clone()).await;
                let client = connect(&server, &[relay.url()], config).await;
                let cutting = async {
                    while relay.events() < after {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    relay.cut();
                };
                println!("{wraps:?}, cut after {after} events");
                tokio::join!(exchange(&client, 1, 0, 10, 1_500_000), cutting);
                println!("{wraps:?}, cut after {after} events: arrived");
            });
        }
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}
