//! Tests of the client against a scripted host.
#![allow(clippy::unwrap_used)]

#[path = "client/drops.rs"]
mod drops;
#[path = "client/handshake.rs"]
mod handshake;
#[path = "client/hostile.rs"]
mod hostile;
#[path = "client/ours.rs"]
mod ours;
#[path = "client/scripted.rs"]
mod scripted;
#[path = "client/sizes.rs"]
mod sizes;
#[path = "client/waiting.rs"]
mod waiting;

use breakbulk_ahp::{Client, ClientConfig, Event};
use breakbulk_net::memory;
use scripted::{Raw, welcome};

/// An event in a few words, for comparison.
fn short(event: Option<Event>) -> String {
    match event {
        None => "nothing".to_owned(),
        Some(Event::Snapshot(one)) => format!("state of {} at {}", one.resource, one.from_seq),
        Some(Event::Action(one)) => format!("action {}", one.seq),
        Some(Event::Notification { method, .. }) => format!("notification {method}"),
        Some(Event::Request(one)) => format!("request {}", one.method),
        Some(Event::Other(text)) => format!("other {text}"),
        Some(Event::Disconnected { closed, unsent }) => {
            format!(
                "closed {} {:?} unsent {unsent:?}",
                closed.code, closed.reason
            )
        }
        Some(other) => format!("{other:?}"),
    }
}

async fn next(client: &Client) -> String {
    short(client.next().await)
}

/// A connected client that saw everything up to 420, and its host.
async fn connected(config: ClientConfig) -> (Client, Raw) {
    let client = Client::new(config);
    let host = start(&client).await;
    (client, host)
}

async fn start(client: &Client) -> Raw {
    let (ours, theirs) = memory::pair(16);
    let mut host = Raw::new(theirs);
    let answer = async {
        let request = host.hear().await;
        host.say(welcome(&request, 420, "{}", Some(&Default::default())))
            .await;
    };
    let (initialized, ()) = tokio::join!(client.initialize(ours, &["ahp-root://"]), answer);
    assert_eq!(initialized.unwrap().server_seq, 420);
    assert_eq!(next(client).await, "state of ahp-root:// at 420");
    host
}
