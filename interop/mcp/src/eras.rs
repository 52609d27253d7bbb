//! MCP clients and servers of both eras with the program between them, started by the client.

use std::time::Duration;

use anyhow::{Result, ensure};
use breakbulk_testkit::bad_relay::{self, BadRelay};
use interop_ahp::program::{Gateway, breakbulk};
use tokio::process::Command;

use crate::paths::{self, Tunnel};
use crate::sdk::Sdk;
use crate::told::{CALLS, Plan, Reach};

/// What is between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// One gateway, which starts the server.
    Stdio,
    /// A tunnel of two gateways over a WebSocket path of 128 KB.
    Tunnel,
    /// Two gateways at a Nostr relay of 64 KB.
    Relay,
}

/// All of them.
pub const OVER: [Over; 3] = [Over::Stdio, Over::Tunnel, Over::Relay];

/// Who calls whom, over what.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Who calls.
    pub client: Sdk,
    /// Who is called.
    pub server: Sdk,
    /// What is between them.
    pub over: Over,
}

impl Row {
    /// Makes all calls. An error says what is not as it would be without anything between them.
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
        // It confirms late, so that what should wait for a confirmation is seen to wait.
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

    /// Runs the client to its end. Its server is a gateway to that endpoint.
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
