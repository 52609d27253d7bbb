//! Clients and servers over a relay in this process, with real signatures and sockets.

#![cfg(feature = "net")]
#![allow(clippy::unwrap_used)]

mod lies;
#[cfg(feature = "rmcp")]
mod rmcp_program;
mod rough;
mod sizes;
mod told;

use std::time::Duration;

use breakbulk_contextvm::{
    Client, ClientConfig, Config, InboundMessage, Keys, Server, ServerConfig,
};
use breakbulk_net::nostr::RelayOptions;
use serde_json::{Value, json};

/// A time limit for waits that events end.
const PATIENCE: Duration = Duration::from_secs(120);

fn relay_options() -> RelayOptions {
    RelayOptions {
        // A relay in this process serves no document.
        limits: Duration::ZERO,
        reconnect: Duration::from_millis(200),
        ..RelayOptions::default()
    }
}

/// A server whose `echo` answers with a text of the kind and size that the request asks for.
async fn echo_server(relays: &[&str], config: Config) -> Server {
    let mut setup = ServerConfig::new(
        Keys::generate(),
        relays.iter().map(|url| (*url).to_owned()).collect(),
    );
    setup.config = config;
    setup.relay_options = relay_options();
    let server = Server::bind(setup).await.unwrap();
    let serving = server.clone();
    tokio::spawn(async move {
        while let Some(message) = serving.recv().await {
            if let Some(answer) = answer(&message) {
                serving.send(message.peer, answer).await.unwrap();
            }
        }
    });
    server
}

fn answer(message: &InboundMessage) -> Option<String> {
    let request: Value = serde_json::from_slice(&message.bytes).unwrap();
    let id = request.get("id")?;
    if request["method"] == "ping" {
        return Some(json!({"jsonrpc": "2.0", "id": id, "result": {}}).to_string());
    }
    let arguments = &request["params"]["arguments"];
    let size = arguments["answer"].as_u64().unwrap() as usize;
    let heard = arguments["data"].as_str().unwrap();
    let answer = text(arguments["kind"].as_u64().unwrap(), size);
    Some(
        json!({"jsonrpc": "2.0", "id": id, "result": {"heard": heard.len(), "text": answer}})
            .to_string(),
    )
}

async fn connect(server: &Server, relays: &[&str], config: Config) -> Client {
    let relays = relays.iter().map(|url| (*url).to_owned()).collect();
    let mut setup = ClientConfig::new(Keys::generate(), server.public_key(), relays);
    setup.config = config;
    setup.relay_options = RelayOptions {
        back: setup.relay_options.back,
        ..relay_options()
    };
    Client::connect(setup).await.unwrap()
}

/// Sends a text of this kind and size, asks for one, and checks both.
async fn exchange(client: &Client, id: u64, kind: u64, up: usize, down: usize) {
    let data = text(kind, up);
    let request = json!({
        "jsonrpc": "2.0", "id": id, "method": "echo",
        "params": {"arguments": {"answer": down, "data": data, "kind": kind}},
    });
    client.send(request.to_string()).await.unwrap();
    let message = tokio::time::timeout(PATIENCE, client.recv())
        .await
        .unwrap()
        .unwrap();
    let got: Value = serde_json::from_slice(&message.bytes).unwrap();
    let shown: String = got.to_string().chars().take(300).collect();
    assert_eq!(got["result"]["heard"], data.len(), "{shown}");
    assert!(got["result"]["text"] == text(kind, down), "{shown}");
}

/// A text of about `size` bytes.
fn text(kind: u64, size: usize) -> String {
    let unit = match kind {
        0 => "abcdefghijklmnopqrstuvwxyz0123456789",
        1 => "运输大消息🚢",
        _ => "\\",
    };
    unit.repeat(size.div_ceil(unit.len()))
}
