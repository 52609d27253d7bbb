//! MCP clients and servers of both eras; the client starts a gateway that connects it to the server.

use std::time::Duration;

use anyhow::{Result, ensure};
use breakbulk_testkit::bad_relay::{self, BadRelay};
use interop_ahp::program::{Gateway, breakbulk};
use tokio::process::Command;

use crate::paths::{self, Tunnel};
use crate::sdk::Sdk;
use crate::told::{CALLS, Plan, Reach};

/// What is between a client and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// One gateway, which starts the server.
    Stdio,
    /// A tunnel of two gateways over a WebSocket path of 128 KB.
    Tunnel,
    /// Two gateways at a Nostr relay of 64 KB.
    Relay,
}

/// All kinds of connections.
pub const OVER: [Over; 3] = [Over::Stdio, Over::Tunnel, Over::Relay];

/// A client, a server, and what is between them.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The client.
    pub client: Sdk,
    /// The server.
    pub server: Sdk,
    /// What is between them.
    pub over: Over,
}

impl Row {
    /// Makes all calls. Fails if anything differs from a direct connection.
    pub async fn run(self) -> Result<()> {
        match self.over {
            Over::Stdio => self.client(&self.server.exec()).await,
            Over::Tunnel => {
                let tunnel = Tunnel::start(paths::Over::WebSocket, &self.server.exec()).await?;
                self.client(&tunnel.to).await?;
                tunnel.stop().await
            }
            Over::Relay => self.over_relay().await,
        }
    }

    async fn over_relay(self) -> Result<()> {
        // The relay confirms events late, to show that messages which must wait for a confirmation do so.
        let relay = BadRelay::start(bad_relay::Weather {
            delay: Duration::from_millis(40),
            ..Default::default()
        });
        let relay = relay.await?;
        let folder = tempfile::tempdir()?;
        let key = folder.path().join("key");
        let made = Command::new(breakbulk()?).arg("keygen").arg(&key).output();
        ensure!(made.await?.status.success(), "no key was made");
        let listen = format!("cep22+nostr:{}?key={}", relay.url(), key.display());
        let gateway = Gateway::start(&listen, &self.server.exec()).await?;
        self.client(&gateway.address).await?;
        ensure!(
            relay.refused() == 0,
            "{} events were refused",
            relay.refused()
        );
        gateway.stop().await
    }

    /// Runs the client to its end. It starts a gateway to this endpoint as its server.
    async fn client(self, to: &str) -> Result<()> {
        let plan = Plan {
            client: self.client,
            version: Sdk::version(self.client, self.server),
            calls: &CALLS,
            extras: true,
            more_progress: self.over == Over::Relay,
        };
        plan.run(&Reach::stdio(to)).await
    }
}
