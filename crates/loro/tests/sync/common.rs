//! A scripted peer that sends and receives single frames, and nodes that are connected in memory.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use breakbulk_link::Frame;
use breakbulk_loro::store::MemoryStore;
use breakbulk_loro::{Backoff, Config, Doc, Node, Remote, Way};
use breakbulk_message::loro::{ChannelMsg, PeerIdentity, PeerType, decode_frame, encode_frame};
use breakbulk_net::memory::{self, Memory, MemorySink, MemorySource};
use breakbulk_net::{Incoming, Options, Sink, Source, Transport};
use bytes::Bytes;

/// A time limit longer than anything in these tests takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

pub(crate) fn server_config() -> Config {
    let mut config = Config::server("server");
    config.identity.peer_id = "1000".into();
    config.ready_delay = Duration::ZERO;
    config
}

pub(crate) fn client_config() -> Config {
    let mut config = Config::client("client");
    config.identity.peer_id = "2000".into();
    config
}

pub(crate) fn node(config: Config) -> Node {
    Node::new(config, MemoryStore::new()).unwrap()
}

/// A scripted peer: single frames in both directions.
pub(crate) struct Raw {
    source: MemorySource,
    sink: MemorySink,
}

impl Raw {
    pub(crate) fn new(end: Memory) -> Self {
        let (source, sink) = end.split();
        Self { source, sink }
    }

    /// A peer that connects to this node.
    pub(crate) async fn calling(server: &Node) -> Self {
        Self::calling_with(server, Options::default()).await
    }

    /// As `calling`, with other keepalive options.
    async fn calling_with(server: &Node, options: Options) -> Self {
        let (ours, theirs) = memory::pair(64);
        server.accept(Way::WebSocket, "raw", theirs, options);
        let mut raw = Self::new(ours);
        assert_eq!(raw.next().await, Some(Frame::Text("ready".into())));
        raw
    }

    /// A peer that has connected and established.
    pub(crate) async fn established(server: &Node, peer_id: &str) -> Self {
        Self::calling(server).await.introduced(peer_id).await
    }

    /// As `established`, but the connection survives its silence.
    pub(crate) async fn established_and_silent(server: &Node, peer_id: &str) -> Self {
        let options = Options {
            keepalive: None,
            silence: None,
            ..Options::default()
        };
        let raw = Self::calling_with(server, options).await;
        raw.introduced(peer_id).await
    }

    async fn introduced(mut self, peer_id: &str) -> Self {
        let identity = PeerIdentity {
            peer_id: peer_id.to_owned(),
            name: None,
            kind: PeerType::User,
        };
        self.say(&ChannelMsg::EstablishRequest { identity }).await;
        let answer = self.hear().await;
        assert!(
            matches!(answer, ChannelMsg::EstablishResponse { .. }),
            "{answer:?}"
        );
        self
    }

    pub(crate) async fn send(&mut self, frame: Frame) -> bool {
        self.sink.send(frame).await.is_ok()
    }

    pub(crate) async fn send_bytes(&mut self, bytes: impl Into<Bytes>) -> bool {
        self.send(Frame::Binary(bytes.into())).await
    }

    pub(crate) async fn say(&mut self, message: &ChannelMsg) -> bool {
        let frame = encode_frame(message).unwrap();
        self.send_bytes([&[0], &frame[..]].concat()).await
    }

