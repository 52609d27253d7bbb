//! `breakbulk demo contextvm`: an MCP server's result of 5 MB over a Nostr relay with events of up to 64 KiB.

use std::time::{Duration, Instant};

use breakbulk::contextvm::envelope::{Draft, sign};
use breakbulk::contextvm::{
    Client, ClientConfig, Config, Encryption, Keys, Seal, Server, ServerConfig,
};
use breakbulk::message::jsonrpc;
use breakbulk::net::nostr::{Outcome, RelayOptions, Relays};
use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;
use crate::size;

const RESULT: usize = 5_000_000;

/// The relay's limit on an event.
const EVENT: usize = 64 << 10;

pub(super) async fn show(out: &mut Output) -> Result<(), Failure> {
    let relay = BadRelay::start(Weather {
        event_max: EVENT,
        ..Weather::default()
    })
    .await
    .map_err(|error| failed(&error))?;
    out.line(&format!(
        "An MCP server's result of {}, over a Nostr relay that takes events of {}.\n",
        size::show(RESULT),
        size::show(EVENT)
    ))?;

    match as_one_event(&relay).await? {
        Outcome::TooLarge { reason } => out.line(&format!("as one event    {reason}"))?,
        Outcome::Accepted => return Err(failed("the relay let through what is over its cap")),
        Outcome::Lost { reason } => return Err(failed(&reason)),
    }

    for (encryption, way) in [
        (Encryption::Disabled, "in chunks      "),
        (Encryption::Required, "gift-wrapped   "),
    ] {
        relay.reset();
        let config = Config::default().with(|config| config.encryption = encryption);
        let start = Instant::now();
        let answer = call(&relay, config).await?;
        let seconds = start.elapsed().as_secs_f64();
        if answer["result"]["content"][0]["text"] != text() {
            return Err(failed("the result came changed"));
        }
        if relay.refused() > 0 || relay.largest() > EVENT {
            return Err(failed("the relay met an event over its cap"));
        }
        out.line(&format!(
            "{way} {} as {} events, the largest {} bytes, in {seconds:.2} s; the same byte for byte",
            size::show(RESULT),
            relay.events(),
            relay.largest()
        ))?;
    }
    out.line("\nThe relay saw no other event over its cap.\n")?;
    out.line("Try it: breakbulk keygen KEY")?;
    out.line("        breakbulk gateway --listen 'cep22+nostr:wss://RELAY?key=KEY' --to 'exec:my-mcp-server'")?;
    out.line(
        "        breakbulk gateway --listen stdio: --to 'cep22+nostr:wss://RELAY?server=PUBKEY'",
    )
}

/// Publishes the whole result as one event; returns the relay's response.
async fn as_one_event(relay: &BadRelay) -> Result<Outcome, Failure> {
    let (keys, client) = (Keys::generate(), Keys::generate().public_key());
    let relays = [relay.url().to_owned()];
    let opened = Relays::open(
        &relays,
        keys.as_nostr(),
        [Seal::Plain.kind()],
        &without_limits_lookup(RelayOptions::default()),
    )
    .await;
    // No events are expected.
    let (relays, _events) = opened.map_err(|error| failed(&error))?;
    let draft = Draft {
        to: client,
        content: result(),
        tags: vec![vec!["p".to_owned(), client.to_hex()]],
        seal: Seal::Plain,
    };
    let signed = sign(&keys, draft).map_err(|error| failed(&error))?;
    Ok(relays.publish(signed.event).await)
}

/// A new client requests the result from a new server.
async fn call(relay: &BadRelay, config: Config) -> Result<Value, Failure> {
    let relays = || vec![relay.url().to_owned()];
    let mut setup = ServerConfig::new(Keys::generate(), relays());
    setup.config = config.clone();
    setup.relay_options = without_limits_lookup(setup.relay_options);
    let server = Server::bind(setup).await.map_err(|error| failed(&error))?;
    let mut setup = ClientConfig::new(Keys::generate(), server.public_key(), relays());
    setup.config = config;
    setup.relay_options = without_limits_lookup(setup.relay_options);
    let client = Client::connect(setup)
        .await
        .map_err(|error| failed(&error))?;
    let request =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"blob","arguments":{}}}"#;
    client.send(request).await.map_err(|error| failed(&error))?;
    let asked = server.recv().await;
    let peer = asked.ok_or_else(|| failed("no request came"))?.peer;
    server
        .send(peer, result())
        .await
        .map_err(|error| failed(&error))?;
    let answer = client.recv().await;
    let answer = answer.ok_or_else(|| failed("no answer came"))?;
    serde_json::from_slice(&answer.bytes).map_err(|error| failed(&error))
}

/// Options that skip asking the relay for its limits, which this one does not publish.
fn without_limits_lookup(usual: RelayOptions) -> RelayOptions {
    RelayOptions {
        limits: Duration::ZERO,
        ..usual
    }
}

/// The server's response.
fn result() -> String {
    let content = json!({"content": [{"type": "text", "text": text()}]});
    jsonrpc::result("1", &content.to_string())
}

fn text() -> String {
    let line = "To break bulk: to open the hold and carry a cargo ashore, piece by piece.\n";
    line.repeat(RESULT / line.len())
}

fn failed(why: &(impl ToString + ?Sized)) -> Failure {
    Failure::Session(format!("demo contextvm: {}", why.to_string()))
}
