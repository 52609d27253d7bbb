//! A peer made of the crate `contextvm-sdk`: its transports, driven by the same arguments, commands and
//! output lines as `interop/contextvm/peer.mjs`.
//!
//! ```text
//! contextvm-sdk-peer client|server '{ "relay": URL, "key"?: HEX, "server"?: PUBKEY,
//!   "encryption"?: "disabled" | "optional" | "required", "stateless"?: true }'
//! ```

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../../contextvm/src/call.rs"]
mod call;
#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../../contextvm/src/text.rs"]
mod text;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use contextvm_sdk::transport::client::{NostrClientTransport, NostrClientTransportConfig};
use contextvm_sdk::transport::server::{NostrServerTransport, NostrServerTransportConfig};
use contextvm_sdk::{EncryptionMode, JsonRpcMessage, signer};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use crate::call::Call;
use crate::text::{About, Text};

type Commands = Lines<BufReader<Stdin>>;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let role = arguments.next().context("client or server")?;
    let plan: Value = serde_json::from_str(&arguments.next().context("a plan")?)?;
    let commands = BufReader::new(tokio::io::stdin()).lines();
    match role.as_str() {
        "client" => ask(&plan, commands).await,
        "server" => serve(&plan, commands).await,
        other => bail!("{other} is neither client nor server"),
    }
}

fn say(line: &Value) {
    println!("{line}");
}

fn failed(error: impl std::fmt::Display) {
    say(&json!({"failed": error.to_string()}));
}

/// The part of the plan that client and server share: the relay, and how messages are encrypted.
fn shared(plan: &Value) -> Result<(Vec<String>, EncryptionMode)> {
    let relay = plan["relay"].as_str().context("no relay")?;
    let encryption = match plan["encryption"].as_str() {
        Some("disabled") => EncryptionMode::Disabled,
        Some("required") => EncryptionMode::Required,
        _ => EncryptionMode::default(),
    };
    Ok((vec![relay.to_owned()], encryption))
}

async fn serve(plan: &Value, mut commands: Commands) -> Result<()> {
    let keys = match plan["key"].as_str() {
        Some(key) => signer::from_sk(key)?,
        None => signer::generate(),
    };
    let (relays, encryption) = shared(plan)?;
    let config = NostrServerTransportConfig::default()
        .with_relay_urls(relays)
        .with_encryption_mode(encryption)
        .with_publish_relay_list(false)
        .with_bootstrap_relay_urls(Vec::new());
    let key = keys.public_key().to_hex();
    let mut transport = NostrServerTransport::new(keys, config).await?;
    let mut requests = transport.take_message_receiver().context("no receiver")?;
    transport.start().await?;
    say(&json!({"ready": key}));
    loop {
        let request = tokio::select! {
            request = requests.recv() => request.context("the transport ended")?,
            line = commands.next_line() => match line? {
                Some(_) => continue,
                None => break,
            },
        };
        let Some(answer) = call::answer(&serde_json::to_value(&request.message)?) else {
            continue;
        };
        let answer: JsonRpcMessage = serde_json::from_value(answer)?;
        if let Err(error) = transport.send_response(&request.event_id, answer).await {
            failed(error);
        }
    }
    Ok(transport.close().await?)
}

async fn ask(plan: &Value, mut commands: Commands) -> Result<()> {
    let keys = match plan["key"].as_str() {
        Some(key) => signer::from_sk(key)?,
        None => signer::generate(),
    };
    let (relays, encryption) = shared(plan)?;
    let config = NostrClientTransportConfig::default()
        .with_relay_urls(relays)
        .with_server_pubkey(plan["server"].as_str().context("no server")?)
        .with_encryption_mode(encryption)
        .with_stateless(plan["stateless"] == true);
    let key = keys.public_key().to_hex();
    let mut transport = NostrClientTransport::new(keys, config).await?;
    let mut answers = transport.take_message_receiver().context("no receiver")?;
    transport.start().await?;
    let begin = json!({
        "jsonrpc": "2.0", "id": "begin", "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "real", "version": "0"},
        },
    });
    let (begun, _) = request(&transport, &mut answers, begin).await?;
    if begun.get("result").is_none() {
        bail!("no session: {begun}");
    }
    let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    transport.send(&serde_json::from_value(done)?).await?;
    say(&json!({"ready": key}));
    while let Some(line) = commands.next_line().await? {
        let command: Value = serde_json::from_str(&line)?;
        let patience = Duration::from_millis(command["timeout"].as_u64().unwrap_or(120_000));
        let called = timeout(patience, one(&transport, &mut answers, &command));
        let said = match called.await {
            Ok(Ok(said)) => said,
            Ok(Err(error)) => json!({"error": {"message": format!("{error:#}")}}),
            Err(_) => json!({"error": {"message": "timed out"}}),
        };
        let mut line = json!({"id": command["id"]});
        if let (Value::Object(line), Value::Object(said)) = (&mut line, said) {
            line.extend(said);
        }
        say(&line);
    }
    Ok(transport.close().await?)
}

/// Makes one call, and returns the line that reports its outcome.
async fn one(
    transport: &NostrClientTransport,
    answers: &mut UnboundedReceiver<JsonRpcMessage>,
    command: &Value,
) -> Result<Value> {
    let wanted = &command["call"];
    let size = |name: &str| usize::try_from(wanted[name].as_u64().unwrap_or_default());
    let text = Text::named(wanted["kind"].as_str().unwrap_or_default()).context("no such text")?;
    let id = command["id"].as_u64().context("no number")?;
    let call = Call::new(text, size("up")?, size("down")?);
    let mut asked: Value = serde_json::from_str(&call.request(id))?;
    // The SDK sends large messages as progress notifications, which need a token.
    asked["params"]["_meta"] = json!({"progressToken": id});
    let start = Instant::now();
    let (mut answer, progress) = request(transport, answers, asked).await?;
    if answer.get("error").is_some() {
        return Ok(json!({"error": answer["error"].take()}));
    }
    let seconds = start.elapsed().as_secs_f64();
    let part = |index: usize| answer["result"]["content"][index]["text"].as_str();
    let heard: Value = serde_json::from_str(part(1).context("no second text")?)?;
    let text = About::of(part(0).context("no text")?).to_json();
    Ok(json!({"text": text, "heard": heard, "seconds": seconds, "progress": progress}))
}

/// Sends a request, and returns the answer and the number of progress notifications before it.
async fn request(
    transport: &NostrClientTransport,
    answers: &mut UnboundedReceiver<JsonRpcMessage>,
    request: Value,
) -> Result<(Value, u64)> {
    let id = request["id"].clone();
    transport.send(&serde_json::from_value(request)?).await?;
    let mut progress = 0;
    loop {
        let message = answers.recv().await.context("the transport ended")?;
        let message = serde_json::to_value(&message)?;
        if message["method"] == "notifications/progress" {
            progress += 1;
        } else if message["id"] == id {
            return Ok((message, progress));
        }
    }
}
