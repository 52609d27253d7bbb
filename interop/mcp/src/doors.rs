//! MCP clients and servers of both eras over HTTP, with one gateway or two between them.

use anyhow::Result;
use interop_ahp::program::{Gateway, HostProgram};

use crate::paths::{Over, Tunnel};
use crate::sdk::{MAX_MESSAGE, Sdk};
use crate::told::{CALLS, Plan, Reach, Sizes};

/// 20 MB, each way.
pub const LARGE: [Sizes; 2] = [(800_000, 1), (1, 800_000)];

/// How a program speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// Over HTTP.
    Http,
    /// On its standard input and output.
    Stdio,
}

/// What is between a client and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// One gateway.
    Gateway,
    /// Two gateways, and a path with a cap.
    Tunnel(Over),
}

/// A gateway's URL, and what is behind it.
pub struct Door {
    gateway: Gateway,
    tunnel: Option<Tunnel>,
    /// Where clients come in.
    pub url: String,
}

impl Door {
    /// Opens one before a target.
    pub async fn open(between: Between, target: &str) -> Result<Self> {
        let tunnel = between.tunnel(target).await?;
        let to = tunnel.as_ref().map_or(target, |tunnel| &tunnel.to);
        let listen = format!("http://127.0.0.1:0/mcp?max-message={MAX_MESSAGE}");
        let gateway = Gateway::start(&listen, to).await?;
        let url = gateway.address.clone();
        Ok(Self {
            gateway,
            tunnel,
            url,
        })
    }

    /// Stops the gateways. An error if the path between them refused a message.
    pub async fn stop(self) -> Result<()> {
        self.gateway.stop().await?;
        match self.tunnel {
            Some(tunnel) => tunnel.stop().await,
            None => Ok(()),
        }
    }
}

impl Between {
    /// The second gateway, if there is one, before a target.
    async fn tunnel(self, target: &str) -> Result<Option<Tunnel>> {
        match self {
            Self::Gateway => Ok(None),
            Self::Tunnel(over) => Tunnel::start(over, target).await.map(Some),
        }
    }
}

/// All of it.
pub const BETWEEN: [Between; 4] = [
    Between::Gateway,
    Between::Tunnel(Over::WebSocket),
    Between::Tunnel(Over::Http),
    Between::Tunnel(Over::Nats),
];

/// Who calls whom, how, and over what.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Who calls.
    pub client: (Sdk, Speaks),
    /// What is between them.
    pub between: Between,
    /// Who is called.
    pub server: (Sdk, Speaks),
    /// 20 MB each way instead of small calls and all that is not a call.
    pub large: bool,
}

impl Row {
    /// Makes all calls. An error says what is not as it would be without anything between them.
    pub async fn run(self) -> Result<()> {
        let (sdk, speaks) = self.server;
        // It serves until it is dropped.
        let server = match speaks {
            Speaks::Http => Some(sdk.serve(Some(MAX_MESSAGE)).await?),
            Speaks::Stdio => None,
        };
        let target = match &server {
            Some(HostProgram { address, .. }) => format!("{address}?max-message={MAX_MESSAGE}"),
            None => sdk.exec(),
        };
        let (client, speaks) = self.client;
        let plan = Plan {
            client,
            version: Sdk::version(client, sdk),
            calls: if self.large { &LARGE } else { &CALLS },
            extras: !self.large,
            more_progress: false,
        };
        match speaks {
            Speaks::Http => {
                let door = Door::open(self.between, &target).await?;
                plan.run(&Reach::Http(door.url.clone())).await?;
                door.stop().await
            }
            Speaks::Stdio => {
                let tunnel = self.between.tunnel(&target).await?;
                let to = tunnel.as_ref().map_or(&target, |tunnel| &tunnel.to);
                plan.run(&Reach::stdio(to)).await?;
                match tunnel {
                    Some(tunnel) => tunnel.stop().await,
                    None => Ok(()),
                }
            }
        }
    }
}
