//! A misbehaving client harms only itself, and uses bounded memory.

use super::common::*;
use breakbulk_ahp::HostConfig;
use breakbulk_link::{Budget, Frame};
use breakbulk_net::{Incoming, Sink, Source, Transport, memory};
use breakbulk_testkit::log::{Level, Log};

enum End {
    Hears(&'static str),
    Closed(u16, &'static str),
    /// The host ignores it: the next ping is answered.
    Nothing,
}

// AHP-7
#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_answered_or_ends_the_connection() {
    use End::{Closed, Hears, Nothing};
    let segment = r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":2,"data":"AAAA"}}"#;
    let many = format!("[{}]", vec![r#""c""#; 100_000].join(","));
    let distinct: Vec<_> = (0..1025).map(|n| format!(r#""{n}""#)).collect();
    let too_many = initialize("c", &distinct.join(","), "");
    let doubles = initialize("c", "", &format!(r#","initialSubscriptions":{many}"#));
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"subscribe","params":{{"x":{}{},"channel":1}}}}"#,
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    for (name, shaken, said, end) in [
        (
            "a batch",
            true,
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
            Hears(
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batches are not taken; send their members one by one"}}"#,
            ),
        ),
        (
            "no JSON",
            true,
            r#"{"jsonrpc":"#,
            Hears(
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not valid JSON"}}"#,
            ),
        ),
        (
            "no JSON before the handshake",
            false,
            "hello",
            Hears(
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not valid JSON"}}"#,
            ),
        ),
        (
            "no JSON-RPC",
            true,
            r#"{"jsonrpc":"1.0","id":4,"method":"ping"}"#,
            Hears(
                r#"{"jsonrpc":"2.0","id":4,"error":{"code":-32600,"message":"not a JSON-RPC 2.0 message"}}"#,
            ),
        ),
        (
            "an id that is none",
            true,
            r#"{"jsonrpc":"2.0","id":{"a":[]},"method":"ping"}"#,
            Hears(
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"not a JSON-RPC 2.0 message"}}"#,
            ),
        ),
        (
            "a segment before the handshake",
            false,
            segment,
            Closed(
                4400,
                "invalid messageSegment: this side has not announced that it takes pieces",
            ),
        ),
        (
            "a segment out of order",
            true,
            r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":1,"total":2,"data":"AAAA"}}"#,
            Closed(
                4400,
                "invalid messageSegment: piece 1 is out of order, expected 0",
            ),
        ),
        (
            "an action before the handshake",
            false,
            r#"{"jsonrpc":"2.0","method":"dispatchAction","params":{"action":1,"channel":"c","clientSeq":1}}"#,
            Closed(4400, "dispatchAction before initialize or reconnect"),
        ),
        (
            "an action without a number",
            true,
            r#"{"jsonrpc":"2.0","method":"dispatchAction","params":{"action":1,"channel":"c"}}"#,
            Closed(
                4400,
                "invalid dispatchAction: channel, clientSeq and action are needed",
            ),
        ),
        (
            "an action with params of another kind",
            true,
            r#"{"jsonrpc":"2.0","method":"dispatchAction","params":[1]}"#,
            Closed(
                4400,
                "invalid dispatchAction: channel, clientSeq and action are needed",
            ),
        ),
        (
            "an unknown notification",
            true,
            r#"{"jsonrpc":"2.0","method":"whatever","params":[]}"#,
            Nothing,
        ),
        (
            "an answer to nothing",
            true,
            r#"{"jsonrpc":"2.0","id":77,"result":1}"#,
            Nothing,
        ),
        (
            "an error to nothing",
            true,
            r#"{"jsonrpc":"2.0","id":77,"error":{}}"#,
            Nothing,
        ),
        (
            "unsubscribing from nothing",
            true,
            r#"{"jsonrpc":"2.0","method":"unsubscribe","params":{"channel":"never"}}"#,
            Nothing,
        ),
        (
            "unsubscribing without a word",
            true,
            r#"{"jsonrpc":"2.0","method":"unsubscribe"}"#,
            Nothing,
        ),
        (
            "too many channels",
            false,
            &too_many,
            Hears(
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"a client may subscribe to at most 1024 channels, whose names have at most 262144 bytes together; unsubscribe from some first"}}"#,
            ),
        ),
        (
            "the same channel again and again",
            false,
            &doubles,
            Hears(
                r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1.0.0","serverSeq":0,"snapshots":[],"capabilities":{"chunking":{"maxIncomingFrameBytes":900000,"maxIncomingMessageBytes":33554432,"maxIncomingGroups":8,"groupTimeoutMs":30000,"groupTimeoutFrom":"last"}}}}"#,
            ),
        ),
        (
            "deep nesting",
            true,
            &deep,
            Hears(
                r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"`channel` must be a string"}}"#,
            ),
        ),
    ] {
        let log = Log::capture();
        let host = host(HostConfig::default());
        let client = Client::raw(&host);
        if shaken {
            client.initialize("c", "").await;
        }
        client.say(said);
        match end {
            Hears(text) => assert_eq!(client.hear().await, text, "{name}"),
            Closed(code, reason) => {
                let closed = client.closed().await;
                assert_eq!((closed.code, &*closed.reason), (code, reason), "{name}");
                assert_eq!(client.served.await.unwrap(), closed, "{name}");
                log.assert_line(Level::DEBUG, &["has ended", "code=4400", reason]);
            }
            Nothing => {
                let ping = r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#;
                let pong = r#"{"jsonrpc":"2.0","id":5,"result":null}"#;
                assert_eq!(client.ask(ping).await, pong, "{name}");
            }
        }
    }
}

