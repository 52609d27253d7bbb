//! Published actions reach all subscribers in order, and the publisher never waits for them.

use breakbulk_ahp::Host;
use breakbulk_ahp::PublishError;
use breakbulk_ahp::log::MemoryLog;

use super::common::*;

#[tokio::test(start_paused = true)]
async fn everybody_who_follows_is_told_in_order() {
    let host = host(config());
    let (both, chat, none) = (Client::new(&host), Client::new(&host), Client::new(&host));
    both.initialize("a", r#""ahp-root://","ahp-chat:/a""#).await;
    chat.initialize("b", r#""ahp-chat:/a""#).await;
    none.initialize("c", "").await;
    for number in 0..1000 {
        let channel = if number % 2 == 0 { ROOT } else { CHAT };
        let seq = host.publish(channel, &raw(&number.to_string()), None);
        assert_eq!(seq, Ok(number + 1));
    }
    for number in 0..1000 {
        let channel = if number % 2 == 0 { ROOT } else { CHAT };
        let told = action(channel, &number.to_string(), number + 1);
        assert_eq!(both.hear().await, told);
        if channel == CHAT {
            assert_eq!(chat.hear().await, told);
        }
    }
    let ping = r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":{"channel":"ahp-root://"}}"#;
    let pong = r#"{"jsonrpc":"2.0","id":5,"result":null}"#;
    assert_eq!(none.ask(ping).await, pong);
    assert_eq!(
        *host.app().applied.lock().unwrap(),
        (1..=1000).collect::<Vec<_>>()
    );
    assert_eq!(host.last_visible(), 1000);
}

// AHP-6
#[tokio::test(start_paused = true)]
async fn subscribing_while_actions_flow_leaves_no_gap_and_no_double() {
    subscribe_while_actions_flow().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nor_does_it_on_several_threads() {
    for _ in 0..5 {
        subscribe_while_actions_flow().await;
    }
}

async fn subscribe_while_actions_flow() {
    let host = host(config());
    let clients: Vec<_> = (0..8).map(|_| Client::new(&host)).collect();
    for (number, client) in clients.iter().enumerate() {
        client
            .initialize(&format!("c{number}"), r#""ahp-root://""#)
            .await;
    }
    let publisher = tokio::spawn({
        let host = host.clone();
        async move {
            for number in 1..=500 {
                host.publish(CHAT, &raw(&number.to_string()), None).unwrap();
                host.publish(ROOT, &raw("0"), None).unwrap();
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    for (number, client) in clients.iter().enumerate() {
        host.visible(100 * number as i64).await.unwrap();
        client.say(
            r#"{"jsonrpc":"2.0","id":"s","method":"subscribe","params":{"channel":"ahp-chat:/a"}}"#,
        );
    }
    publisher.await.unwrap();
    for client in &clients {
        // What the client receives of the chat, from the snapshot on, is 1 to 500, each once.
        let mut seen: Vec<u64> = vec![];
        let mut snapshot_at = None;
        let mut last = 0;
        while seen.last() != Some(&500) {
            let text = client.hear().await;
            let message: serde_json::Value = serde_json::from_str(&text).unwrap();
            if let Some(snapshot) = message.pointer("/result/snapshot") {
                assert_eq!(message["id"], "s");
                snapshot_at = snapshot["fromSeq"].as_u64();
                seen = serde_json::from_value(snapshot["state"].clone()).unwrap();
                // As of the last action received, or of a chat action after it, which was not sent.
                assert!(
                    snapshot_at == Some(last) || snapshot_at == Some(last + 1),
                    "{text}"
                );
                continue;
            }
            let seq = message["params"]["serverSeq"].as_u64().unwrap();
            assert!(seq > last, "{text}");
            last = seq;
            if message["params"]["channel"] == CHAT {
                assert!(Some(seq) > snapshot_at, "{text}");
                seen.push(message["params"]["action"].as_u64().unwrap());
            }
        }
        assert_eq!(seen, (1..=500).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn what_subscribe_answers() {
    let host = host(config().with(|it| {
        it.limits.subscriptions = 3;
        it.limits.subscription_bytes = 40;
    }));
    host.app().open("ahp-otlp:/x", &[]);
    host.app().open("ahp-chat:/a-name-that-is-too-long", &[]);
    host.app().open("s", &[]);
    let client = Client::new(&host);
    client.initialize("c", r#""ahp-root://""#).await;
    publish(&host, CHAT, "1").await;
    for (params, answer) in [
        (
            r#"{"channel":"ahp-chat:/a","view":{"turns":5}}"#,
            r#""result":{"snapshot":{"resource":"ahp-chat:/a","state":[1],"fromSeq":1}}"#,
        ),
        // Subscribing again is allowed.
        (
            r#"{"channel":"x","channel":"ahp-chat:\/a"}"#,
            r#""result":{"snapshot":{"resource":"ahp-chat:/a","state":[1],"fromSeq":1}}"#,
        ),
        (
            r#"{"channel":"ahp-chat:/b"}"#,
            r#""error":{"code":-32008,"message":"no such channel: ahp-chat:/b"}"#,
        ),
        (
            r#"{"channel":"ahp-session:/b"}"#,
            r#""error":{"code":-32001,"message":"no such channel: ahp-session:/b"}"#,
        ),
        (
            r#"{"channel":7}"#,
            r#""error":{"code":-32602,"message":"`channel` must be a string"}"#,
        ),
        (
            r#"{}"#,
            r#""error":{"code":-32602,"message":"`channel` must be a string"}"#,
        ),
        (
            r#"{"channel":"ahp-chat:/a-name-that-is-too-long"}"#,
            r#""error":{"code":-32602,"message":"a client may subscribe to at most 3 channels, whose names have at most 40 bytes together; unsubscribe from some first"}"#,
        ),
        (r#"{"channel":"ahp-otlp:/x"}"#, r#""result":{}"#),
        (
            r#"{"channel":"s"}"#,
            r#""error":{"code":-32602,"message":"a client may subscribe to at most 3 channels, whose names have at most 40 bytes together; unsubscribe from some first"}"#,
        ),
    ] {
        let said = format!(r#"{{"jsonrpc":"2.0","id":-3,"method":"subscribe","params":{params}}}"#);
        let expected = format!(r#"{{"jsonrpc":"2.0","id":-3,{answer}}}"#);
        assert_eq!(client.ask(said).await, expected, "{params}");
    }
    // An unsubscribed channel makes room for another, and its actions are no longer sent.
    client.say(r#"{"jsonrpc":"2.0","method":"unsubscribe","params":{"channel":"ahp-chat:/a"}}"#);
    let said = r#"{"jsonrpc":"2.0","id":4,"method":"subscribe","params":{"channel":"s"}}"#;
    assert!(client.ask(said).await.contains(r#""state":[]"#));
    publish(&host, CHAT, "2").await;
    publish(&host, "s", "3").await;
    assert_eq!(client.hear().await, action("s", "3", 3));
}

#[tokio::test(start_paused = true)]
async fn what_clients_dispatch_is_echoed_or_refused() {
    let host = host(config());
    let (one, two) = (Client::new(&host), Client::new(&host));
    one.initialize("one", r#""ahp-chat:/a""#).await;
    two.initialize("two", r#""ahp-chat:/a""#).await;
    for (seq, said, told) in [
        (
            1,
            r#""good""#,
            r#""action":"good","serverSeq":1,"origin":{"clientId":"one","clientSeq":1}"#,
        ),
        (
            2,
            r#""bad""#,
            r#""action":"bad","serverSeq":2,"origin":{"clientId":"one","clientSeq":2},"rejectionReason":"not here""#,
        ),
    ] {
        one.say(format!(
            r#"{{"jsonrpc":"2.0","method":"dispatchAction","params":{{"action":{said},"channel":"ahp-chat:/a","clientSeq":{seq}}}}}"#
        ));
        let told = format!(
            r#"{{"jsonrpc":"2.0","method":"action","params":{{"channel":"ahp-chat:/a",{told}}}}}"#
        );
        assert_eq!((one.hear().await, two.hear().await), (told.clone(), told));
    }
    let late = Client::new(&host)
        .initialize("three", r#""ahp-chat:/a""#)
        .await;
    assert!(late.contains(r#""state":["good"]"#), "{late}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_cut_off_alone_and_replays() {
    let host = host(config().with(|it| it.connection.limits.queued = 10));
    let (slow, quick) = (Client::slow(&host, 1), Client::new(&host));
    slow.initialize("slow", r#""ahp-chat:/a""#).await;
    quick.initialize("quick", r#""ahp-chat:/a""#).await;
    // The test reads nothing from `slow`: its reader stops once it holds many messages.
    for number in 1..=200 {
        publish(&host, CHAT, "0").await;
        assert_eq!(quick.hear().await, action(CHAT, "0", number));
    }
    let mut seen = 0;
    let closed = loop {
        match slow.connection.event().await {
            Some(breakbulk_link::Event::Message(message)) => {
                seen += 1;
                assert_eq!(message.bytes, action(CHAT, "0", seen));
            }
            Some(breakbulk_link::Event::Closed(closed)) => break closed,
            _ => {}
        }
    };
    assert_eq!(
        (closed.code, &*closed.reason),
        (
            1013,
            "your send queue is full: read faster, reconnect, and replay what you missed"
        )
    );
    assert!((1..200).contains(&seen), "{seen}");
    let back = Client::new(&host);
    let missed: Vec<_> = (seen + 1..=200)
        .map(|seq| envelope(CHAT, "0", seq))
        .collect();
    assert_eq!(
        back.ask(reconnect("slow", seen, r#""ahp-chat:/a""#, ""))
            .await,
        format!(
            r#"{{"jsonrpc":"2.0","id":2,"result":{{"type":"replay","actions":[{}],"missing":[]}}}}"#,
            missed.join(",")
        )
    );
}

#[tokio::test(start_paused = true)]
async fn publishing_never_waits_and_is_bounded() {
    let board = Board::with(&[ROOT, CHAT]);
    let host = Host::new(
        board,
        MemoryLog::default(),
        config().with(|it| it.limits.uncommitted_bytes = 100_000),
    );
    let stuck = Client::slow(&host, 1);
    stuck.initialize("stuck", r#""ahp-chat:/a""#).await;
    // There is no await between these calls: neither the log nor a client gets a turn.
    let mut count = 0;
    let error = loop {
        match host.publish(CHAT, &raw("0"), None) {
            Ok(seq) => count = seq,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error, PublishError::Behind { limit: 100_000, .. }),
        "{error}"
    );
    assert!(count > 200, "{count}");
    // There is room again once the actions are visible.
    host.visible(count).await.unwrap();
    assert_eq!(host.publish(CHAT, &raw("0"), None), Ok(count + 1));
}

#[tokio::test(start_paused = true)]
async fn what_has_no_number_is_told_too() {
    let host = host(config());
    let client = Client::new(&host);
    client.initialize("c", r#""ahp-root://""#).await;
    host.notify(ROOT, "root/progress", &raw(r#"{"channel":"ahp-root://"}"#));
    host.notify(CHAT, "root/progress", &raw("{}"));
    publish(&host, ROOT, "1").await;
    assert_eq!(
        client.hear().await,
        r#"{"jsonrpc":"2.0","method":"root/progress","params":{"channel":"ahp-root://"}}"#
    );
    assert_eq!(client.hear().await, action(ROOT, "1", 1));
}
