//! Opens a session between VSCode's peer in node and this project's endpoint, over each carrier.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use breakbulk::link::{self, Budget, Link};
use breakbulk::message::vscode::{RpcId, UriTransformer};
use breakbulk::net::ws::WebSocket;
use breakbulk::net::{Connection, fresh_seed};
use breakbulk::vscode::{Config, Ended, Endpoint, Remote, Stream};
use breakbulk::wire::Whole;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::actor::{NODES, Seen, actors};
use crate::node::Node;
use crate::sockets::{Door, MESSAGE, dial, dial_websocket, hear_hello, say_hello};

/// How long a test may keep a session open before it is ended as hanging.
const LONGEST: Duration = Duration::from_secs(240);

/// How long a new socket may take until it has sent the line that names its session.
const LONGEST_HELLO: Duration = Duration::from_secs(20);

/// How often a failed socket is retried, and the pause between the attempts.
const RETRIES: u32 = 250;
const RETRY: Duration = Duration::from_millis(20);

/// How RPC messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Each in a binary WebSocket message.
    Frame,
    /// In ipc.net's Protocol over TCP.
    Plain,
    /// In ipc.net's PersistentProtocol over TCP.
    Persistent,
    /// In ipc.net's Protocol over a WebSocket, cut anywhere.
    PlainWebSocket,
    /// In ipc.net's PersistentProtocol over WebSockets, cut anywhere.
    PersistentWebSocket,
}

impl Carrier {
    const ALL: [Self; 5] = [
        Self::Frame,
        Self::Plain,
        Self::Persistent,
        Self::PlainWebSocket,
        Self::PersistentWebSocket,
    ];

    /// Its name in `carriers.mjs`.
    fn name(self) -> &'static str {
        match self {
            Self::Frame => "frame",
            Self::Plain => "plain",
            Self::Persistent => "persistent",
            Self::PlainWebSocket => "plain-ws",
            Self::PersistentWebSocket => "persistent-ws",
        }
    }

    fn is_websocket(self) -> bool {
        !matches!(self, Self::Plain | Self::Persistent)
    }

    fn is_persistent(self) -> bool {
        matches!(self, Self::Persistent | Self::PersistentWebSocket)
    }
}

/// A carrier, and who connects to whom.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// What carries the messages.
    pub carrier: Carrier,
    /// Whether node listens; if not, it connects.
    pub node_listens: bool,
}

/// Every carrier, with node at either end.
pub fn ways() -> impl Iterator<Item = Way> {
    Carrier::ALL.into_iter().flat_map(|carrier| {
        [true, false].map(|node_listens| Way {
            carrier,
            node_listens,
        })
    })
}

/// The ways with a carrier on which a session outlives its sockets.
pub fn persistent_ways() -> impl Iterator<Item = Way> {
    ways().filter(|way| way.carrier.is_persistent())
}

/// One way for each carrier, for tests where it does not matter who connects.
pub fn carriers() -> impl Iterator<Item = Way> {
    ways().filter(|way| way.node_listens)
}

/// Which end transforms URIs, and for which authority.
#[derive(Clone, Default)]
pub struct Uris {
    /// The transformer of this project's end.
    pub ours: Option<Arc<dyn UriTransformer>>,
    /// The authority of the transformer in node.
    pub nodes: Option<&'static str>,
}

/// Both ends of one session.
pub struct Ends {
    /// VSCode's peer in node.
    pub node: Node,
    /// This project's endpoint.
    pub endpoint: Endpoint,
    /// What a test can see and do of this project's actor.
    pub seen: Seen,
    /// Node's actor.
    pub remote: Remote,
    /// Tasks that bring a persistent session its next sockets, and one that ends a session which hangs.
    watchers: Vec<Watcher>,
}

/// A task that is aborted when this is dropped.
struct Watcher(JoinHandle<()>);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Ends {
    /// Opens a session by this way.
    pub async fn open(way: Way) -> Result<Self> {
        Self::open_with(way, Uris::default()).await
    }

    /// Opens a session, with transformers for URIs.
    pub async fn open_with(way: Way, uris: Uris) -> Result<Self> {
        let (actors, seen) = actors()?;
        let config = Config::default().with(|config| {
            config.actors = actors;
            config.uris = uris.ours;
        });
        let transformer = uris.nodes.map(|authority| ["--transformer", authority]);
        let arguments = transformer.as_ref().map_or(&[][..], |words| &words[..]);
        let (mut node, endpoint, sockets) = match way.carrier {
            Carrier::Frame => over_frames(way, arguments, config).await?,
            carrier if carrier.is_persistent() => over_persistent(way, arguments, config).await?,
            _ => over_plain(way, arguments, config).await?,
        };
        let mut watchers = vec![watch(way, endpoint.clone())];
        watchers.extend(sockets);
        node.opened().await?;
        let remote = endpoint.remote(RpcId::new(NODES)?);
        Ok(Self {
            node,
            endpoint,
            seen,
            remote,
            watchers,
        })
    }

    /// Ends both, node first, and checks that this project's end notices.
    pub async fn close(self) -> Result<()> {
        self.node.stop().await?;
        let ended = self.endpoint.ended().await;
        if ended != Ended::Left {
            bail!("node has left, and our end says: {ended}");
        }
        drop(self.watchers);
        Ok(())
    }
}

