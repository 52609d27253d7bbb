//! A message that is too large for a client: an error or a close says so once, and nothing is repeated.

use std::time::Duration;

use breakbulk_ahp::Host;
use breakbulk_link::{Cap, Closed, Frame};
use breakbulk_net::{Incoming, Sink, Source, Transport, memory};
use breakbulk_testkit::log::{Level, Log};

use super::common::*;

/// A host whose transport carries 1,000 bytes.
fn capped() -> Host<Board> {
    host(config().with(|it| it.connection.cap = Cap::frame(1000)))
}

fn too_large(id: &str, size: usize, takes: Option<(usize, usize)>) -> String {
    let (text, frame, message, chunking) = match takes {
        None => (
            format!(
                "message too large: {size} bytes, one frame holds 1000 and the receiver takes no segments; send less or let it advertise capabilities.chunking"
            ),
            1000,
            1000,
            false,
        ),
        Some((frame, message)) => (
            format!(
                "message too large: {size} bytes, and the receiver takes {message}; send less or raise its maxIncomingMessageBytes"
            ),
            frame,
            message,
            true,
        ),
    };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32011,"message":"{text}","data":{{"reason":"messageTooLarge","messageBytes":{size},"maxFrameBytes":{frame},"maxMessageBytes":{message},"chunking":{chunking}}}}}}}"#
    )
}

const PING: &str = r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#;
const PONG: &str = r#"{"jsonrpc":"2.0","id":5,"result":null}"#;

