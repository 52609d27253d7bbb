//! `breakbulk demo loro`: pushes a document of 5 MB to a sync server, through a gateway that accepts
//! messages of up to 128 KB, and by POSTs of up to 100 KB.

use std::time::{Duration, Instant};

use breakbulk::loro::http::serve_options;
use breakbulk::loro::store::MemoryStore;
use breakbulk::loro::{Backoff, Config, Cut, Dial, Node, Status};
use breakbulk::net::http;
use breakbulk_testkit::bad_path::{BadPath, Way, Weather};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::output::Output;
use crate::size;

const TEXT: usize = 5_000_000;

const CAP: usize = 128_000;

/// The server's limit on a POST's body.
const BODY: usize = 100_000;

const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) async fn show(out: &mut Output) -> Result<(), Failure> {
    out.line(&format!(
        "A document of {} comes to a sync server: by WebSocket messages of at most {CAP} bytes, and by POST bodies of at most {BODY}.\n",
        size::show(TEXT)
    ))?;
    let scene = Scene::start().await?;
    let socket = format!("ws://{}/ws", scene.relay.address());
    let events = format!("http://{}?transport=sse", scene.address);
    let polls = format!("http://{}?transport=poll", scene.address);

    let never = Cut::Native(0);
    match scene.push("whole", &socket, never).await {
        Ok(_) => return Err(failed("the gateway let through what is over its cap")),
        Err(why) => out.line(&format!("the plain way   {why}"))?,
    }
    let struck = scene.relay.counts().from_client.blocked;
    for (way, url, cut) in [
        ("WebSocket", &socket, Cut::Cap(CAP)),
        ("SSE + POST", &events, Cut::Cap(BODY)),
        ("polls + POST", &polls, Cut::Cap(BODY)),
    ] {
        let seconds = scene
            .push(way, url, cut)
            .await
            .map_err(|why| failed(&why))?;
        out.line(&format!(
            "{way:<15} {} in fragments in {seconds:.2} s; the server has it letter for letter",
            size::show(TEXT)
        ))?;
    }
    if scene.relay.counts().from_client.blocked > struck {
        return Err(failed("the gateway met a message over its cap"));
    }
    out.line("\nThe gateway saw no message over its cap, the server no body over its limit.")
}

/// A server, and a gateway in front of it.
struct Scene {
    server: Node,
    relay: BadPath,
    address: std::net::SocketAddr,
}

impl Scene {
    async fn start() -> Result<Self, Failure> {
        let io = |error| Failure::Io("the server".to_owned(), error);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(io)?;
        let address = listener.local_addr().map_err(io)?;
        let options = http::ServeOptions {
            body_max: BODY,
            ..serve_options()
        };
        let (router, arrivals) = http::router(options);
        let server = Node::new(Config::server("server"), MemoryStore::new());
        let server = server.map_err(|error| failed(&error.to_string()))?;
        server.serve(arrivals);
        tokio::spawn(http::serve(listener, router, http::Limits::default()));
        let way = Way {
            message_cap: Some(CAP as u64),
            ..Way::default()
        };
        let relay = BadPath::start(address, Weather::both_ways(way)).await;
        let relay = relay.map_err(|error| Failure::Io("the gateway".to_owned(), error))?;
        Ok(Self {
            server,
            relay,
            address,
        })
    }

    /// Pushes a document to the server; returns the seconds, or why it failed.
    async fn push(&self, name: &str, url: &str, cut: Cut) -> Result<f64, String> {
        let mut config = Config::client("demo");
        config.cuts.web_socket = cut;
        config.cuts.post = cut;
        let client = Node::new(config, MemoryStore::new()).map_err(|error| error.to_string())?;
        let doc = client.open(name).await.map_err(|error| error.to_string())?;
        let text = format!("{name} says: {}", random_text(TEXT));
        let written = doc.loro().get_text("text").insert(0, &text);
        written.map_err(|error| error.to_string())?;
        let start = Instant::now();
        let mut dial = Dial::new(url);
        dial.backoff = Backoff {
            tries: 2,
            base: Duration::from_millis(10),
            ..Backoff::default()
        };
        let remote = client.dial(dial);
        let mut status = remote.status();
        // A second attempt would fail in the same way.
        let gone = status
            .wait_for(|status| matches!(status, Status::Waiting { .. } | Status::GaveUp { .. }));
        let synced = timeout(TIMEOUT, async {
            tokio::select! {
                synced = doc.sync() => synced.map_err(|error| error.to_string()),
                status = gone => Err(match status.as_deref() {
                    Ok(Status::Waiting { reason, .. } | Status::GaveUp { reason }) => {
                        format!("the connection was closed, and would be again: {reason}")
                    }
                    _ => "the connection is closed".to_owned(),
                }),
            }
        });
        synced
            .await
            .map_err(|_| "it was not synced in time".to_owned())??;
        let seconds = start.elapsed().as_secs_f64();
        let kept = self
            .server
            .open(name)
            .await
            .map_err(|error| error.to_string())?;
        match kept.loro().get_text("text").to_string() == text {
            true => Ok(seconds),
            false => Err("the server has another text".to_owned()),
        }
    }
}

/// Random letters: snapshots are compressed, so a repetitive text would not be large.
fn random_text(len: usize) -> String {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let letter = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state % 26) as u8)
    };
    (0..len).map(letter).collect()
}

fn failed(why: &str) -> Failure {
    Failure::Session(format!("demo loro: {why}"))
}
