//! How many events a large result takes: between the SDK's client and server, and between this project's.

use breakbulk::contextvm::Keys;
use interop_contextvm::call::Call;
use interop_contextvm::matrix::{EVENT_MAX, LARGE};
use interop_contextvm::ours::{self, Caller};
use interop_contextvm::peer::{Peer, Sdk};
use interop_contextvm::text::Text;
use serde_json::json;

use super::{plain, relay};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn a_large_result_takes_at_most_a_third_of_the_events() {
    let relay = relay().await;
    let call = Call::new(Text::Ascii, 10, LARGE);

    let plan = json!({"relay": relay.url(), "encryption": "disabled"});
    let server = Peer::server(Sdk::Npm, &plan).await.unwrap();
    let client = Peer::client(Sdk::Npm, &server.key, &plan).await;
    let mut client = client.unwrap();
    relay.reset();
    client.call(call).await.unwrap().whole(call).unwrap();
    let theirs = relay.events();

    let server = ours::serve(relay.url(), Keys::generate(), plain())
        .await
        .unwrap();
    let client = Peer::client(Sdk::Npm, &server.public_key(), &plan).await;
    let mut client = client.unwrap();
    relay.reset();
    client.call(call).await.unwrap().whole(call).unwrap();
    let to_theirs = relay.events();
    assert!(relay.largest() <= EVENT_MAX, "{}", relay.largest());

    let client = Caller::connect(relay.url(), Keys::generate(), server.public_key(), plain()).await;
    let mut client = client.unwrap();
    relay.reset();
    client.call(call).await.unwrap().whole(call).unwrap();
    let ours = relay.events();
    assert!(relay.largest() <= EVENT_MAX, "{}", relay.largest());

    println!(
        "{LARGE} bytes: the SDK's pair {theirs} events, ours {ours}, ours to its client {to_theirs}"
    );
    assert!(ours * 3 <= theirs, "{ours} of {theirs}");
    assert!(to_theirs * 3 <= theirs, "{to_theirs} of {theirs}");
}
