//! A Nostr relay that lies: it keeps every event that is published to it, and delivers to its
//! subscribers whatever a test tells it to, under any name.

use std::fmt;
use std::sync::{Arc, Mutex};

use breakbulk_link::{Frame, lock};
use breakbulk_net::ws::{ListenOptions, Listener, WebSocket};
use breakbulk_net::{Incoming, Sink, Source, Transport};
use nostr_sdk::{EventBuilder, JsonUtil, Keys};
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::bad_relay::StartError;

/// How many events may wait for one subscriber.
const WAITING: usize = 4096;

/// A running relay. Dropping it stops it.
pub struct LyingRelay {
    url: String,
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    /// Every event that was published here, oldest first.
    recorded: Mutex<Vec<Value>>,
    /// How many they are.
    count: watch::Sender<usize>,
    /// Events on their way to all subscribers.
    deliveries: broadcast::Sender<Value>,
    /// Whether it sends EOSE after the stored events.
    says_end: bool,
    /// How many subscriptions there were.
    subscribed: watch::Sender<usize>,
}

/// A message that its author never signed.
#[derive(Clone, Debug)]
pub struct Forged {
    /// The public key that it claims to be from, in hex.
    pub author: String,
    /// The kind of event.
    pub kind: u16,
    /// Its tags.
    pub tags: Vec<Vec<String>>,
    /// Its text.
    pub content: String,
}

impl LyingRelay {
    /// Starts a relay on a free port of this machine.
    pub async fn start() -> Result<Self, StartError> {
        Self::start_as(true).await
    }

    /// Starts a relay that never sends EOSE, which would say that all stored events were sent.
    pub async fn start_without_end() -> Result<Self, StartError> {
        Self::start_as(false).await
    }

    async fn start_as(says_end: bool) -> Result<Self, StartError> {
        let listener = Listener::bind("127.0.0.1:0", ListenOptions::default())
            .await
            .map_err(|error| StartError(error.to_string()))?;
        let url = format!("ws://{}", listener.local_addr());
        let shared = Arc::new(Shared {
            recorded: Mutex::default(),
            count: watch::Sender::new(0),
            deliveries: broadcast::Sender::new(WAITING),
            says_end,
            subscribed: watch::Sender::new(0),
        });
        let task = tokio::spawn(accept(listener, shared.clone())).abort_handle();
        Ok(Self { url, shared, task })
    }

    /// The address that clients connect to.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits until `count` events were published here, and returns all, oldest first.
    pub async fn recorded(&self, count: usize) -> Vec<Value> {
        let mut published = self.shared.count.subscribe();
        // The sender is in `shared`, so this ends only when the condition holds.
        let _ = published.wait_for(|published| *published >= count).await;
        lock(&self.shared.recorded).clone()
    }

    /// Waits until somebody is subscribed.
    pub async fn is_subscribed_to(&self) {
        // The sender is in `shared`, so this ends only when the condition holds.
        let mut subscribed = self.shared.subscribed.subscribe();
        let _ = subscribed.wait_for(|count| *count > 0).await;
    }

    /// Delivers an event to every subscription, whatever its filter says.
    pub fn deliver(&self, event: Value) {
        // An error means that nobody is subscribed.
        let _ = self.shared.deliveries.send(event);
    }

    /// Delivers a message that its author never signed. Before it a valid event with the same id is
    /// delivered: a library that remembers verified ids believes the second one too.
    pub fn forge(&self, forged: &Forged) -> Result<(), StartError> {
        let wrong = |error: String| StartError(error);
        let valid = EventBuilder::text_note("nothing")
            .sign_with_keys(&Keys::generate())
            .map_err(|error| wrong(error.to_string()))?;
        let mut event: Value =
            serde_json::from_str(&valid.as_json()).map_err(|error| wrong(error.to_string()))?;
        self.deliver(event.clone());
        event["pubkey"] = json!(forged.author);
        event["kind"] = json!(forged.kind);
        event["tags"] = json!(forged.tags);
        event["content"] = json!(forged.content);
        self.deliver(event);
        Ok(())
    }
}

impl Drop for LyingRelay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for LyingRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LyingRelay({})", self.url)
    }
}

async fn accept(mut listener: Listener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok(accepted) = listener.accept().await {
        connections.spawn(serve(accepted.websocket, shared.clone()));
    }
}

/// Serves one client: events that it publishes are recorded, accepted and delivered to everybody.
async fn serve(websocket: WebSocket, shared: Arc<Shared>) {
    let (mut source, mut sink) = websocket.split();
    let mut deliveries = shared.deliveries.subscribe();
    let mut subscriptions: Vec<Value> = Vec::new();
    loop {
        let answers = tokio::select! {
            incoming = source.next() => match incoming {
                Incoming::Frame(frame) | Incoming::Posted(frame, _) => {
                    answer(frame.bytes(), &mut subscriptions, &shared)
                }
                Incoming::Alive => Vec::new(),
                Incoming::Closed(_) | Incoming::Broken(_) => return,
            },
            event = deliveries.recv() => match event {
                Ok(event) => subscriptions
                    .iter()
                    .map(|subscription| json!(["EVENT", subscription, event]))
                    .collect(),
                Err(_) => return,
            },
        };
        for answer in answers {
            let frame = Frame::Text(answer.to_string().into());
            if sink.send(frame).await.is_err() {
                return;
            }
        }
    }
}

/// What a client is answered.
fn answer(message: &[u8], subscriptions: &mut Vec<Value>, shared: &Shared) -> Vec<Value> {
    let message: Value = serde_json::from_slice(message).unwrap_or_default();
    let word = message[0].as_str().unwrap_or_default();
    let about = message[1].clone();
    match word {
        "REQ" => {
            subscriptions.retain(|known| *known != about);
            subscriptions.push(about.clone());
            shared.subscribed.send_modify(|count| *count += 1);
            match shared.says_end {
                true => vec![json!(["EOSE", about])],
                false => Vec::new(),
            }
        }
        "CLOSE" => {
            subscriptions.retain(|known| *known != about);
            Vec::new()
        }
        "EVENT" => {
            lock(&shared.recorded).push(about.clone());
            shared.count.send_modify(|count| *count += 1);
            let accepted = json!(["OK", about["id"], true, ""]);
            let _ = shared.deliveries.send(about);
            vec![accepted]
        }
        _ => Vec::new(),
    }
}
