//! This project's own client and server, with the tool that the SDK's peers have.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use breakbulk::contextvm::{
    Client, ClientConfig, Config, Forgetful, Keys, Memory, PublicKey, Server, ServerConfig,
};
use breakbulk::net::nostr::RelayOptions;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::call::{self, Answer, Call, Outcome};
use crate::text::About;

/// The time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(150);

/// Does not ask the relay for its limits (NIP-11): the relay of the tests does not serve them.
fn at_once(options: RelayOptions) -> RelayOptions {
    RelayOptions {
        limits: Duration::ZERO,
        ..options
    }
}

/// Starts a server that answers every request. It remembers nothing of former clients.
pub async fn serve(relay: &str, keys: Keys, config: Config) -> Result<Server> {
    serve_remembering(relay, keys, config, Arc::new(Forgetful)).await
}

/// Starts a server that keeps the features of its clients in `memory`, also after a restart.
pub async fn serve_remembering(
    relay: &str,
    keys: Keys,
    config: Config,
    memory: Arc<dyn Memory>,
) -> Result<Server> {
    let mut setup = ServerConfig::new(keys, vec![relay.to_owned()]);
    setup.config = config;
    setup.memory = memory;
    setup.relay_options = at_once(setup.relay_options);
    let server = Server::bind(setup).await?;
    let serving = server.clone();
    tokio::spawn(async move {
        while let Some(message) = serving.recv().await {
            let Ok(request) = serde_json::from_slice(&message.bytes) else {
                continue;
            };
            if let Some(answer) = call::answer(&request)
                && let Err(error) = serving.send(message.peer, answer.to_string()).await
            {
                eprintln!("our server could not answer: {error}");
            }
        }
    });
    Ok(server)
}

/// This project's client, with the calls of the tests.
pub struct Caller {
    /// The client itself.
    pub client: Client,
    calls: u64,
}

impl Caller {
    /// Connects to a server's relay.
    pub async fn connect(
        relay: &str,
        keys: Keys,
        server: PublicKey,
        config: Config,
    ) -> Result<Self> {
        let mut setup = ClientConfig::new(keys, server, vec![relay.to_owned()]);
        setup.config = config;
        setup.relay_options = at_once(setup.relay_options);
        Ok(Self {
            client: Client::connect(setup).await?,
            calls: 0,
        })
    }

    /// Sends `initialize`, as a client that keeps a session does.
    pub async fn initialize(&mut self) -> Result<Value> {
        self.calls += 1;
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "ours", "version": "0"},
        });
        let request =
            json!({"jsonrpc": "2.0", "id": self.calls, "method": "initialize", "params": params});
        self.client.send(request.to_string()).await?;
        let (answer, _) = self.hear().await?;
        let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.client.send(done.to_string()).await?;
        Ok(answer)
    }

    /// Sends `server/discover`, the first request of a client of MCP 2026-07-28.
    pub async fn discover(&mut self) -> Result<Value> {
        self.calls += 1;
        let params = json!({"_meta": call::modern_meta()});
        let request = json!({"jsonrpc": "2.0", "id": self.calls, "method": "server/discover", "params": params});
        self.client.send(request.to_string()).await?;
        Ok(self.hear().await?.0)
    }

    /// Makes a call and waits for its outcome.
    pub async fn call(&mut self, call: Call) -> Result<Outcome> {
        self.calls += 1;
        self.ask(call.request(self.calls)).await
    }

    /// Sends this request, with the progress token that it may have, and waits for the outcome.
    pub async fn ask(&self, request: String) -> Result<Outcome> {
        let start = Instant::now();
        self.client.send(request).await?;
        let (mut answer, progress) = self.hear().await?;
        if answer.get("error").is_some() {
            return Ok(Outcome::Failed(answer["error"].take()));
        }
        let seconds = start.elapsed().as_secs_f64();
        let part = |index: usize| answer["result"]["content"][index]["text"].as_str();
        let heard: Value = serde_json::from_str(part(1).context("no second text")?)?;
        Ok(Outcome::Answered(Answer {
            text: About::of(part(0).context("no text")?),
            heard: About::from_json(&heard).context("nothing was heard")?,
            seconds,
            progress,
        }))
    }

    /// The next answer, and the number of progress notifications before it.
    async fn hear(&self) -> Result<(Value, u64)> {
        let mut progress = 0;
        loop {
            let message = timeout(PATIENCE, self.client.recv()).await;
            let message = message.context("our client says nothing")?;
            let message = message.context("our client has ended")?;
            let message: Value = serde_json::from_slice(&message.bytes)?;
            if message["method"] == "notifications/progress" {
                progress += 1;
                continue;
            }
            return Ok((message, progress));
        }
    }
}
