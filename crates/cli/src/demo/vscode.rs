//! `breakbulk demo vscode`: a buffer of 24 MB as an argument, through a relay with a cap of 1 MB.

use std::sync::Arc;
use std::time::Instant;

use breakbulk::link::Preset;
use breakbulk::link::{Budget, Cap, Link, PeerLimits, PeerSupport, Wire};
use breakbulk::message::vscode::{Passed, RpcId, SerializedError, Value};
use breakbulk::net::stream::over_frames;
use breakbulk::net::ws::{ConnectOptions, ListenOptions, Listener, WebSocket, connect};
use breakbulk::net::{Connection, Options as Driving, fresh_seed};
use breakbulk::vscode::{Actor, Actors, Config, Endpoint, Returned};
use breakbulk::wire::{Loro, Whole};
use breakbulk_testkit::bad_path::{BadPath, Cut, Direction, How, Way, Weather};
use bytes::Bytes;

use super::story::{Story, figures};
use crate::failure::Failure;
use crate::size;

const BUFFER: usize = 24_000_000;

/// The largest message of the session whose connection is cut, in bytes.
const CUT: usize = 900_000;

/// Two endpoints with a relay between them.
struct Scene {
    caller: Endpoint,
    actor: RpcId,
    relay: BadPath,
    _callee: Endpoint,
}

pub(super) async fn show(story: &mut Story<'_>) -> Result<(), Failure> {
    let relay = Preset::AZURE_WEB_PUBSUB;
    story.title(&format!(
        "vscode: a buffer of {} for an actor behind a relay that takes {}",
        size::show(BUFFER),
        size::show(relay.cap().max)
    ))?;
    let buffer = Bytes::from(vec![7; BUFFER]);

    let scene = Scene::start(Arc::new(Whole::BINARY), Cap::frame(usize::MAX)).await?;
    match scene.call(&buffer).await {
        Ok(_) => return Err(failed("the relay let through what is over its cap")),
        Err(why) => story.fails("as one", &why)?,
    }

    let scene = Scene::start(Arc::new(Loro), relay.cap()).await?;
    let start = Instant::now();
    let digest = scene.call(&buffer).await.map_err(|why| failed(&why))?;
    let took = start.elapsed();
    if digest != check(&buffer) {
        return Err(failed(
            "the buffer that arrived is not the one that was sent",
        ));
    }
    let counts = scene.relay.counts();
    if counts.from_target.blocked + counts.from_client.blocked > 0 {
        return Err(failed("a frame over the cap was sent to the relay"));
    }
    let passed = counts.from_client;
    let figures = figures("frames", passed.frames, passed.largest_frame, took);
    story.works("in fragments", &figures)?;
    if story.is_full() {
        show_cut(story, &buffer).await?;
    }
    story.next(&[
        "breakbulk gateway --listen loro+ws://8080 --to 'exec:cat?framing=ipc'",
        "breakbulk gateway --listen 'tcp://7000?framing=ipc' \\\n    --to loro+ws://127.0.0.1:8080 --preset azure-web-pubsub",
    ])
}

/// Cuts the connection of a session that can go on over another one, in the middle of a call.
async fn show_cut(story: &mut Story<'_>, buffer: &Bytes) -> Result<(), Failure> {
    let (mut listener, relay, url) = path().await?;
    let dial = async || {
        let near = connect(&url, &connect_options()).await;
        let near = near.map_err(|error| failed(&error.to_string()))?;
        over_frames(near, CUT).map_err(|error| failed(&error.to_string()))
    };
    let (near, far) = tokio::join!(dial(), listener.accept());
    let far = far.map_err(|error| failed(&error.to_string()))?.websocket;
    let far = over_frames(far, CUT).map_err(|error| failed(&error.to_string()))?;
    let actor = actor_id()?;
    let caller = Endpoint::persistent(near?, Config::default());
    let callee = Endpoint::persistent(far, serving(actor));
    tokio::spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            let Ok(stream) = over_frames(accepted.websocket, CUT) else {
                return;
            };
            callee.resume(stream);
        }
    });
    relay.cut_after(Cut {
        counting: Some(Direction::FromClient),
        how: How::Reset,
        ..Cut::frames(10)
    });
    let start = Instant::now();
    let mut resumed = 0;
    let resuming = async {
        let mut stream = 1;
        while caller.lost(stream).await.is_ok() {
            stream = caller.resume(dial().await?);
            resumed += 1;
        }
        Ok::<(), Failure>(())
    };
    let answer = tokio::select! {
        answer = call(&caller, actor, buffer) => answer.map_err(|why| failed(&why))?,
        ended = resuming => {
            ended?;
            return Err(failed("the session ended"));
        }
    };
    if answer != check(buffer) || resumed == 0 {
        return Err(failed(&format!(
            "the buffer arrived changed, or the connection was not cut ({resumed} cuts)"
        )));
    }
    story.works(
        "reconnected",
        &format!(
            "after a cut 10 messages into the call: the rest followed, in {:.2} s; identical",
            start.elapsed().as_secs_f64()
        ),
    )
}

