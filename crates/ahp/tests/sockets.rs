//! The client of the crate `ahp` over real WebSockets that carry nothing larger than their cap.
#![allow(clippy::unwrap_used)]
#![cfg(all(feature = "ahp-client", feature = "ws"))]

use std::time::Duration;

use ahp::hosts::{HostConfig as RemoteHost, HostEvent, MultiHostClient};
use ahp::{Client, ClientConfig, SubscriptionEvent};
use breakbulk_ahp::foreign::Sessions;
use breakbulk_ahp::host::{Applied, Call, State};
use breakbulk_ahp::log::MemoryLog;
use breakbulk_ahp::transport::{Segmenting, websockets};
use breakbulk_ahp::{Application, Config, Host, HostConfig, RpcError};
use breakbulk_link::Cap;
use breakbulk_message::ahp::Chunking;
use breakbulk_net::ws::{ConnectOptions, ListenOptions, Listener};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const FRAME: usize = 9_000;

const ROOT: &str = "ahp-root://";

/// One channel, whose state never changes; answers what the real runtime asks for.
struct Root;

impl Application for Root {
    fn snapshot(&self, channel: &str) -> Option<State> {
        (channel == ROOT).then(|| State::new(raw(r#"{"agents":[]}"#)))
    }

    fn apply(&self, _action: &Applied<'_>) {}

    async fn request(&self, _host: &Host<Self>, call: Call) -> Result<Box<RawValue>, RpcError> {
        match call.method() {
            "echo" => Ok(raw(call.params())),
            _ => Ok(raw(r#"{"items":[]}"#)),
        }
    }
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn config() -> Config {
    Config::default().with(|config| {
        config.cap = Cap::frame(FRAME);
        config.chunking = Chunking {
            max_frame_bytes: FRAME as u64,
            ..Chunking::default()
        };
    })
}

/// A host at a free port, its address, and the task that serves each connection. A peer that sends a frame
/// larger than the cap is disconnected.
async fn listen() -> (
    Host<Root>,
    String,
    mpsc::UnboundedReceiver<JoinHandle<breakbulk_link::Closed>>,
) {
    let config = HostConfig::default().with(|host| host.connection = config());
    let host = Host::new(Root, MemoryLog::default(), config);
    let options = ListenOptions {
        frame_limit: FRAME,
        ..ListenOptions::default()
    };
    let mut listener = Listener::bind("127.0.0.1:0", options).await.unwrap();
    let url = format!("ws://{}/", listener.local_addr());
    let (tell, served) = mpsc::unbounded_channel();
    let serving = host.clone();
    tokio::spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            let _ = tell.send(tokio::spawn(serving.serve(accepted.websocket)));
        }
    });
    (host, url, served)
}

fn options() -> ConnectOptions {
    ConnectOptions {
        frame_limit: FRAME,
        ..ConnectOptions::default()
    }
}

fn publish(host: &Host<Root>, title: &str) -> i64 {
    let action = format!(r#"{{"type":"session/titleChanged","title":"{title}"}}"#);
    host.publish(ROOT, &raw(&action), None).unwrap()
}

/// Fails after 20 s instead of hanging.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(20), what).await;
    waited.expect("it does not happen")
}

#[tokio::test]
async fn a_client_speaks_in_megabytes_over_a_socket_of_small_frames() {
    let (host, url, _served) = listen().await;
    let sessions = Sessions::default();
    let transport = Segmenting::connect(&url, &options(), config(), sessions).await;
    let client = Client::connect(transport.unwrap(), ClientConfig::default())
        .await
        .unwrap();
    let versions = vec!["1.0.0".to_owned()];
    let channels = vec![ROOT.to_owned()];
    let initialized = soon(client.initialize("c".to_owned(), versions, channels)).await;
    assert_eq!(initialized.unwrap().server_seq, 0);
    let mut root = client.attach_subscription(ROOT).await;
    let big = "x".repeat(1 << 20);
    publish(&host, &big);
    let Some(SubscriptionEvent::Action(action)) = soon(root.recv()).await else {
        panic!("no action");
    };
    assert_eq!(i64::try_from(action.server_seq).unwrap(), 1);
    assert!(serde_json::to_string(&action).unwrap().contains(&big));
    let echoed: Vec<String> = soon(client.request("echo", [&big])).await.unwrap();
    assert_eq!(echoed, [big]);
    client.shutdown().await;
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_an_error() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", closed.local_addr().unwrap());
    drop(closed);
    let options = options();
    let connecting = Segmenting::connect(&url, &options, config(), Sessions::default());
    assert!(soon(connecting).await.is_err());
}

/// The crate's runtime for several hosts opens another socket when one is lost, and misses no action.
#[tokio::test]
async fn the_real_runtime_comes_back_over_another_socket() {
    let (host, url, mut served) = listen().await;
    let hosts = MultiHostClient::default();
    let mut told = hosts.events();
    let mut lifecycle = hosts.host_events();
    let factory = websockets(url, options(), config());
    let config = RemoteHost::new("h", "H", factory)
        .with_client_id("c")
        .with_initial_subscriptions(vec![ROOT.to_owned()]);
    soon(hosts.add_host(config)).await.unwrap();
    let big = "x".repeat(300_000);
    for generation in 1..=3 {
        let connection = soon(served.recv()).await.unwrap();
        while !matches!(
            soon(lifecycle.recv()).await.unwrap(),
            HostEvent::Connected { generation: it, .. } if it == generation
        ) {}
        // One action while connected, and one while the connection is down.
        publish(&host, &big);
        let mut next = async || {
            let event = soon(told.recv()).await.unwrap();
            let SubscriptionEvent::Action(action) = event.event else {
                panic!("no action");
            };
            i64::try_from(action.server_seq).unwrap()
        };
        let live = 2 * i64::try_from(generation).unwrap() - 1;
        assert_eq!(next().await, live);
        connection.abort();
        let missed = publish(&host, &big);
        assert_eq!(missed, live + 1);
        assert_eq!(next().await, missed);
    }
}
