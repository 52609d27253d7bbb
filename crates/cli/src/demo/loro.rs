//! `breakbulk demo loro`: pushes a document of 5 MB to a sync server, through a gateway that accepts
//! messages of up to 128 KB, and by POSTs of up to 100 KB.

use std::time::{Duration, Instant};

use breakbulk::loro::http::serve_options;
use breakbulk::loro::store::MemoryStore;
use breakbulk::loro::{Backoff, Config, Cut, Dial, Node, Status};
use breakbulk::net::http;
use breakbulk_testkit::bad_path::{self as path, BadPath, Direction, How, Way, Weather};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::story::{Form, Story, figures};
use crate::failure::Failure;
use crate::size;

const TEXT: usize = 5_000_000;

const CAP: usize = 128_000;

/// The server's limit on a POST's body.
const BODY: usize = 100_000;

/// Connections that are tried where a path refuses every one.
const TRIES: usize = 2;

const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) async fn show(story: &mut Story<'_>) -> Result<(), Failure> {
    let size = match story.form {
        Form::Short => TEXT / 5,
        Form::Full => TEXT,
    };
    story.title(&format!(
        "loro: a document of {} for a server behind a gateway that takes {}",
        size::show(size),
        size::show(CAP)
    ))?;
    let scene = Scene::start(size).await?;
    let socket = format!("ws://{}/ws", scene.relay.address());
    let events = format!("http://{}?transport=sse", scene.address);
    let polls = format!("http://{}?transport=poll", scene.address);

    let never = Cut::Native(0);
    match scene.push("whole", &socket, never, TRIES).await {
        Ok(_) => return Err(failed("the gateway let through what is over its cap")),
        // The gateway's own words: what comes before them depends on which side noticed first.
        Err(why) => {
            let at = why.find("message of").unwrap_or_default();
            story.fails("as one", &format!("refused: {}", &why[at..]))?;
        }
    }
    let before = scene.relay.counts().from_client;
    let took = scene
        .push("fragments", &socket, Cut::Cap(CAP), TRIES)
        .await
        .map_err(|why| failed(&why))?;
    let passed = scene.relay.counts().from_client;
    if passed.blocked > before.blocked {
        return Err(failed("a message over the cap was sent to the gateway"));
    }
    // The largest frame of both attempts: the frame that was refused in the first one did not pass.
    let frames = passed.frames - before.frames;
    story.works(
        "in fragments",
        &figures("frames", frames, passed.largest_frame, took),
    )?;
    if !story.is_full() {
        return Ok(());
    }
    let [sse, poll] = [("sse", &events), ("poll", &polls)]
        .map(|(way, url)| scene.push(way, url, Cut::Cap(BODY), TRIES));
    let sse = sse.await.map_err(|why| failed(&why))?;
    let poll = poll.await.map_err(|why| failed(&why))?;
    story.works(
        "by POST",
        &format!(
            "bodies of at most {}: {:.2} s with SSE, {:.2} s with polls; identical",
            size::show(BODY),
            sse.as_secs_f64(),
            poll.as_secs_f64()
        ),
    )?;
    scene.relay.cut_after(path::Cut {
        counting: Some(Direction::FromClient),
        how: How::Reset,
        ..path::Cut::frames(20)
    });
    let cuts = scene.relay.counts().cuts;
    let took = scene
        .push("cut", &socket, Cut::Cap(CAP), usize::MAX)
        .await
        .map_err(|why| failed(&why))?;
    if scene.relay.counts().cuts == cuts {
        return Err(failed("the connection was not cut"));
    }
    story.works(
        "reconnected",
        &format!(
            "after a cut 20 frames into the document: synced, in {:.2} s; identical",
            took.as_secs_f64()
        ),
    )?;
    story.next(&[
        "breakbulk loro serve --data documents --listen 127.0.0.1:7402",
        "echo '{\"text\":\"hello\"}' | breakbulk loro push ws://127.0.0.1:7402/ws doc",
        "breakbulk loro pull ws://127.0.0.1:7402/ws doc",
    ])
}

/// A server, and a gateway in front of it.
struct Scene {
    /// Letters of a document.
    size: usize,
    server: Node,
    relay: BadPath,
    address: std::net::SocketAddr,
}

impl Scene {
    async fn start(size: usize) -> Result<Self, Failure> {
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
            size,
            server,
            relay,
            address,
        })
    }

    /// Pushes a document to the server, by at most so many connections; returns how long it took, or why it
    /// failed.
    async fn push(
        &self,
        name: &str,
        url: &str,
        cut: Cut,
        tries: usize,
    ) -> Result<Duration, String> {
        let mut config = Config::client("demo");
        config.cuts.web_socket = cut;
        config.cuts.post = cut;
        let client = Node::new(config, MemoryStore::new()).map_err(|error| error.to_string())?;
        let doc = client.open(name).await.map_err(|error| error.to_string())?;
        let text = format!("{name} says: {}", random_text(self.size));
        let written = doc.loro().get_text("text").insert(0, &text);
        written.map_err(|error| error.to_string())?;
        let start = Instant::now();
        let mut dial = Dial::new(url);
        dial.backoff = Backoff {
            tries: u32::try_from(tries).unwrap_or(u32::MAX),
            base: Duration::from_millis(10),
            ..Backoff::default()
        };
        let remote = client.dial(dial);
        let mut status = remote.status();
        let gone = status.wait_for(|status| match status {
            // A second attempt would fail in the same way.
            Status::Waiting { .. } => tries == TRIES,
            Status::GaveUp { .. } => true,
            _ => false,
        });
        let synced = timeout(TIMEOUT, async {
            tokio::select! {
                synced = doc.sync() => synced.map_err(|error| error.to_string()),
                status = gone => Err(match status.as_deref() {
                    Ok(Status::Waiting { reason, .. } | Status::GaveUp { reason }) => {
                        reason.to_string()
                    }
                    _ => "the connection is closed".to_owned(),
                }),
            }
        });
        synced
            .await
            .map_err(|_| "it was not synced in time".to_owned())??;
        let took = start.elapsed();
        let kept = self
            .server
            .open(name)
            .await
            .map_err(|error| error.to_string())?;
        match kept.loro().get_text("text").to_string() == text {
            true => Ok(took),
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
