//! `breakbulk demo contextvm`: an MCP server's result of 5 MB over a Nostr relay with events of up to 64 KiB.

use std::time::{Duration, Instant};

use breakbulk::contextvm::envelope::{Draft, sign};
use breakbulk::contextvm::{
    Client, ClientConfig, Config, Encryption, Keys, Seal, Server, ServerConfig, Wraps,
};
use breakbulk::link::exact_size;
use breakbulk::message::jsonrpc;
use breakbulk::net::nostr::{Outcome, RelayOptions, Relays};
use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use serde_json::{Value, json};

use super::story::{Form, Story, figures};
use crate::failure::Failure;
use crate::size;

const RESULT: usize = 5_000_000;

/// After how many events of the result all connections are cut.
const CUT_AFTER: u64 = 40;

/// The relay's limit on an event.
const EVENT: usize = 64 << 10;

pub(super) async fn show(story: &mut Story<'_>) -> Result<(), Failure> {
    let size = match story.form {
        Form::Short => RESULT / 5,
        Form::Full => RESULT,
    };
    let relay = BadRelay::start(Weather {
        event_max: EVENT,
        shim: true,
        ..Weather::default()
    })
    .await
    .map_err(|error| failed(&error))?;
    story.title(&format!(
        "contextvm: an MCP result of {} over a Nostr relay that takes {}",
        size::show(size),
        exact_size(EVENT)
    ))?;

    match as_one_event(&relay, size).await? {
        Outcome::TooLarge { reason } => story.fails("as one event", &reason)?,
        Outcome::Accepted => return Err(failed("the relay let through what is over its cap")),
        Outcome::Lost { reason } => return Err(failed(&reason)),
    }

    for (encryption, way) in [
        (Encryption::Disabled, "in chunks"),
        (Encryption::Required, "gift-wrapped"),
    ] {
        relay.reset();
        let config = Config::default().with(|config| config.encryption = encryption);
        let start = Instant::now();
        check(&call(&relay, config, size).await?, size)?;
        let took = start.elapsed();
        if relay.refused() > 0 || relay.largest() > EVENT {
            return Err(failed("an event over the cap was sent to the relay"));
        }
        let figures = figures("events", relay.events(), relay.largest() as u64, took);
        story.works(way, &figures)?;
        if !story.is_full() {
            return Ok(());
        }
    }
    show_cut(story, &relay).await?;
    story.next(&[
        "breakbulk relay --listen ws://7777 --nostr --cap 64KiB",
        "breakbulk keygen relay.key",
        "breakbulk gateway --to 'exec:breakbulk echo' \\\n    --listen 'cep22+nostr:ws://127.0.0.1:7777?key=relay.key'",
    ])
}

/// Cuts all connections to the relay while the result is on its way.
async fn show_cut(story: &mut Story<'_>, relay: &BadRelay) -> Result<(), Failure> {
    let size = RESULT;
    relay.reset();
    // Wraps that relays keep: an end that was cut off gets them when it is back.
    let config = Config::default().with(|config| {
        config.encryption = Encryption::Required;
        config.wraps = Wraps::Persistent;
    });
    let start = Instant::now();
    let cutting = async {
        while relay.events() < CUT_AFTER {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        relay.cut();
    };
    let (answer, ()) = tokio::join!(call(relay, config, size), cutting);
    check(&answer?, size)?;
    story.works(
        "reconnected",
        &format!(
            "after a cut {CUT_AFTER} events into {}: both ends connected again, and the rest followed, in {:.2} s; identical",
            size::show(size),
            start.elapsed().as_secs_f64()
        ),
    )
}

fn check(answer: &Value, size: usize) -> Result<(), Failure> {
    if let Some(message) = answer["error"]["message"].as_str() {
        return Err(failed(message));
    }
    match answer["result"]["content"][0]["text"] == text(size) {
        true => Ok(()),
        false => Err(failed(
            "the result that arrived is not the one that was sent",
        )),
    }
}

/// Publishes the whole result as one event; returns the relay's response.
async fn as_one_event(relay: &BadRelay, size: usize) -> Result<Outcome, Failure> {
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
        content: result(size),
        tags: vec![vec!["p".to_owned(), client.to_hex()]],
        seal: Seal::Plain,
    };
    let signed = sign(&keys, draft).map_err(|error| failed(&error))?;
    Ok(relays.publish(signed.event).await)
}

/// A new client requests the result from a new server.
async fn call(relay: &BadRelay, config: Config, size: usize) -> Result<Value, Failure> {
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
        .send(peer, result(size))
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
fn result(size: usize) -> String {
    let content = json!({"content": [{"type": "text", "text": text(size)}]});
    jsonrpc::result("1", &content.to_string())
}

fn text(size: usize) -> String {
    let line = "To break bulk: to open the hold and carry a cargo ashore, piece by piece.\n";
    line.repeat(size / line.len())
}

fn failed(why: &(impl ToString + ?Sized)) -> Failure {
    Failure::Session(format!("demo contextvm: {}", why.to_string()))
}
