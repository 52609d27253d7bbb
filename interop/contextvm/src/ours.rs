//! Our own client and server, with the tool that the real ones have.

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

/// Who says nothing for longer hangs.
const PATIENCE: Duration = Duration::from_secs(150);

/// A relay in this process serves no document.
fn at_once(options: RelayOptions) -> RelayOptions {
    RelayOptions {
        limits: Duration::ZERO,
        ..options
    }
}

/// A server that answers as long as it lives.
pub async fn serve(relay: &str, keys: Keys, config: Config) -> Result<Server> {
    serve_remembering(relay, keys, config, Arc::new(Forgetful)).await
}

/// The same, with what it knows of clients from earlier days.
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

/// A client that calls.
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

    /// Begins a session, as a client does that keeps one.
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

    /// Asks a server of MCP 2026-07-28 what it is, as its clients begin.
    pub async fn discover(&mut self) -> Result<Value> {
        self.calls += 1;
        let params = json!({"_meta": call::modern_meta()});
        let request = json!({"jsonrpc": "2.0", "id": self.calls, "method": "server/discover", "params": params});
        self.client.send(request.to_string()).await?;
        Ok(self.hear().await?.0)
    }

    /// Calls, and waits for what comes of it.
    pub async fn call(&mut self, call: Call) -> Result<Outcome> {
        self.calls += 1;
        self.ask(call.request(self.calls)).await
    }

    /// Calls with this request, under a token of the application's where it has one.
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

    /// The next answer, and how often progress was told before it.
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