    /// The next frame; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            match within("a frame", self.source.next()).await {
                Incoming::Frame(frame) => return Some(frame),
                Incoming::Alive => {}
                _ => return None,
            }
        }
    }

    /// How the other end closed the connection.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        loop {
            match within("the end", self.source.next()).await {
                Incoming::Closed(closed) | Incoming::Broken(closed) => {
                    return (closed.code, closed.reason);
                }
                _ => {}
            }
        }
    }

    /// The next message, assembled if it comes in pieces.
    pub(crate) async fn hear(&mut self) -> ChannelMsg {
        let (message, _) = self.hear_frames().await;
        message
    }

    /// As `hear`, with the frames of the message.
    pub(crate) async fn hear_frames(&mut self) -> (ChannelMsg, Vec<Bytes>) {
        let mut frames = Vec::new();
        let mut whole = Vec::new();
        let mut left = 0u32;
        loop {
            let frame = match self.next().await {
                Some(Frame::Binary(frame)) => frame,
                // Control texts of the protocol, such as a refusal.
                Some(Frame::Text(_)) => continue,
                None => panic!("no binary frame"),
            };
            frames.push(frame.clone());
            match frame[0] {
                0 => whole.extend_from_slice(&frame[1..]),
                1 => {
                    left = u32::from_be_bytes(frame[9..13].try_into().unwrap());
                    continue;
                }
                _ => {
                    whole.extend_from_slice(&frame[13..]);
                    left -= 1;
                    if left > 0 {
                        continue;
                    }
                }
            }
            let mut messages = decode_frame(whole.into()).unwrap();
            assert_eq!(messages.len(), 1);
            return (messages.remove(0), frames);
        }
    }
}

/// Connects `client` to `server` in memory, and again whenever the connection ends.
pub(crate) fn dial_in_memory(client: &Node, server: &Node, backoff: Backoff) -> Remote {
    let server = server.clone();
    client.dial_with(Way::WebSocket, backoff, move || {
        let server = server.clone();
        async move {
            let (ours, theirs) = memory::pair(64);
            server.accept(Way::WebSocket, "client", theirs, Options::default());
            Ok::<_, std::io::Error>(ours)
        }
    })
}

/// Connects a client to a scripted peer.
pub(crate) fn dial_raw(client: &Node) -> (Remote, Raw) {
    let (ours, theirs) = memory::pair(64);
    let end = Arc::new(Mutex::new(Some(theirs)));
    let remote = client.dial_with(Way::WebSocket, Backoff::default(), move || {
        let end = end.clone();
        async move {
            end.lock()
                .unwrap()
                .take()
                .ok_or_else(|| std::io::Error::other("only once"))
        }
    });
    (remote, Raw::new(ours))
}

/// As `dial_raw`, once both sides have established.
pub(crate) async fn established_raw(client: &Node) -> (Remote, Raw) {
    let (remote, mut raw) = dial_raw(client);
    raw.send(Frame::Text("ready".into())).await;
    let hello = raw.hear().await;
    assert!(matches!(hello, ChannelMsg::EstablishRequest { .. }));
    let identity = PeerIdentity {
        peer_id: "1000".into(),
        name: None,
        kind: PeerType::Service,
    };
    raw.say(&ChannelMsg::EstablishResponse { identity }).await;
    remote.established().await.unwrap();
    (remote, raw)
}

/// The header of a message in two pieces.
pub(crate) fn header(key: u8, total: u32) -> Vec<u8> {
    let count = 2u32.to_be_bytes();
    [&[1], &[key; 8][..], &count, &total.to_be_bytes()].concat()
}

pub(crate) fn text(doc: &Doc) -> String {
    doc.loro().get_text("text").to_string()
}

pub(crate) fn insert(doc: &Doc, at: usize, what: &str) {
    let loro = doc.loro();
    loro.get_text("text").insert(at, what).unwrap();
    loro.commit();
}

/// Waits until the document's text satisfies a condition.
pub(crate) async fn until_text(doc: &Doc, fits: impl Fn(&str) -> bool) {
    let mut seen = doc.watch();
    within("a text", async {
        while !fits(&text(doc)) {
            seen.changed().await.unwrap();
        }
    })
    .await;
}

/// Where the recorded sessions are; `BREAKBULK_VECTORS` names another folder of the same layout.
pub(crate) fn vectors() -> std::path::PathBuf {
    let folder = std::env::var_os("BREAKBULK_VECTORS").map(std::path::PathBuf::from);
    let own = || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    folder.unwrap_or_else(own).join("loro")
}
