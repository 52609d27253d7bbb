//! Clients and servers with all pairs of settings: the defaults, encryption, sessions or none, and CEP-41.

use std::time::Duration;

use breakbulk::contextvm::{Config, Encryption, Keys};
use interop_contextvm::call::{Call, MODERN, Outcome};
use interop_contextvm::ours::{self, Caller};
use interop_contextvm::peer::{Peer, Sdk};
use interop_contextvm::text::Text;
use serde_json::json;

use super::{patient, plain, relay};

/// The SDK and this project in both roles with default settings, with a session and without.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn by_default_they_meet() {
    let relay = relay().await;
    let server = ours::serve(relay.url(), Keys::generate(), Config::default()).await;
    let server = server.unwrap();
    let (small, down) = (
        Call::new(Text::Cjk, 10, 100),
        Call::new(Text::Cjk, 10, 200_000),
    );
    for stateless in [false, true] {
        let plan = json!({"relay": relay.url(), "stateless": stateless});
        let client = Peer::client(Sdk::Npm, &server.public_key(), &plan).await;
        let mut client = client.unwrap();
        for call in [small, down] {
            client.call(call).await.unwrap().whole(call).unwrap();
        }
        assert_eq!(client.failures(), Vec::<String>::new());
    }
    let server = Peer::server(Sdk::Npm, &json!({"relay": relay.url()})).await;
    let server = server.unwrap();
    let up = Call::new(Text::Cjk, 200_000, 10);
    for session in [true, false] {
        let keys = Keys::generate();
        let client = Caller::connect(relay.url(), keys, server.key, Config::default()).await;
        let mut client = client.unwrap();
        if session {
            let begun = client.initialize().await.unwrap();
            assert_eq!(begun["result"]["serverInfo"]["name"], "real", "{begun}");
        }
        for call in [small, up] {
            client.call(call).await.unwrap().whole(call).unwrap();
        }
    }
    assert_eq!(server.failures(), Vec::<String>::new());
}

/// MCP 2026-07-28 passes unchanged: its client is not taken for one that left out `initialize`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn the_mcp_that_knows_no_initialize_meets_both_ways() {
    let relay = relay().await;
    let server = ours::serve(relay.url(), Keys::generate(), Config::default()).await;
    let server = server.unwrap();
    let plan = json!({"relay": relay.url(), "modern": true, "encryption": "disabled"});
    let client = Peer::client(Sdk::Npm, &server.public_key(), &plan).await;
    let mut client = client.unwrap();
    assert_eq!(client.version.as_deref(), Some(MODERN));
    let sizes = [(10, 100), (10, 200_000), (200_000, 10)];
    let calls = sizes.map(|(up, down)| Call::new(Text::Cjk, up, down));
    for call in calls {
        client.call(call).await.unwrap().whole(call).unwrap();
    }
    assert_eq!(client.failures(), Vec::<String>::new());

    let server = Peer::server(Sdk::Npm, &plan).await.unwrap();
    let client = Caller::connect(relay.url(), Keys::generate(), server.key, plain()).await;
    let mut client = client.unwrap();
    let known = client.discover().await.unwrap();
    assert_eq!(
        known["result"]["supportedVersions"],
        json!([MODERN]),
        "{known}"
    );
    for (id, call) in (10..).zip(calls) {
        let asked = client.ask(call.modern_request(id)).await;
        asked.unwrap().whole(call).unwrap();
    }
    assert_eq!(server.failures(), Vec::<String>::new());
}

/// All pairs of encryption settings: compatible ones work, and others give the caller an error.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn encryption_by_both_sides_settings() {
    let relay = relay().await;
    let settings = [
        ("disabled", Encryption::Disabled),
        ("optional", Encryption::Optional),
        ("required", Encryption::Required),
    ];
    let call = Call::new(Text::Ascii, 10, 10);
    // A client that may encrypt always does; it never falls back to plain events.
    let meet = |client, server| match client {
        Encryption::Disabled => server != Encryption::Required,
        _ => server != Encryption::Disabled,
    };
    for (client_name, client_mode) in settings {
        for (server_name, server_mode) in settings {
            let expected = meet(client_mode, server_mode);
            let patience = Duration::from_secs(if expected { 60 } else { 1 });
            let config = |encryption| {
                patient(plain(), patience).with(|config| config.encryption = encryption)
            };
            let server = ours::serve(relay.url(), Keys::generate(), config(server_mode));
            let server = server.await.unwrap();
            // With a session the SDK's client would wait a minute for the answer to its `initialize`.
            let plan = json!({"relay": relay.url(), "encryption": client_name, "stateless": true});
            let client = Peer::client(Sdk::Npm, &server.public_key(), &plan).await;
            let mut client = client.unwrap();
            let id = client.begin(call, Some(patience)).await.unwrap();
            let theirs = matches!(client.outcome(id).await.unwrap(), Outcome::Answered(_));

            let plan = json!({"relay": relay.url(), "encryption": server_name});
            let server = Peer::server(Sdk::Npm, &plan).await.unwrap();
            let keys = Keys::generate();
            let client = Caller::connect(relay.url(), keys, server.key, config(client_mode)).await;
            let ours = client.unwrap().call(call).await.unwrap();
            let ours = matches!(ours, Outcome::Answered(_));
            println!(
                "client {client_name:<8} server {server_name:<8}: their client {theirs}, ours {ours}"
            );
            assert_eq!(
                (theirs, ours),
                (expected, expected),
                "{client_name} {server_name}"
            );
        }
    }
}

/// Frames of CEP-41 under the token of a transfer count as progress and do not disturb the transfer.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn frames_of_an_open_stream_touch_no_transfer() {
    let relay = relay().await;
    let server = Peer::server(Sdk::Npm, &json!({"relay": relay.url()})).await;
    let server = server.unwrap();
    let client = Caller::connect(relay.url(), Keys::generate(), server.key, plain()).await;
    let client = client.unwrap();
    let call = Call {
        stream: true,
        ..Call::new(Text::Ascii, 10, 200_000)
    };
    let mut request: serde_json::Value = serde_json::from_str(&call.request(1)).unwrap();
    request["params"]["_meta"] = json!({"progressToken": "mine"});
    let answer = client.ask(request.to_string()).await.unwrap().whole(call);
    assert!(answer.unwrap().progress > 3, "theirs and the transfer's");

    // A client that accepts a stream gets an ordinary answer all the same.
    let server = ours::serve(relay.url(), Keys::generate(), plain())
        .await
        .unwrap();
    let plan = json!({"relay": relay.url(), "encryption": "disabled", "openStream": true});
    let client = Peer::client(Sdk::Npm, &server.public_key(), &plan).await;
    let mut client = client.unwrap();
    let call = Call::new(Text::Ascii, 10, 200_000);
    client.call(call).await.unwrap().whole(call).unwrap();
    assert_eq!(client.failures(), Vec::<String>::new());
}
