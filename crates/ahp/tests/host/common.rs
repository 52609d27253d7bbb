//! An application with lists for states, and a client that speaks raw JSON.

use std::collections::BTreeMap;
use std::sync::Mutex;

use breakbulk_ahp::host::{Applied, Call, Dispatch, Extras, State};
use breakbulk_ahp::log::MemoryLog;
use breakbulk_ahp::{Application, Config, Host, HostConfig, PublishError, RpcError};
use breakbulk_link::{Closed, Event, Outgoing};
use breakbulk_message::ahp::{Chunking, InitializeParams, ReconnectParams, TimeoutFrom};
use breakbulk_net::{Connection, memory};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The state of each channel is the list of its actions.
#[derive(Default)]
pub(crate) struct Board {
    states: Mutex<BTreeMap<String, Vec<String>>>,
    /// The numbers in the order they were applied.
    pub(crate) applied: Mutex<Vec<i64>>,
    /// Lets one request `wait` continue.
    pub(crate) gate: Notify,
    /// How many requests `wait` have begun.
    pub(crate) begun: Mutex<usize>,
}

impl Board {
    pub(crate) fn with(channels: &[&str]) -> Self {
        let board = Self::default();
        for channel in channels {
            board.open(channel, &[]);
        }
        board
    }

    /// Removes a channel.
    pub(crate) fn shut(&self, channel: &str) {
        self.states.lock().unwrap().remove(channel);
    }

    pub(crate) fn open(&self, channel: &str, actions: &[&str]) {
        let actions = actions.iter().map(|action| (*action).to_owned()).collect();
        let mut states = self.states.lock().unwrap();
        states.insert(channel.to_owned(), actions);
    }
}

impl Application for Board {
    fn snapshot(&self, channel: &str) -> Option<State> {
        let states = self.states.lock().unwrap();
        let list = states.get(channel)?.join(",");
        if channel.starts_with("ahp-otlp:") {
            return Some(State::none());
        }
        let state = RawValue::from_string(format!("[{list}]")).unwrap();
        Some(State::new(state))
    }