// AHP-7
#[tokio::test(start_paused = true)]
async fn there_is_room_for_so_many_clients() {
    let host = host(config().with(|it| it.limits.clients = 2));
    let here = [Client::new(&host), Client::new(&host)];
    for (number, client) in here.iter().enumerate() {
        client.initialize(&format!("c{number}"), "").await;
    }
    let refused = Client::new(&host);
    let closed = refused.closed().await;
    assert_eq!(refused.served.await.unwrap(), closed, "the operator's view");
    assert_eq!(
        (closed.code, &*closed.reason),
        (
            1013,
            "2 clients are connected, which is the limit: try again later"
        )
    );
    for client in here {
        let pong = r#"{"jsonrpc":"2.0","id":5,"result":null}"#;
        assert_eq!(
            client
                .ask(r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#)
                .await,
            pong
        );
    }
}

// AHP-7
#[tokio::test(start_paused = true)]
async fn who_asks_and_never_reads_is_cut_off() {
    let log = Log::capture();
    let host = host(config().with(|it| it.connection.limits.queued = 10));
    let client = Client::slow(&host, 1);
    client.initialize("c", "").await;
    let ping = r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#;
    for _ in 0..1000 {
        client.say(ping);
    }
    let closed = client.served.await.unwrap();
    assert_eq!(
        (closed.code, &*closed.reason),
        (
            1013,
            "your send queue is full: read faster, reconnect, and replay what you missed"
        )
    );
    let warning = [
        "disconnected a client that reads too slowly: 10 messages wait for it, the limit is 10 messages",
        r#"client=Some("c")"#,
    ];
    log.assert_line(Level::WARN, &warning);
}

/// One of the eight segments of a message, with 600 bytes of data.
fn segment(index: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{{"groupId":"g","index":{index},"total":8,"data":"{}"}}}}"#,
        "A".repeat(800)
    )
}

/// The close tells the sender of the segments what is wrong; `serve` and the log tell the operator.
#[tokio::test(start_paused = true)]
async fn segments_over_a_limit_end_the_connection_with_it() {
    let over_the_limit = config().with(|it| it.connection.chunking.max_message_bytes = 2000);
    let no_memory = config().with(|it| it.connection.budget = Budget::new(1500));
    for (config, code, reason) in [
        (
            over_the_limit,
            4400,
            "invalid messageSegment: message of 2400 bytes is over the limit of 2000",
        ),
        (
            no_memory,
            1013,
            "no memory to spare for this transfer at the moment; try again later",
        ),
    ] {
        let log = Log::capture();
        let host = host(config);
        let client = Client::raw(&host);
        client.initialize("c", "").await;
        for index in 0..8 {
            client.say(segment(index));
        }
        let closed = client.closed().await;
        assert_eq!((closed.code, &*closed.reason), (code, reason));
        assert_eq!(client.served.await.unwrap(), closed);
        let line = [
            "the connection of a client has ended",
            &format!("code={code}"),
            reason,
        ];
        log.assert_line(Level::DEBUG, &line);
    }
}

/// A path that is cut without a close frame.
#[tokio::test(start_paused = true)]
async fn a_cut_within_segments_is_told_by_serve() {
    let host = host(config());
    let (ours, theirs) = memory::pair(8);
    let served = tokio::spawn(host.serve(theirs));
    let (mut source, mut sink) = ours.split();
    let hello = initialize("c", "", &takes(1000, 5000));
    sink.send(Frame::Text(hello.into())).await.unwrap();
    while !matches!(source.next().await, Incoming::Frame(_)) {}
    sink.send(Frame::Text(segment(0).into())).await.unwrap();
    drop((source, sink));
    let closed = served.await.unwrap();
    assert_eq!(
        (closed.code, &*closed.reason),
        (1006, "the other end is gone")
    );
}