/// A listener, a relay with the cap in front of it, and the relay's address.
async fn path() -> Result<(Listener, BadPath, String), Failure> {
    let options = ListenOptions {
        fragment: None,
        frame_limit: 2 * BUFFER,
        ..ListenOptions::default()
    };
    let listener = Listener::bind("127.0.0.1:0", options).await;
    let listener = listener.map_err(|error| failed(&error.to_string()))?;
    let way = Way {
        message_cap: Some(Preset::AZURE_WEB_PUBSUB.cap().max as u64),
        ..Way::default()
    };
    let relay = BadPath::start(listener.local_addr(), Weather::both_ways(way)).await;
    let relay = relay.map_err(|error| Failure::Io("the relay".to_owned(), error))?;
    let url = format!("ws://{}/", relay.address());
    Ok((listener, relay, url))
}

fn connect_options() -> ConnectOptions {
    ConnectOptions {
        fragment: None,
        ..ConnectOptions::default()
    }
}

fn actor_id() -> Result<RpcId, Failure> {
    RpcId::new(1).map_err(|error| failed(&error.to_string()))
}

/// An endpoint with an actor that checks the buffer it is given.
fn serving(actor: RpcId) -> Config {
    let checks = Actor::new().method("$check", |call| async move {
        let found = match call.values().as_deref() {
            Ok([Passed::Plain(Value::Buffer(bytes))]) => check(bytes),
            _ => return Err(SerializedError::new("TypeError", "a buffer is expected").into()),
        };
        Returned::json(&found)
    });
    Config::default().with(|config| config.actors = Actors::new().add(actor, "Demo", checks))
}

/// The length of a buffer and the sum of its bytes: enough to see that nothing is missing or changed.
fn check(bytes: &[u8]) -> (u64, u64) {
    let sum = bytes.iter().map(|byte| u64::from(*byte)).sum();
    (bytes.len() as u64, sum)
}

/// What the actor found.
async fn call(caller: &Endpoint, actor: RpcId, buffer: &Bytes) -> Result<(u64, u64), String> {
    let args = vec![Passed::Plain(Value::Buffer(buffer.clone()))];
    let answer = caller.remote(actor).call_values("$check", args).await;
    let answer = answer.map_err(|error| error.to_string())?;
    answer.typed().map_err(|error| error.to_string())
}

impl Scene {
    async fn start(wire: Arc<dyn Wire>, cap: Cap) -> Result<Self, Failure> {
        let (mut listener, relay, url) = path().await?;
        let options = connect_options();
        let (near, far) = tokio::join!(connect(&url, &options), listener.accept());
        let near = near.map_err(|error| failed(&error.to_string()))?;
        let far = far.map_err(|error| failed(&error.to_string()))?.websocket;
        let actor = actor_id()?;
        let open = |websocket: WebSocket| open(&wire, cap, websocket);
        Ok(Self {
            caller: Endpoint::over_connection(open(near)?, Config::default()),
            _callee: Endpoint::over_connection(open(far)?, serving(actor)),
            actor,
            relay,
        })
    }

    async fn call(&self, buffer: &Bytes) -> Result<(u64, u64), String> {
        call(&self.caller, self.actor, buffer).await
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