    fn apply(&self, action: &Applied<'_>) {
        self.applied.lock().unwrap().push(action.seq);
        assert_ne!(action.action, r#""panic""#, "as asked");
        if action.rejection.is_none()
            && let Some(list) = self.states.lock().unwrap().get_mut(action.channel)
        {
            list.push(action.action.to_owned());
        }
    }

    fn initialize(&self, params: &InitializeParams<'_>) -> Result<Extras, RpcError> {
        match &*params.client_id {
            "stranger" => Err(RpcError::new(-32007, "who are you?")),
            "curious" => Ok(Extras::default().with("serverInfo", raw(r#"{"name":"board"}"#))),
            _ => Ok(Extras::default()),
        }
    }

    fn reconnect(&self, params: &ReconnectParams<'_>) -> Result<(), RpcError> {
        match &*params.client_id {
            "stranger" => Err(RpcError::new(-32007, "who are you?")),
            _ => Ok(()),
        }
    }

    fn permits(&self, client_id: &str, channel: &str) -> bool {
        client_id != "guest" || channel == "ahp-root://"
    }

    fn dispatched(&self, host: &Host<Self>, dispatch: &Dispatch<'_>) -> Result<(), PublishError> {
        if dispatch.action.get() == r#""bad""# {
            host.reject(dispatch, "not here").map(|_| ())
        } else {
            host.accept(dispatch).map(|_| ())
        }
    }

    async fn request(&self, _host: &Host<Self>, call: Call) -> Result<Box<RawValue>, RpcError> {
        match call.method() {
            "echo" | "resourceRead" => Ok(raw(call.params())),
            "who" => Ok(raw(&format!(r#""{}""#, call.client_id()))),
            "big" => {
                let size: Vec<usize> = serde_json::from_str(call.params()).unwrap();
                Ok(raw(&format!(r#""{}""#, "x".repeat(size[0] - 2))))
            }
            "wait" => {
                *self.begun.lock().unwrap() += 1;
                self.gate.notified().await;
                Ok(raw("null"))
            }
            "panic" => {
                tokio::task::yield_now().await;
                panic!("as asked")
            }
            method => Err(RpcError::method_not_found(method)),
        }
    }
}

pub(crate) fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

pub(crate) const ROOT: &str = "ahp-root://";
pub(crate) const CHAT: &str = "ahp-chat:/a";

/// A host with the root, one chat and a log in memory.
pub(crate) fn host(config: HostConfig) -> Host<Board> {
    Host::new(Board::with(&[ROOT, CHAT]), MemoryLog::default(), config)
}

/// A host configuration whose advertised limits are short to write.
pub(crate) fn config() -> HostConfig {
    HostConfig::default().with(|config| config.connection = connection_config())
}

pub(crate) fn connection_config() -> Config {
    Config::default().with(|config| {
        config.chunking = Chunking {
            max_frame_bytes: 1000,
            max_message_bytes: 100_000,
            max_groups: None,
            group_timeout_ms: None,
            timeout_from: TimeoutFrom::First,
        };
        config.seed = Some([7; 32]);
    })
}

/// What the host of `config` advertises.
pub(crate) const OURS: &str = r#""capabilities":{"chunking":{"maxIncomingFrameBytes":1000,"maxIncomingMessageBytes":100000}}"#;

/// A client that sends and receives raw texts.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    /// How the connection ended for the host.
    pub(crate) served: JoinHandle<Closed>,
}

impl Client {
    /// Connects, and takes segments from the start.
    pub(crate) fn new(host: &Host<Board>) -> Self {
        Self::slow(host, 8)
    }

    /// Connects by a path that holds so many frames.
    pub(crate) fn slow(host: &Host<Board>, frames: usize) -> Self {
        let (ours, theirs) = memory::pair(frames);
        let served = tokio::spawn(host.serve(theirs));
        let config = Config::default();
        let mut link = config.fresh_link();
        config.apply_peer(&mut link, Some(&connection_config().chunking));
        let connection = Connection::open(link, ours, config.options).unwrap();
        Self { connection, served }
    }

    /// Connects, and sends every message as one frame.
    pub(crate) fn raw(host: &Host<Board>) -> Self {
        let (ours, theirs) = memory::pair(8);
        let served = tokio::spawn(host.serve(theirs));
        let config = Config::default();
        let connection = Connection::open(config.fresh_link(), ours, config.options).unwrap();
        Self { connection, served }
    }

    pub(crate) fn say(&self, text: impl Into<String>) {
        let text: String = text.into();
        self.connection.send(Outgoing::new(text)).unwrap();
    }

    /// The next whole message.
    pub(crate) async fn hear(&self) -> String {
        loop {
            match self.connection.event().await {
                Some(Event::Message(message)) => {
                    return String::from_utf8(message.bytes.to_vec()).unwrap();
                }
                Some(Event::Closed(closed)) => panic!("{closed}"),
                Some(_) => {}
                None => panic!("closed"),
            }
        }
    }

    pub(crate) async fn ask(&self, text: impl Into<String>) -> String {
        self.say(text);
        self.hear().await
    }

    /// How the host closed the connection; messages before that are dropped.
    pub(crate) async fn closed(&self) -> Closed {
        while self.connection.event().await.is_some() {}
        self.connection.closed().await
    }

    /// Disconnects, and waits until the host has noticed.
    pub(crate) async fn leave(self) {
        drop(self.connection);
        self.served.await.unwrap();
    }

    /// Sends an `initialize` that advertises no segments.
    pub(crate) async fn initialize(&self, client_id: &str, channels: &str) -> String {
        self.ask(initialize(client_id, channels, "")).await
    }
}

/// An `initialize`; `more` are members with a comma before each.
pub(crate) fn initialize(client_id: &str, channels: &str, more: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"channel":"ahp-root://","clientId":"{client_id}","initialSubscriptions":[{channels}],"protocolVersions":["1.0.0","0.9.0"]{more}}}}}"#
    )
}

pub(crate) fn reconnect(client_id: &str, seen: i64, channels: &str, more: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"reconnect","params":{{"channel":"ahp-root://","clientId":"{client_id}","lastSeenServerSeq":{seen},"subscriptions":[{channels}]{more}}}}}"#
    )
}

/// The capabilities with these limits, to be appended to other members.
pub(crate) fn takes(frame: usize, message: usize) -> String {
    format!(
        r#","capabilities":{{"chunking":{{"maxIncomingFrameBytes":{frame},"maxIncomingMessageBytes":{message}}}}}"#
    )
}

/// An `action` notification as a subscriber gets it.
pub(crate) fn action(channel: &str, action: &str, seq: i64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"action","params":{}}}"#,
        envelope(channel, action, seq)
    )
}

/// An action as it stands in a replay.
pub(crate) fn envelope(channel: &str, action: &str, seq: i64) -> String {
    format!(r#"{{"channel":"{channel}","action":{action},"serverSeq":{seq}}}"#)
}

/// Publishes an action and waits until it is visible.
pub(crate) async fn publish(host: &Host<Board>, channel: &str, action: &str) -> i64 {
    let seq = host.publish(channel, &raw(action), None).unwrap();
    host.visible(seq).await.unwrap();
    seq
}
