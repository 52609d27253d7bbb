//! `breakbulk demo vscode`: a buffer of 24 MB as an argument, through a relay with a cap of 1 MB.

use std::sync::Arc;
use std::time::Instant;

use breakbulk::link::Preset;
use breakbulk::link::{Budget, Cap, Link, PeerLimits, PeerSupport, Wire};
use breakbulk::message::vscode::{Passed, RpcId, SerializedError, Value};
use breakbulk::net::ws::{ConnectOptions, ListenOptions, Listener, WebSocket, connect};
use breakbulk::net::{Connection, Options as Driving, fresh_seed};
use breakbulk::vscode::{Actor, Actors, Config, Endpoint, Returned};
use breakbulk::wire::{Loro, Whole};
use breakbulk_testkit::bad_path::{BadPath, Way, Weather};
use bytes::Bytes;

use crate::failure::Failure;
use crate::output::Output;
use crate::size;

const BUFFER: usize = 24_000_000;

/// Two endpoints with a relay between them.
struct Scene {
    caller: Endpoint,
    actor: RpcId,
    relay: BadPath,
    _callee: Endpoint,
}

pub(super) async fn show(out: &mut Output) -> Result<(), Failure> {
    let relay = Preset::AZURE_WEB_PUBSUB;
    out.line(&format!(
        "An actor behind VSCode's RPC gets a buffer of {}, behind a relay ({}).\n",
        size::show(BUFFER),
        relay.about()
    ))?;
    let buffer = Bytes::from(vec![7; BUFFER]);

    let scene = Scene::start(Arc::new(Whole::BINARY), Cap::frame(usize::MAX)).await?;
    match scene.call(&buffer).await {
        Ok(_) => return Err(failed("the relay let through what is over its cap")),
        Err(why) => out.line(&format!("the plain way   {why}"))?,
    }

    let scene = Scene::start(Arc::new(Loro), relay.cap()).await?;
    let start = Instant::now();
    let length = scene.call(&buffer).await.map_err(|why| failed(&why))?;
    let seconds = start.elapsed().as_secs_f64();
    if length != BUFFER {
        return Err(failed(&format!("{length} bytes arrived")));
    }
    let counts = scene.relay.counts();
    if counts.from_target.blocked + counts.from_client.blocked > 0 {
        return Err(failed("the relay met a frame over its cap"));
    }
    out.line(&format!(
        "in fragments    {} as {} frames, the largest {} bytes, in {seconds:.2} s; the actor counted {length} bytes",
        size::show(BUFFER),
        counts.from_client.frames,
        counts.from_client.largest_frame
    ))?;
    out.line("\nThe relay saw no frame over its cap.")
}

impl Scene {
    async fn start(wire: Arc<dyn Wire>, cap: Cap) -> Result<Self, Failure> {
        let options = ListenOptions {
            fragment: None,
            frame_limit: 2 * BUFFER,
            ..ListenOptions::default()
        };
        let listener = Listener::bind("127.0.0.1:0", options).await;
        let mut listener = listener.map_err(|error| failed(&error.to_string()))?;
        let way = Way {
            message_cap: Some(Preset::AZURE_WEB_PUBSUB.cap().max as u64),
            ..Way::default()
        };
        let relay = BadPath::start(listener.local_addr(), Weather::both_ways(way)).await;
        let relay = relay.map_err(|error| Failure::Io("the relay".to_owned(), error))?;
        let url = format!("ws://{}/", relay.address());
        let options = ConnectOptions {
            fragment: None,
            ..ConnectOptions::default()
        };
        let (near, far) = tokio::join!(connect(&url, &options), listener.accept());
        let near = near.map_err(|error| failed(&error.to_string()))?;
        let far = far.map_err(|error| failed(&error.to_string()))?.websocket;

        let actor = RpcId::new(1).map_err(|error| failed(&error.to_string()))?;
        let length = Actor::new().method("$length", |call| async move {
            let length = match call.values().as_deref() {
                Ok([Passed::Plain(Value::Buffer(bytes))]) => bytes.len(),
                _ => return Err(SerializedError::new("TypeError", "a buffer is expected").into()),
            };
            Returned::json(&length)
        });
        let callee = Config::default()
            .with(|config| config.actors = Actors::new().add(actor, "Demo", length));
        let open = |websocket: WebSocket| open(&wire, cap, websocket);
        Ok(Self {
            caller: Endpoint::over_connection(open(near)?, Config::default()),
            _callee: Endpoint::over_connection(open(far)?, callee),
            actor,
            relay,
        })
    }

    /// The length of the buffer, as the actor counts it.
    async fn call(&self, buffer: &Bytes) -> Result<usize, String> {
        let args = vec![Passed::Plain(Value::Buffer(buffer.clone()))];
        let answer = self.caller.remote(self.actor).call_values("$length", args);
        let answer = answer.await.map_err(|error| error.to_string())?;
        answer.typed().map_err(|error| error.to_string())
    }
}

fn open(wire: &Arc<dyn Wire>, cap: Cap, websocket: WebSocket) -> Result<Connection, Failure> {
    let mut config = if cap.max == usize::MAX {
        breakbulk::link::Config::new(Whole::rules())
    } else {
        Loro::config()
    };
    config.limits.message = 2 * BUFFER;
    config.limits.memory = 4 * BUFFER;
    config.limits.frame = 2 * BUFFER;
    let mut link = Link::new(
        wire.clone(),
        wire.clone(),
        config,
        Budget::new(8 * BUFFER),
        fresh_seed(),
    );
    link.set_cap(cap);
    link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
    let opened = Connection::open(link, websocket, Driving::default());
    opened.map_err(|error| failed(&error.to_string()))
}

fn failed(why: &str) -> Failure {
    Failure::Session(format!("demo vscode: {why}"))
}