/// Ends a session that hangs, so that the call for which the test waits fails.
fn watch(way: Way, endpoint: Endpoint) -> Watcher {
    Watcher(tokio::spawn(async move {
        sleep(LONGEST).await;
        let status = endpoint.status().borrow().clone();
        eprintln!("{way:?}: not over after {LONGEST:?}, and given up: {status:?}");
        endpoint.dispose();
    }))
}

type Opened = (Node, Endpoint, Option<Watcher>);

async fn over_frames(way: Way, arguments: &[&str], config: Config) -> Result<Opened> {
    let name = way.carrier.name();
    let (node, websocket) = if way.node_listens {
        let (node, address) = Node::listen(name, arguments).await?;
        (node, dial_websocket(&address).await?)
    } else {
        let mut door = Door::open(true).await?;
        let node = Node::connect(name, &door.address()?, arguments)?;
        (node, door.websocket().await?)
    };
    let endpoint = Endpoint::over_connection(connection(websocket), config);
    Ok((node, endpoint, None))
}

/// A connection on which each frame is one whole message.
fn connection(websocket: WebSocket) -> Connection {
    let mut config = link::Config::new(Whole::rules());
    config.limits.frame = MESSAGE;
    config.limits.message = MESSAGE;
    config.limits.memory = 2 * MESSAGE;
    let wire = Arc::new(Whole::BINARY);
    let budget = Budget::unlimited();
    let link = Link::new(wire.clone(), wire, config, budget, fresh_seed());
    Connection::open(link, websocket, breakbulk::net::Options::default())
        .expect("WebSockets carry all frames")
}

async fn over_plain(way: Way, arguments: &[&str], config: Config) -> Result<Opened> {
    let (name, websocket) = (way.carrier.name(), way.carrier.is_websocket());
    let (node, stream) = if way.node_listens {
        let (node, address) = Node::listen(name, arguments).await?;
        (node, dial(websocket, &address).await?)
    } else {
        let mut door = Door::open(websocket).await?;
        let node = Node::connect(name, &door.address()?, arguments)?;
        (node, door.stream().await?)
    };
    Ok((node, Endpoint::over_stream(stream, config), None))
}

async fn over_persistent(way: Way, arguments: &[&str], config: Config) -> Result<Opened> {
    let (name, websocket) = (way.carrier.name(), way.carrier.is_websocket());
    if way.node_listens {
        let (node, address) = Node::listen(name, arguments).await?;
        let mut stream = dial(websocket, &address).await?;
        say_hello(&mut stream).await?;
        let endpoint = Endpoint::persistent(stream, config);
        let again = connect_again(endpoint.clone(), websocket, address);
        let again = or_dispose(endpoint.clone(), again);
        Ok((node, endpoint, Some(again)))
    } else {
        let mut door = Door::open(websocket).await?;
        let node = Node::connect(name, &door.address()?, arguments)?;
        let mut stream = door.stream().await?;
        let session = hear_hello(&mut stream).await?;
        let endpoint = Endpoint::persistent(stream, config);
        let again = accept_again(endpoint.clone(), door, session);
        let again = or_dispose(endpoint.clone(), again);
        Ok((node, endpoint, Some(again)))
    }
}

/// Runs the task that brings new sockets. If it fails, the session is disposed, and so its calls fail.
fn or_dispose(
    endpoint: Endpoint,
    again: impl Future<Output = Result<()>> + Send + 'static,
) -> Watcher {
    Watcher(tokio::spawn(async move {
        if let Err(why) = again.await {
            eprintln!("no more sockets, and the session is given up: {why:#}");
            endpoint.dispose();
        }
    }))
}

async fn connect_again(endpoint: Endpoint, websocket: bool, address: String) -> Result<()> {
    let mut stream = 1;
    while endpoint.lost(stream).await.is_ok() {
        let next = timeout(LONGEST_HELLO, dial_patiently(websocket, &address)).await;
        stream = endpoint.resume(next.map_err(|_| anyhow!("{address} does not answer"))??);
    }
    Ok(())
}

async fn dial_patiently(websocket: bool, address: &str) -> Result<Box<dyn Stream>> {
    let mut attempt = 0;
    loop {
        let dialled = async {
            let mut stream = dial(websocket, address).await?;
            say_hello(&mut stream).await?;
            Ok(stream)
        };
        match dialled.await {
            Err(why) if attempt < RETRIES => eprintln!("dialled in vain: {why:#}"),
            outcome => return outcome,
        }
        attempt += 1;
        sleep(RETRY).await;
    }
}

async fn accept_again(endpoint: Endpoint, mut door: Door, session: Value) -> Result<()> {
    let mut failures = 0;
    loop {
        let next = async {
            let mut stream = door.stream().await?;
            let heard = timeout(LONGEST_HELLO, hear_hello(&mut stream)).await;
            match heard.map_err(|_| anyhow!("no hello within {LONGEST_HELLO:?}"))?? {
                said if said == session => Ok(stream),
                other => bail!("a socket of another session: {other}"),
            }
        };
        match next.await {
            Ok(stream) => {
                endpoint.resume(stream);
            }
            // Node connects again, so this accepts again.
            Err(why) if failures < RETRIES => {
                failures += 1;
                eprintln!("a socket that was none: {why:#}");
            }
            Err(why) => return Err(why),
        }
    }
}
