//! Every rule of the proposal about segments, over real WebSockets: a peer that breaks one is told which one,
//! in a close frame with code 4400.

#![allow(clippy::unwrap_used, reason = "a test may")]

use breakbulk::ahp::log::MemoryLog;
use breakbulk::ahp::{Client, ClientConfig, Config, Host, HostConfig};
use breakbulk::link::{Closed, Frame};
use breakbulk::message::ahp::Chunking;
use breakbulk::net::ws::{
    self, ConnectOptions, ListenOptions, Listener, WebSocket, WsSink, WsSource,
};
use breakbulk::net::{Incoming, Sink as _, Source as _, Transport as _};
use interop_ahp::app::App;

/// Limits: frames of 400 bytes, messages of 600 bytes, two groups.
fn config() -> Config {
    Config::default().with(|config| {
        config.chunking = Chunking {
            max_frame_bytes: 400,
            max_message_bytes: 600,
            max_groups: Some(2),
            ..Chunking::default()
        }
    })
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"channel":"ahp-root://","clientId":"c","protocolVersions":["1.0.0"]}}"#;

/// The name of the rule, the frames after the handshake, and the reason of the close.
const BROKEN: &[(&str, &[&str], &str)] = &[
    (
        "groupId is missing",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"index":0,"total":2,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: groupId must be 1 to 128 bytes of text",
    ),
    (
        "groupId is empty",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"","index":0,"total":2,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: groupId must be 1 to 128 bytes of text",
    ),
    (
        "groupId is over 128 bytes",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"ggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggg","index":0,"total":2,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: groupId must be 1 to 128 bytes of text",
    ),
    (
        "groupId is over 128 bytes, though not over 128 characters",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"ééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé","index":0,"total":2,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: groupId must be 1 to 128 bytes of text",
    ),
    (
        "groupId is no string",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":7,"index":0,"total":2,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: groupId must be 1 to 128 bytes of text",
    ),
    (
        "index is missing",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","total":2,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: index must be an integer from 0 to total - 1",
    ),
    (
        "index is negative",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":-1,"total":2,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: index must be an integer from 0 to total - 1",
    ),
    (
        "index is no integer",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0.5,"total":2,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: index must be an integer from 0 to total - 1",
    ),
    (
        "index is no number",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":"0","total":2,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: index must be an integer from 0 to total - 1",
    ),
    (
        "index is total",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":2,"total":2,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: index must be an integer from 0 to total - 1",
    ),
    (
        "index of an unknown group is not 0",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":1,"total":2,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: piece 1 is out of order, expected 0",
    ),
    (
        "index is not the next one",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":3,"data":"AAAA"}}"#,
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":2,"total":3,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: piece 2 is out of order, expected 1",
    ),
    (
        "index repeats",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":4,"data":"AAAA"}}"#,
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":1,"total":4,"data":"AAAA"}}"#,
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":1,"total":4,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: piece 1 came twice",
    ),
    (
        "a groupId in flight opens again",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":3,"data":"AAAA"}}"#,
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":3,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: piece 0 came twice",
    ),
    (
        "total is missing",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: total must be an integer from 1 to 65535",
    ),
    (
        "total is below 1",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":0,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: total must be an integer from 1 to 65535",
    ),
    (
        "total is 2^16",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":65536,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: total must be an integer from 1 to 65535",
    ),
    (
        "total changes",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":3,"data":"AAAA"}}"#,
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":1,"total":2,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: total changed within the transfer",
    ),
    (
        "data is missing",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":2}}"#,
        ],
        "invalid messageSegment: data must be a string",
    ),
    (
        "data is no string",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":2,"data":[65]}}"#,
        ],
        "invalid messageSegment: data must be a string",
    ),
    (
        "data is no base64",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":2,"data":"!!!!"}}"#,
        ],
        "invalid messageSegment: data must be canonical padded base64",
    ),
    (
        "data is not padded",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":2,"data":"AAA"}}"#,
        ],
        "invalid messageSegment: data must be canonical padded base64",
    ),
    (
        "a segment is over maxIncomingFrameBytes",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":2,"data":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}"#,
        ],
        "invalid messageSegment: frame of 406 bytes is over the limit of 400",
    ),
    (
        "a group is over maxIncomingMessageBytes",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":4,"data":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}"#,
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":1,"total":4,"data":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}"#,
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":2,"total":4,"data":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}"#,
        ],
        "invalid messageSegment: message of 603 bytes is over the limit of 600",
    ),
    (
        "more groups than maxIncomingGroups",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g1","index":0,"total":2,"data":"AAAA"}}"#,
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g2","index":0,"total":2,"data":"AAAA"}}"#,
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g3","index":0,"total":2,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: more than 2 transfers at once",
    ),
    (
        "the whole is no UTF-8",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":1,"data":"/w=="}}"#,
        ],
        "invalid messageSegment: not valid UTF-8",
    ),
    (
        "the whole is no JSON",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":1,"data":"aGVsbG8="}}"#,
        ],
        "invalid messageSegment: the assembled message is not JSON-RPC",
    ),
    (
        "the whole is no JSON-RPC",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":1,"data":"e30="}}"#,
        ],
        "invalid messageSegment: the assembled message is not JSON-RPC",
    ),
    (
        "the whole is a batch",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":1,"data":"W10="}}"#,
        ],
        "invalid messageSegment: the assembled message is a batch",
    ),
    (
        "the whole is itself a segment",
        &[
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":1,"data":"eyJqc29ucnBjIjoiMi4wIiwibWV0aG9kIjoiYWhwL21lc3NhZ2VTZWdtZW50IiwicGFyYW1zIjp7Imdyb3VwSWQiOiJoIiwiaW5kZXgiOjAsInRvdGFsIjoxLCJkYXRhIjoiQUFBQSJ9fQ=="}}"#,
        ],
        "invalid messageSegment: the assembled message is itself a piece",
    ),
    (
        "a segment has an id",
        &[
            r#"{"jsonrpc":"2.0","id":2,"method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":2,"data":"AAAA"}}"#,
        ],
        "invalid messageSegment: id must be absent: a segment is a notification",
    ),
];

