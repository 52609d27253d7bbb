//! Tunnels of two gateways whose path limits the size of messages.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use breakbulk_testkit::bad_path::{BadPath, Way, Weather};
use breakbulk_testkit::http_path::HttpPath;
use interop_ahp::program::Gateway;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::sdk::MAX_MESSAGE;

/// The largest message and frame that the WebSocket path lets through.
const MESSAGE: u64 = 131_072;
const FRAME: u64 = 32_768;

/// The largest HTTP body, and the largest NATS message.
const SMALL: usize = 65_536;

/// The time limit for a NATS server to listen.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often the test checks whether the NATS server listens.
const LOOK: Duration = Duration::from_millis(10);

/// What is between two gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// WebSockets, with messages of at most 128 KB.
    WebSocket,
    /// HTTP, with bodies of at most 64 KB.
    Http,
    /// A NATS server that takes messages of at most 64 KB.
    Nats,
}

/// The gateway next to a target, and the path to that gateway.
pub struct Tunnel {
    gateway: Gateway,
    path: Capped,
    /// The endpoint of the path, for the gateway at its other end.
    pub to: String,
}

enum Capped {
    WebSocket(BadPath),
    Http { _path: HttpPath },
    Nats { _server: NatsServer },
}

impl Tunnel {
    /// Starts the gateway and the path.
    pub async fn start(over: Over, target: &str) -> Result<Self> {
        match over {
            Over::WebSocket => Self::over_web_socket(target).await,
            Over::Http => Self::over_http(target).await,
            Over::Nats => Self::over_nats(target).await,
        }
    }

    async fn over_web_socket(target: &str) -> Result<Self> {
        let options = format!("tunnel=always&preset=aws-api-gateway&max-message={MAX_MESSAGE}");
        let gateway = Gateway::start(&format!("ws://127.0.0.1:0?{options}"), target).await?;
        let way = Way {
            frame_cap: Some(FRAME),
            message_cap: Some(MESSAGE),
            text_only: true,
            ..Way::default()
        };
        let path = BadPath::start(&gateway.address, Weather::both_ways(way)).await?;
        let to = format!("ws://{}?{options}", path.address());
        let path = Capped::WebSocket(path);
        Ok(Self { gateway, path, to })
    }

    async fn over_http(target: &str) -> Result<Self> {
        let options = format!("max-frame={SMALL}&max-message={MAX_MESSAGE}");
        let listen = format!("ahp+http://127.0.0.1:0/tunnel?{options}");
        let gateway = Gateway::start(&listen, target).await?;
        let address = gateway.address.strip_prefix("ahp+http://");
        let address = address.and_then(|address| address.split('/').next());
        let address = address.with_context(|| gateway.address.clone())?;
        let path = HttpPath::start(address.parse()?, SMALL).await?;
        let to = format!("ahp+http://{}/tunnel?{options}", path.address());
        let path = Capped::Http { _path: path };
        Ok(Self { gateway, path, to })
    }

    async fn over_nats(target: &str) -> Result<Self> {
        let server = NatsServer::start().await?;
        let subject = format!("{}/tools?max-message={MAX_MESSAGE}", server.url);
        let gateway = Gateway::start(&subject, target).await?;
        let path = Capped::Nats { _server: server };
        let to = subject;
        Ok(Self { gateway, path, to })
    }

    /// Stops the gateway. Fails if the path refused a WebSocket message, or if it was not used.
    pub async fn stop(self) -> Result<()> {
        // A peer that sends too much by HTTP or NATS gets an error, and its session ends.
        if let Capped::WebSocket(path) = &self.path {
            let passed = path.counts();
            let blocked = passed.from_client.blocked + passed.from_target.blocked;
            ensure!(blocked == 0, "{blocked} messages were too large");
            ensure!(passed.accepted > 0, "nobody came by the path");
        }
        self.gateway.stop().await
    }
}

/// A NATS server on a free port, which is killed when this is dropped.
struct NatsServer {
    _child: Child,
    _folder: TempDir,
    url: String,
}

impl NatsServer {
    async fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("nats.conf");
        std::fs::write(&config, format!("max_payload: {SMALL}\n"))?;
        let mut child = Command::new("nats-server")
            .args(["-a", "127.0.0.1", "-p", "-1", "-c"])
            .arg(config)
            .arg("--ports_file_dir")
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("nats-server cannot be started: install the package nats-server")?;
        let url = async {
            loop {
                if let Some(ended) = child.try_wait()? {
                    bail!("it ended with {ended}");
                }
                match listening(folder.path())? {
                    Some(url) => return Ok(url),
                    None => sleep(LOOK).await,
                }
            }
        };
        let url = timeout(PATIENCE, url).await.context("nats-server")??;
        Ok(Self {
            _child: child,
            _folder: folder,
            url,
        })
    }
}

/// The URL that a NATS server has written to a file of this folder.
fn listening(folder: &Path) -> Result<Option<String>> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "ports")
        {
            // The file may be incomplete.
            let text = std::fs::read_to_string(path)?;
            let ports: Option<Value> = serde_json::from_str(&text).ok();
            let url = ports.and_then(|ports| Some(ports["nats"][0].as_str()?.to_owned()));
            return Ok(url);
        }
    }
    Ok(None)
}
