//! Results and requests of all sizes, plain and in gift wraps.

use breakbulk_contextvm::{Config, Encryption, Wraps};
use breakbulk_testkit::bad_relay::{BadRelay, Weather};

use super::{connect, echo_server, exchange};

const MB: usize = 1 << 20;

async fn all_sizes(encryption: Encryption, wraps: Wraps) {
    let relay = BadRelay::start(Weather::default()).await.unwrap();
    let config = Config::default().with(|config| {
        config.encryption = encryption;
        config.wraps = wraps;
    });
    let server = echo_server(&[relay.url()], config.clone()).await;
    let client = connect(&server, &[relay.url()], config).await;
    let mut id = 0;
    for kind in 0..3 {
        for (up, down) in [
            (10, 100),
            (10, 200_000),
            (200_000, 10),
            (10, 5 * MB),
            (5 * MB, 10),
        ] {
            id += 1;
            relay.reset();
            let begun = std::time::Instant::now();
            exchange(&client, id, kind, up, down).await;
            let events = relay.events();
            println!(
                "{encryption:?} {wraps:?} kind {kind}: {up} up, {down} down: {events} events, largest {}, {:?}",
                relay.largest(),
                begun.elapsed()
            );
            assert!(relay.largest() <= 64 << 10);
            assert_eq!(relay.refused(), 0);
            let fixed = (5 * MB).div_ceil(11_800) as u64;
            if kind == 0 && encryption == Encryption::Disabled && up.max(down) == 5 * MB {
                assert!(
                    events * 3 <= fixed,
                    "{events} events where fixed chunks take {fixed}"
                );
            }
        }
    }
    client.drained().await;
    server.drained().await;
    for stats in [client.stats(), server.stats()] {
        assert_eq!(
            (stats.memory, stats.transfers, stats.asked, stats.served),
            (0, 0, 0, 0),
            "{stats:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bare() {
    all_sizes(Encryption::Disabled, Wraps::Any).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_wraps_that_relays_keep() {
    all_sizes(Encryption::Required, Wraps::Persistent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_wraps_that_relays_forget() {
    all_sizes(Encryption::Optional, Wraps::Ephemeral).await;
}
