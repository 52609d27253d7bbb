//! MCP clients and servers of both eras over HTTP, with one gateway or two between them.

use anyhow::Result;
use interop_ahp::program::{Gateway, HostProgram};

use crate::paths::{Over, Tunnel};
use crate::sdk::{MAX_MESSAGE, Sdk};
use crate::told::{CALLS, Plan, Reach, Sizes};

/// Calls with 20 MB, one in each direction.
pub const LARGE: [Sizes; 2] = [(800_000, 1), (1, 800_000)];

/// The transport of a client or server.
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

/// A gateway that listens on HTTP, and the tunnel behind it if there is one.
pub struct Door {
    gateway: Gateway,
    tunnel: Option<Tunnel>,
    /// The URL for clients.
    pub url: String,
}

impl Door {
    /// Starts a gateway, and a tunnel if `between` has one, to a target.
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

    /// Stops the gateways. Fails if the path between them refused a message.
    pub async fn stop(self) -> Result<()> {
        self.gateway.stop().await?;
        match self.tunnel {
            Some(tunnel) => tunnel.stop().await,
            None => Ok(()),
        }
    }
}

impl Between {
    /// Starts a tunnel to a target, if there is one.
    async fn tunnel(self, target: &str) -> Result<Option<Tunnel>> {
        match self {
            Self::Gateway => Ok(None),
            Self::Tunnel(over) => Tunnel::start(over, target).await.map(Some),
        }
    }
}

/// All kinds of connections between a client and a server.
pub const BETWEEN: [Between; 4] = [
    Between::Gateway,
    Between::Tunnel(Over::WebSocket),
    Between::Tunnel(Over::Http),
    Between::Tunnel(Over::Nats),
];

/// A client, a server, their transports, and what is between them.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The client.
    pub client: (Sdk, Speaks),
    /// What is between them.
    pub between: Between,
    /// The server.
    pub server: (Sdk, Speaks),
    /// Only calls with 20 MB, instead of small calls and all other kinds of requests.
    pub large: bool,
}

impl Row {
    /// Makes all calls. Fails if anything differs from a direct connection.
    pub async fn run(self) -> Result<()> {
        let (sdk, speaks) = self.server;
        // The server runs until this is dropped.
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
