//! Tests of publishing at relays: each event is delivered once, and each publication has an outcome.

#![cfg(feature = "net")]
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::time::Duration;

use breakbulk_contextvm::envelope::{Draft, Signed, open, sign};
use breakbulk_contextvm::{Keys, Seal};
use breakbulk_net::nostr::{Batch, Event, Outcome, RelayOptions, Relays};
use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use breakbulk_testkit::log::{Level, Log};
use tokio::sync::mpsc;
use tokio::time::timeout;

const SEALS: [Seal; 3] = [Seal::Plain, Seal::Persistent, Seal::Ephemeral];

const PATIENCE: Duration = Duration::from_secs(60);

fn options() -> RelayOptions {
    RelayOptions {
        limits: Duration::ZERO,
        reconnect: Duration::from_millis(100),
        ..RelayOptions::default()
    }
}

struct End {
    keys: Keys,
    relays: Relays,
    batches: mpsc::Receiver<Batch>,
    events: VecDeque<Event>,
}

impl End {
    async fn new(relays: &[&BadRelay]) -> Self {
        Self::with(relays, &options()).await
    }

    async fn with(relays: &[&BadRelay], options: &RelayOptions) -> Self {
        let keys = Keys::generate();
        let urls: Vec<String> = relays.iter().map(|relay| relay.url().to_owned()).collect();
        let (relays, batches) =
            Relays::open(&urls, keys.as_nostr(), SEALS.map(Seal::kind), options)
                .await
                .unwrap();
        Self {
            keys,
            relays,
            batches,
            events: VecDeque::new(),
        }
    }

    fn sign(&self, to: &Self, content: &str, seal: Seal) -> Signed {
        let to = to.keys.public_key();
        let draft = Draft {
            to,
            content: content.to_owned(),
            tags: vec![vec!["p".to_owned(), to.to_hex()]],
            seal,
        };
        sign(&self.keys, draft).unwrap()
    }

    async fn publish(&self, to: &Self, content: &str, seal: Seal) -> Outcome {
        let event = self.sign(to, content, seal).event;
        timeout(PATIENCE, self.relays.publish(event)).await.unwrap()
    }

    async fn next(&mut self) -> String {
        if self.events.is_empty() {
            let batch = timeout(PATIENCE, self.batches.recv()).await;
            self.events.extend(batch.unwrap().unwrap().events);
        }
        let event = self.events.pop_front().unwrap();
        open(&self.keys, event).unwrap().content
    }
}

async fn relay(weather: Weather) -> BadRelay {
    BadRelay::start(weather).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_two_relays_each_event_comes_once() {
    let (one, two) = (
        relay(Weather::default()).await,
        relay(Weather::default()).await,
    );
    let from = End::new(&[&one, &two]).await;
    let mut to = End::new(&[&one, &two]).await;
    for (number, seal) in SEALS.into_iter().enumerate() {
        let text = number.to_string();
        assert_eq!(from.publish(&to, &text, seal).await, Outcome::Accepted);
        assert_eq!(to.next().await, text);
    }
    // The same event published again is not delivered again.
    let again = from.sign(&to, "again", Seal::Plain).event;
    assert_eq!(from.relays.publish(again.clone()).await, Outcome::Accepted);
    assert_eq!(from.relays.publish(again).await, Outcome::Accepted);
    assert_eq!(
        from.publish(&to, "last", Seal::Plain).await,
        Outcome::Accepted
    );
    assert_eq!(to.next().await, "again");
    assert_eq!(to.next().await, "last");
    assert_eq!(from.relays.limit(), 65_536);
}

#[tokio::test]
async fn too_large_is_told_apart_and_one_relay_that_takes_it_is_enough() {
    let small = relay(Weather {
        event_max: 1_000,
        ..Weather::default()
    })
    .await;
    let from = End::new(&[&small]).await;
    let large = "x".repeat(2_000);
    let outcome = from.publish(&from, &large, Seal::Plain).await;
    let Outcome::TooLarge { reason } = outcome else {
        panic!("{outcome:?}");
    };
    assert!(reason.contains("too large"), "{reason}");
    let large_relay = relay(Weather::default()).await;
    let both = End::new(&[&small, &large_relay]).await;
    let log = Log::capture();
    assert_eq!(
        both.publish(&from, &large, Seal::Plain).await,
        Outcome::Accepted
    );
    log.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_wants_a_pause_gets_it() {
    // After the first few events the relay accepts one a second.
    let slow = relay(Weather {
        per_minute: 60,
        ..Weather::default()
    })
    .await;
    let from = End::new(&[&slow]).await;
    let mut to = End::new(&[&slow]).await;
    let mut published = tokio::task::JoinSet::new();
    for number in 0..63 {
        let event = from.sign(&to, &number.to_string(), Seal::Plain).event;
        let relays = from.relays.clone();
        published.spawn(async move { relays.publish(event).await });
    }
    let outcomes = timeout(PATIENCE, published.join_all()).await.unwrap();
    assert!(
        outcomes.iter().all(|outcome| *outcome == Outcome::Accepted),
        "{outcomes:?}"
    );
    for _ in 0..63 {
        to.next().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_is_made_again_and_the_subscription_with_it() {
    let relay = relay(Weather {
        shim: true,
        ..Weather::default()
    })
    .await;
    let from = End::new(&[&relay]).await;
    let mut to = End::new(&[&relay]).await;
    assert_eq!(
        from.publish(&to, "before", Seal::Plain).await,
        Outcome::Accepted
    );
    assert_eq!(to.next().await, "before");
    relay.cut();
    // A gift wrap that relays store arrives even if the subscription is made after it.
    assert_eq!(
        from.publish(&to, "after", Seal::Persistent).await,
        Outcome::Accepted
    );
    assert_eq!(to.next().await, "after");
}

/// An outage cuts off both ends; the one that reconnects later has missed events that relays do not store.
// CEP22-25
#[tokio::test]
async fn what_came_while_its_receiver_was_cut_off_comes_again() {
    let log = Log::capture();
    let relay = relay(Weather {
        shim: true,
        ..Weather::default()
    })
    .await;
    let from = End::new(&[&relay]).await;
    let mut to = End::with(
        &[&relay],
        &RelayOptions {
            // Later than the other end, whatever random time is added to or subtracted from both.
            reconnect: Duration::from_secs(7),
            ..options()
        },
    )
    .await;
    relay.cut();
    for seal in [Seal::Plain, Seal::Ephemeral] {
        let text = format!("{seal:?}");
        assert_eq!(from.publish(&to, &text, seal).await, Outcome::Accepted);
    }
    let mut heard = [to.next().await, to.next().await];
    heard.sort();
    assert_eq!(heard, ["Ephemeral", "Plain"]);
    let line = [
        "sent recent events again after an outage of the relay",
        relay.url(),
        "events=2",
    ];
    log.assert_line(Level::INFO, &line);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_must_say_who_it_is_does() {
    let relay = relay(Weather {
        auth: true,
        ..Weather::default()
    })
    .await;
    let from = End::new(&[&relay]).await;
    let mut to = End::new(&[&relay]).await;
    assert_eq!(
        from.publish(&to, "hello", Seal::Ephemeral).await,
        Outcome::Accepted
    );
    assert_eq!(to.next().await, "hello");
}
