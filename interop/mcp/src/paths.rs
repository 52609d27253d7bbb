//! Paths with a cap between two gateways.

use anyhow::{Result, ensure};
use breakbulk_testkit::bad_path::{BadPath, Way, Weather};
use interop_ahp::program::Gateway;

/// What the path lets through.
const MESSAGE: u64 = 131_072;
const FRAME: u64 = 32_768;

/// The options of both gateways at the path.
const OPTIONS: &str = "tunnel=always&preset=aws-api-gateway&max-message=64MiB";

/// A gateway before a target, and the path to it.
pub struct Tunnel {
    gateway: Gateway,
    path: BadPath,
    /// What the gateway at the other end of the path goes to.
    pub to: String,
}

impl Tunnel {
    /// Over WebSockets, with messages of at most 128 KB.
    pub async fn over_web_socket(target: &str) -> Result<Self> {
        let listen = format!("ws://127.0.0.1:0?{OPTIONS}");
        let gateway = Gateway::start(&listen, target).await?;
        let way = Way {
            frame_cap: Some(FRAME),
            message_cap: Some(MESSAGE),
            text_only: true,
            ..Way::default()
        };
        let path = BadPath::start(&gateway.address, Weather::both_ways(way)).await?;
        let to = format!("ws://{}?{OPTIONS}", path.address());
        Ok(Self { gateway, path, to })
    }

    /// Stops the gateway. An error if the path refused a message, or none came by it.
    pub async fn stop(self) -> Result<()> {
        let passed = self.path.counts();
        let blocked = passed.from_client.blocked + passed.from_target.blocked;
        ensure!(blocked == 0, "{blocked} messages were too large");
        ensure!(passed.accepted > 0, "nobody came by the path");
        self.gateway.stop().await
    }
}