#[tokio::test(start_paused = true)]
async fn a_response_is_replaced_in_its_place() {
    for (more, takes, limit) in [
        (String::new(), None, "1000"),
        (takes(300, 1500), Some((300, 1500)), "1500"),
    ] {
        let log = Log::capture();
        let host = capped();
        let client = Client::new(&host);
        client.ask(initialize("c", r#""ahp-root://""#, &more)).await;
        let big = |id: &str, size: usize| {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"big","params":[{size}]}}"#)
        };
        client.say(big(r#""x""#, 2000));
        client.say(r#"{"jsonrpc":"2.0","id":3,"method":"echo","params":[1]}"#);
        assert_eq!(client.hear().await, too_large(r#""x""#, 2000 + 36, takes));
        let warning = [
            "a response could not be sent; an error is sent in its place",
            r#"client=Some("c")"#,
            "2036 bytes",
            limit,
        ];
        log.assert_line(Level::WARN, &warning);
        assert_eq!(
            client.hear().await,
            r#"{"jsonrpc":"2.0","id":3,"result":[1]}"#
        );
        // The largest message that fits is sent, and the connection stays open.
        let most = if takes.is_some() { 1500 } else { 1000 };
        assert_eq!(client.ask(big("1", most - 34)).await.len(), most);
        assert_eq!(
            client.ask(big("1", most - 33)).await,
            too_large("1", most + 1, takes)
        );
        publish(&host, ROOT, "1").await;
        assert_eq!(client.hear().await, action(ROOT, "1", 1));
    }
    // The exact text of the error.
    assert_eq!(
        too_large("7", 2400, None),
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32011,"message":"message too large: 2400 bytes, one frame holds 1000 and the receiver takes no segments; send less or let it advertise capabilities.chunking","data":{"reason":"messageTooLarge","messageBytes":2400,"maxFrameBytes":1000,"maxMessageBytes":1000,"chunking":false}}}"#
    );
}

// AHP-6, AHP-7
#[tokio::test(start_paused = true)]
async fn an_action_ends_the_connection_and_the_next_one_begins_with_a_snapshot() {
    for (more, takes, reason) in [
        (
            String::new(),
            None,
            "action of 2094 bytes, a frame holds 1000 and you take no segments: reconnect for a snapshot",
        ),
        (
            takes(300, 1500),
            Some((300, 1500)),
            "action of 2094 bytes, and you take 1500: reconnect for a snapshot",
        ),
    ] {
        let log = Log::capture();
        let host = capped();
        let client = Client::new(&host);
        client.ask(initialize("c", r#""ahp-chat:/a""#, &more)).await;
        publish(&host, CHAT, "1").await;
        assert_eq!(client.hear().await, action(CHAT, "1", 1));
        publish(&host, CHAT, &format!(r#""{}""#, "x".repeat(1998))).await;
        publish(&host, CHAT, "3").await;
        // Action 3 does not overtake: it would hide that 2 is missing.
        let closed = ended(&client).await;
        assert_eq!((closed.code, &*closed.reason), (4413, reason));
        let limit = if takes.is_some() { "1500" } else { "1000" };
        let warning = [
            "the client is closed with 4413 and gets a snapshot when it reconnects",
            r#"client=Some("c")"#,
            "what=action",
            "2094 bytes",
            limit,
        ];
        log.assert_line(Level::WARN, &warning);

        // The state is as large as the action: each way to get it is answered with the error.
        for _ in 0..3 {
            let client = Client::new(&host);
            let answer = client
                .ask(reconnect("c", 1, r#""ahp-chat:/a""#, &more))
                .await;
            assert_eq!(answer, too_large("2", 2121, takes));
            let answer = client.ask(initialize("c", r#""ahp-chat:/a""#, &more)).await;
            let size = answer_size(&answer);
            assert_eq!(answer, too_large("1", size, takes));
            // The client can connect without that channel.
            assert!(
                client
                    .ask(initialize("c", "", &more))
                    .await
                    .contains("result")
            );
            let said = r#"{"jsonrpc":"2.0","id":8,"method":"subscribe","params":{"channel":"ahp-chat:/a"}}"#;
            let state = format!(
                r#"{{"jsonrpc":"2.0","id":8,"result":{{"snapshot":{{"resource":"ahp-chat:/a","state":[1,"{}",3],"fromSeq":3}}}}}}"#,
                "x".repeat(1998)
            );
            assert_eq!(client.ask(said).await, too_large("8", state.len(), takes));
            // The client is not subscribed to the channel whose state it did not get.
            publish(&host, CHAT, "0").await;
            host.app()
                .open(CHAT, &[&format!(r#""{}""#, "x".repeat(1998)), "1", "3"]);
            assert_eq!(client.ask(PING).await, PONG);
        }

        // The `initialize` that succeeded has cleared the mark that asks for a snapshot: a replay is sent.
        host.app().open(CHAT, &["7"]);
        let client = Client::new(&host);
        let seq = host.last_visible();
        assert_eq!(
            client
                .ask(reconnect("c", seq, r#""ahp-chat:/a""#, &more))
                .await,
            format!(
                r#"{{"jsonrpc":"2.0","id":2,"result":{{"type":"replay","actions":[],"missing":[]}}}}"#
            ),
            "the mark went with the handshake that succeeded"
        );
    }
}

// AHP-7
#[tokio::test(start_paused = true)]
async fn the_mark_makes_the_next_reconnect_a_snapshot() {
    let host = capped();
    let client = Client::new(&host);
    client.initialize("c", r#""ahp-chat:/a""#).await;
    publish(&host, CHAT, &format!(r#""{}""#, "x".repeat(1998))).await;
    assert_eq!(ended(&client).await.code, 4413);
    host.app().open(CHAT, &["7"]);
    let snapshot = r#"{"jsonrpc":"2.0","id":2,"result":{"type":"snapshot","snapshots":[{"resource":"ahp-chat:/a","state":[7],"fromSeq":1}]}}"#;
    let empty = r#"{"jsonrpc":"2.0","id":2,"result":{"type":"replay","actions":[],"missing":[]}}"#;
    // A snapshot even if the client claims to have seen everything, but only once.
    for expected in [snapshot, empty] {
        let client = Client::new(&host);
        let said = reconnect("c", 1, r#""ahp-chat:/a""#, "");
        assert_eq!(client.ask(said).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_notification_that_is_not_replayed_is_dropped() {
    let log = Log::capture();
    let host = capped();
    let client = Client::new(&host);
    client.initialize("c", r#""ahp-root://""#).await;
    host.notify(ROOT, "note", &raw(&format!(r#"["{}"]"#, "x".repeat(2000))));
    host.notify(ROOT, "note", &raw("[1]"));
    assert_eq!(
        client.hear().await,
        r#"{"jsonrpc":"2.0","method":"note","params":[1]}"#
    );
    let warning = [
        "dropped a notification that could not be sent",
        r#"client=Some("c")"#,
        "2047 bytes",
        "1000",
    ];
    log.assert_line(Level::WARN, &warning);
}

#[tokio::test(start_paused = true)]
async fn limits_that_leave_no_room_for_the_error_end_the_connection() {
    let log = Log::capture();
    let host = capped();
    let client = Client::new(&host);
    // Frames too small for a segment: no `initialize` result can be sent.
    let answer = client.ask(initialize("c", "", &takes(120, 5000))).await;
    assert_eq!(
        answer,
        too_large("1", answer_size(&answer), Some((120, 5000)))
    );
    // Room for the `initialize` result, but for nothing larger.
    let answer = client.ask(initialize("c", "", &takes(160, 200))).await;
    assert!(answer.contains("result"), "{answer}");
    client.say(r#"{"jsonrpc":"2.0","id":1,"method":"big","params":[400]}"#);
    let closed = ended(&client).await;
    assert_eq!(closed.code, 4413);
    assert!(closed.reason.starts_with("answer of "), "{closed}");
    assert!(
        closed
            .reason
            .ends_with("and you take 200: reconnect for a snapshot"),
        "{closed}"
    );
    let warning = [
        "the client is closed with 4413",
        r#"client=Some("c")"#,
        "what=answer",
        "200",
    ];
    log.assert_line(Level::WARN, &warning);
}

#[tokio::test(start_paused = true)]
async fn the_code_can_be_another_one() {
    let host = host(config().with(|it| {
        it.connection.cap = Cap::frame(1000);
        it.connection.too_large_code = -32099;
    }));
    let client = Client::new(&host);
    client.initialize("c", "").await;
    let big = r#"{"jsonrpc":"2.0","id":1,"method":"big","params":[2000]}"#;
    let expected = too_large("1", 2034, None).replace("-32011", "-32099");
    assert_eq!(client.ask(big).await, expected);
    host.app()
        .open(CHAT, &[&format!(r#""{}""#, "x".repeat(2000))]);
    let said =
        r#"{"jsonrpc":"2.0","id":8,"method":"subscribe","params":{"channel":"ahp-chat:/a"}}"#;
    assert!(client.ask(said).await.contains(r#""code":-32099"#));
}

/// A client whose path lets ten frames a second through.
struct Crawler {
    source: memory::MemorySource,
    sink: memory::MemorySink,
}

impl Crawler {
    fn new(host: &Host<Board>) -> Self {
        let (ours, theirs) = memory::pair(1);
        tokio::spawn(host.serve(theirs));
        let (source, sink) = ours.split();
        Self { source, sink }
    }

    async fn say(&mut self, text: String) {
        self.sink.send(Frame::Text(text.into())).await.unwrap();
    }

    async fn frame(&mut self) -> Result<String, Closed> {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            match self.source.next().await {
                Incoming::Frame(Frame::Text(text)) => {
                    return Ok(String::from_utf8(text.to_vec()).unwrap());
                }
                Incoming::Closed(closed) => return Err(closed),
                _ => {}
            }
        }
    }
}

// AHP-9
#[tokio::test(start_paused = true)]
async fn what_is_too_slow_is_said_with_the_rate_and_not_tried_again() {
    let log = Log::capture();
    let host = host(config());
    let takes = r#","capabilities":{"chunking":{"maxIncomingFrameBytes":300,"maxIncomingMessageBytes":100000,"groupTimeoutMs":1000}}"#;
    let mut client = Crawler::new(&host);
    client.say(initialize("c", r#""ahp-chat:/a""#, takes)).await;
    assert!(client.frame().await.unwrap().contains("result"));
    publish(&host, CHAT, &format!(r#""{}""#, "x".repeat(5000))).await;
    let closed = loop {
        if let Err(closed) = client.frame().await {
            break closed;
        }
    };
    assert_eq!(closed.code, 4413);
    assert!(closed.reason.starts_with("only "), "{closed}");
    assert!(
        closed.reason.contains(" of 5096 bytes went out in the 1 s"),
        "{closed}"
    );
    let warning = [
        "gave up a message: it took longer than the client waits for one",
        r#"client=Some("c")"#,
        "size=5096",
        "seconds=1",
        "bytes_per_second=",
    ];
    log.assert_line(Level::WARN, &warning);

    // The state is as large as the action: after no handshake does a transfer begin.
    for said in [
        reconnect("c", 0, r#""ahp-chat:/a""#, takes),
        reconnect("c", 1, r#""ahp-chat:/a""#, ""),
        initialize("c", r#""ahp-chat:/a""#, takes),
    ] {
        let mut client = Crawler::new(&host);
        client.say(said).await;
        let answer = client.frame().await.unwrap();
        assert!(
            answer.contains(r#""code":-32011,"message":"message too large for this path: 5"#),
            "{answer}"
        );
        assert!(
            answer.contains("went out in the 1 s that the receiver gives a message"),
            "{answer}"
        );
        assert!(answer.contains(r#""reason":"messageTooLarge""#), "{answer}");
    }
    // A small state is sent; and after a while a large one is tried again, as the path may be faster.
    host.app().open(CHAT, &["7"]);
    let mut client = Crawler::new(&host);
    client
        .say(reconnect("c", 0, r#""ahp-chat:/a""#, takes))
        .await;
    assert!(
        client
            .frame()
            .await
            .unwrap()
            .contains(r#""state":[7],"fromSeq":1"#)
    );
    drop(client);
    host.app()
        .open(CHAT, &[&format!(r#""{}""#, "x".repeat(5000))]);
    tokio::time::advance(Duration::from_secs(600)).await;
    let mut client = Crawler::new(&host);
    client.say(initialize("c", r#""ahp-chat:/a""#, takes)).await;
    assert!(client.frame().await.unwrap().contains("ahp/messageSegment"));
}

/// How a connection ends on which no further message arrives.
async fn ended(client: &Client) -> Closed {
    use breakbulk_link::Event;
    loop {
        match client.connection.event().await {
            Some(Event::Closed(closed)) => return closed,
            Some(Event::Message(message)) => panic!("{:?}", message.bytes),
            _ => {}
        }
    }
}

/// The size that an error names.
fn answer_size(answer: &str) -> usize {
    let answer: serde_json::Value = serde_json::from_str(answer).unwrap();
    answer["error"]["data"]["messageBytes"].as_u64().unwrap() as usize
}

/// A proxy between host and client whose limit is lower than that of both: it closes with 1009 when a
/// frame is too large.
#[tokio::test(start_paused = true)]
async fn a_path_that_refuses_a_frame_ends_the_connection_and_the_replay_is_as_large() {
    let log = Log::capture();
    let host = host(config());
    let (ours, theirs) = memory::pair(8);
    let served = tokio::spawn(host.serve(theirs));
    let (mut source, mut sink) = ours.split();
    let said = Frame::Text(initialize("c", r#""ahp-chat:/a""#, "").into());
    sink.send(said).await.unwrap();
    let large = format!(r#""{}""#, "x".repeat(2000));
    let mut seen = 0;
    loop {
        match source.next().await {
            Incoming::Frame(Frame::Text(frame)) if frame.len() > 2000 => break,
            Incoming::Frame(_) => seen += 1,
            Incoming::Closed(closed) => panic!("{closed}"),
            _ => {}
        }
        if seen == 1 {
            // The publisher does not notice: the action is in the log.
            assert_eq!(publish(&host, CHAT, &large).await, 1);
        }
    }
    sink.close(1009, "message too big").await;
    drop((source, sink));
    let closed = served.await.unwrap();
    assert_eq!((closed.code, &*closed.reason), (1009, "message too big"));
    let ended = [
        "the connection of a client has ended",
        "code=1009",
        "reason=message too big",
    ];
    log.assert_line(Level::DEBUG, &ended);
    let back = Client::new(&host);
    let replay = back.ask(reconnect("c", 0, r#""ahp-chat:/a""#, "")).await;
    assert!(replay.contains(&envelope(CHAT, &large, 1)), "{replay}");
}
