//! `breakbulk demo ahp`: a 24 MB state through a relay with a cap of 1 MB, over real sockets.

use std::sync::Mutex;
use std::time::Instant;

use breakbulk::ahp::host::{Applied, State};
use breakbulk::ahp::log::{Limits, MemoryLog};
use breakbulk::ahp::{Application, Client, ClientConfig, ClientError, Event, Host, HostConfig};
use breakbulk::link::{Cap, Preset};
use breakbulk::message::ahp::Chunking;
use breakbulk::net::ws::{ConnectOptions, ListenOptions, Listener, connect};
use breakbulk_testkit::bad_path::{BadPath, Cut, Direction, How, Way, Weather};
use serde_json::value::RawValue;

use super::story::{Story, figures};
use crate::failure::Failure;
use crate::size;

const MESSAGE: usize = 24_000_000;

const CHANNEL: &str = "ahp-session:/demo";

/// One channel with a large state.
struct Session(Mutex<Box<RawValue>>);

impl Application for Session {
    fn snapshot(&self, channel: &str) -> Option<State> {
        let state = self.0.lock().ok()?.clone();
        (channel == CHANNEL).then(|| State::new(state))
    }

    fn apply(&self, _: &Applied<'_>) {}
}

/// A host behind a relay that accepts messages of up to 1 MB.
struct Scene {
    host: Host<Session>,
    relay: BadPath,
    state: String,
}

pub(super) async fn show(story: &mut Story<'_>) -> Result<(), Failure> {
    let relay = Preset::AZURE_WEB_PUBSUB;
    story.title(&format!(
        "ahp: a session of {} behind a relay that takes {}",
        size::show(MESSAGE),
        size::show(relay.cap().max)
    ))?;

    // This host does not know the path's cap, and its client does not support segments.
    let scene = Scene::start(Cap::frame(usize::MAX)).await?;
    let no_segments = Chunking {
        max_frame_bytes: 0,
        ..Chunking::default()
    };
    match scene
        .client(no_segments)
        .initialize(scene.line().await?, &[CHANNEL])
        .await
    {
        Err(ClientError::Disconnected { code, reason }) => {
            story.fails("as one", &format!("closed with {code}: {reason}"))?;
        }
        Err(error) => return Err(failed(&error)),
        Ok(_) => {
            return Err(failed(
                "the relay let a message through that is over its cap",
            ));
        }
    }

    let scene = Scene::start(relay.cap()).await?;
    let client = scene.client(Chunking::default());
    let start = Instant::now();
    let initialized = client
        .initialize(scene.line().await?, &[CHANNEL])
        .await
        .map_err(|error| failed(&error))?;
    let took = start.elapsed();
    let arrived = initialized.snapshots.iter().next();
    if arrived.is_none_or(|snapshot| snapshot.state.as_str() != scene.state) {
        return Err(failed(
            "the state that arrived is not the one that was sent",
        ));
    }
    let passed = scene.relay.counts().from_target;
    let figures = figures("frames", passed.frames, passed.largest_frame, took);
    story.works("in segments", &figures)?;
    if story.is_full() {
        show_reconnect(story, &scene, &client).await?;
    }
    let counts = scene.relay.counts();
    if counts.from_target.blocked + counts.from_client.blocked > 0 {
        return Err(failed("a frame over the cap was sent to the relay"));
    }
    story.next(&[
        "breakbulk gateway --listen ws://8080 --to 'exec:breakbulk echo'",
        "breakbulk relay --listen ws://9000 --to ws://127.0.0.1:8080 --cap 1MB",
        "breakbulk echo --ask 20MB \\\n    breakbulk gateway --listen stdio: --to ws://127.0.0.1:9000",
    ])
}

/// Cuts the connection in the middle of a large action, and checks that nothing is lost.
async fn show_reconnect(
    story: &mut Story<'_>,
    scene: &Scene,
    client: &Client,
) -> Result<(), Failure> {
    while !matches!(client.next().await, Some(Event::Snapshot(_)) | None) {}
    scene.relay.cut_after(Cut {
        counting: Some(Direction::FromTarget),
        how: How::End,
        ..Cut::frames(10)
    });
    // A large action, and a small one right after it, which must not make the client skip the large one.
    let texts = [scene.state.clone(), "\"small\"".to_owned()];
    for text in &texts {
        let action = RawValue::from_string(text.clone()).map_err(|error| failed(&error))?;
        let published = scene.host.publish(CHANNEL, &action, None);
        published.map_err(|error| failed(&error))?;
    }
    let mut got = Vec::new();
    let mut cuts = 0;
    while got.len() < 2 {
        match client.next().await {
            Some(Event::Action(action)) => {
                if texts.get(got.len()).map(String::as_str) != Some(action.action.as_str()) {
                    return Err(failed("an action arrived changed, or out of order"));
                }
                got.push(action.seq);
            }
            Some(Event::Disconnected { .. }) => {
                cuts += 1;
                let resumed = client.reconnect(scene.line().await?).await;
                resumed.map_err(|error| failed(&error))?;
            }
            Some(_) => {}
            None => return Err(failed("the connection ended")),
        }
    }
    if got != [1, 2] || cuts == 0 {
        return Err(failed(&format!(
            "actions 1 and 2 arrived as {got:?}, after {cuts} cuts"
        )));
    }
    story.works(
        "reconnected",
        &format!(
            "after a cut 10 frames into an action of {}: it and a small action after it arrived once, in order",
            size::show(MESSAGE)
        ),
    )
}

impl Scene {
    async fn start(cap: Cap) -> Result<Self, Failure> {
        let state = state();
        let app = RawValue::from_string(state.clone()).map_err(|error| failed(&error))?;
        let config = HostConfig::default().with(|config| config.connection.cap = cap);
        let host = Host::new(
            Session(Mutex::new(app)),
            MemoryLog::new(Limits::default()),
            config,
        );
        let options = ListenOptions {
            fragment: None,
            ..ListenOptions::default()
        };
        let mut listener = Listener::bind("127.0.0.1:0", options)
            .await
            .map_err(|error| failed(&error))?;
        let address = listener.local_addr();
        let serving = host.clone();
        tokio::spawn(async move {
            while let Ok(accepted) = listener.accept().await {
                tokio::spawn(serving.serve(accepted.websocket));
            }
        });
        let relay = Way {
            message_cap: Some(Preset::AZURE_WEB_PUBSUB.cap().max as u64),
            ..Way::default()
        };
        let relay = BadPath::start(address, Weather::both_ways(relay))
            .await
            .map_err(|error| Failure::Io("the relay".to_owned(), error))?;
        Ok(Self { host, relay, state })
    }

    fn client(&self, chunking: Chunking) -> Client {
        let mut config = ClientConfig::new("demo");
        config.connection.chunking = chunking;
        config.connection.cap = Preset::AZURE_WEB_PUBSUB.cap();
        Client::new(config)
    }

    /// A new connection through the relay.
    async fn line(&self) -> Result<breakbulk::net::ws::WebSocket, Failure> {
        let url = format!("ws://{}/", self.relay.address());
        let options = ConnectOptions {
            frame_limit: 2 * MESSAGE,
            ..ConnectOptions::default()
        };
        connect(&url, &options)
            .await
            .map_err(|error| failed(&error))
    }
}

/// A JSON string with some characters beyond ASCII.
fn state() -> String {
    let line = "To break bulk: to open the hold and carry a cargo ashore, piece by piece. 散貨。 ";
    let text = line.repeat(MESSAGE / line.len());
    format!("\"{text}\"")
}

fn failed(why: &(impl ToString + ?Sized)) -> Failure {
    Failure::Session(format!("demo ahp: {}", why.to_string()))
}