#[tokio::test]
async fn every_broken_rule_closes_with_4400_and_names_the_rule() {
    let mut wrong = Vec::new();
    for (rule, frames, reason) in BROKEN {
        let (mut source, mut sink) = host().await.split();
        sink.send(Frame::Text(INITIALIZE.into())).await.unwrap();
        // A client may send segments once it has the host's advertisement.
        assert!(matches!(source.next().await, Incoming::Frame(_)));
        let closed = say(&mut source, &mut sink, frames).await;
        if (closed.code, &*closed.reason) != (4400, *reason) {
            wrong.push((rule, closed));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    println!("{} rules", BROKEN.len());
}

#[tokio::test]
async fn a_segment_before_the_handshake_closes_with_4400() {
    let segment = r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":2,"data":"AAAA"}}"#;
    let (mut source, mut sink) = host().await.split();
    let closed = say(&mut source, &mut sink, &[segment]).await;
    let reason = "invalid messageSegment: this side has not announced that it takes pieces";
    assert_eq!((closed.code, &*closed.reason), (4400, reason));
}

#[tokio::test]
async fn a_segment_to_who_advertised_nothing_closes_with_4400() {
    let (mut listener, url) = listen().await;
    let mut config = ClientConfig::new("c");
    // A message limit below the frame limit makes the advertisement invalid, so the client sends none.
    config.connection.chunking.max_message_bytes = 1000;
    let client = Client::new(config);
    let websocket = ws::connect(&url, &ConnectOptions::default()).await.unwrap();
    let server = async {
        let (mut source, mut sink) = listener.accept().await.unwrap().websocket.split();
        let Incoming::Frame(Frame::Text(request)) = source.next().await else {
            panic!("no request");
        };
        assert!(!String::from_utf8_lossy(&request).contains("chunking"));
        let welcome = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1.0.0","serverSeq":0,"snapshots":[]}}"#;
        let segment = r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":2,"data":"AAAA"}}"#;
        for text in [welcome, segment] {
            sink.send(Frame::Text(text.into())).await.unwrap();
        }
        closed(&mut source).await
    };
    let (initialized, closed) =
        tokio::join!(client.initialize(websocket, &["ahp-root://"]), server);
    drop(initialized);
    let reason = "invalid messageSegment: this side has not announced that it takes pieces";
    assert_eq!((closed.code, &*closed.reason), (4400, reason));
}

async fn listen() -> (Listener, String) {
    let listener = Listener::bind("127.0.0.1:0", ListenOptions::default()).await;
    let listener = listener.unwrap();
    let url = format!("ws://{}", listener.local_addr());
    (listener, url)
}

/// A connection to a host of its own.
async fn host() -> WebSocket {
    let (mut listener, url) = listen().await;
    let config = HostConfig::default().with(|host| host.connection = config());
    let host = Host::new(App::new("title"), MemoryLog::default(), config);
    tokio::spawn(async move {
        let accepted = listener.accept().await.unwrap();
        host.serve(accepted.websocket).await
    });
    ws::connect(&url, &ConnectOptions::default()).await.unwrap()
}

/// Sends all frames, and returns how the connection ends.
async fn say(source: &mut WsSource, sink: &mut WsSink, frames: &[&str]) -> Closed {
    for frame in frames {
        let frame = Frame::Text(frame.to_string().into());
        sink.send(frame).await.unwrap();
    }
    closed(source).await
}

async fn closed(source: &mut WsSource) -> Closed {
    loop {
        match source.next().await {
            Incoming::Closed(closed) | Incoming::Broken(closed) => return closed,
            Incoming::Frame(_) | Incoming::Posted(..) | Incoming::Alive => {}
        }
    }
}
