use breakbulk_ahp::{Client, ClientConfig, Resumed};
use breakbulk_net::memory;
use serde_json::value::RawValue;

use super::scripted::{Raw, action, params, replay};
use super::{connected, next, short};

const OURS: &str = r#"{"chunking":{"maxIncomingFrameBytes":900000,"maxIncomingMessageBytes":33554432,"maxIncomingGroups":8,"groupTimeoutMs":30000,"groupTimeoutFrom":"last"}}"#;

fn raw(text: &str) -> &RawValue {
    serde_json::from_str(text).unwrap()
}

// AHP-13
#[tokio::test(start_paused = true)]
async fn what_a_client_says_is_literal() {
    let client = Client::new(ClientConfig::new("c"));
    assert_eq!(next(&client).await, "nothing");
    let (ours, theirs) = memory::pair(16);
    let mut host = Raw::new(theirs);
    let script = async {
        assert_eq!(
            host.hear().await,
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"channel":"ahp-root://","clientId":"c","initialSubscriptions":["ahp-root://"],"protocolVersions":["1.0.0","0.9.0"],"capabilities":{OURS}}}}}"#
            )
        );
        // 11 overtakes the answer and is delivered after it; 10 is part of the state and is not delivered.
        host.say(action(10, "")).await;
        host.say(action(11, "")).await;
        host.say(r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"0.9.0","serverSeq":10,"snapshots":[{"resource":"ahp-root://","state":{"a":1},"fromSeq":10}],"capabilities":{"chunking":{"maxIncomingFrameBytes":1000,"maxIncomingMessageBytes":5000}},"x":1}}"#).await;
    };
    let (initialized, ()) = tokio::join!(client.initialize(ours, &["ahp-root://"]), script);
    let initialized = initialized.unwrap();
    assert_eq!(initialized.protocol_version, "0.9.0");
    assert_eq!(initialized.server_seq, 10);
    assert_eq!(initialized.chunking.unwrap().max_message_bytes, 5000);
    assert_eq!(client.host_takes(), initialized.chunking);
    assert!(initialized.result.ends_with(r#""x":1}"#));
    let states: Vec<_> = initialized
        .snapshots
        .iter()
        .map(|one| one.state.to_string())
        .collect();
    assert_eq!(states, [r#"{"a":1}"#]);
    assert_eq!(next(&client).await, "state of ahp-root:// at 10");
    assert_eq!(next(&client).await, "action 11");

    let script = async {
        assert_eq!(
            host.hear().await,
            r#"{"jsonrpc":"2.0","id":2,"method":"subscribe","params":{"channel":"ahp-session:/a"}}"#
        );
        host.say(r#"{"jsonrpc":"2.0","id":2,"result":{"snapshot":{"resource":"ahp-session:/a","state":[7],"fromSeq":12}}}"#).await;
        host.say(r#"{"jsonrpc":"2.0","method":"action","params":{"channel":"ahp-session:/a","action":{"t":1},"serverSeq":13,"origin":{"clientId":"c","clientSeq":1},"rejectionReason":"no"}}"#).await;
        assert_eq!(
            host.hear().await,
            r#"{"jsonrpc":"2.0","method":"dispatchAction","params":{"action":{"type":"x"},"channel":"ahp-session:/a","clientSeq":1}}"#
        );
        assert_eq!(
            host.hear().await,
            r#"{"jsonrpc":"2.0","method":"unsubscribe","params":{"channel":"ahp-root://"}}"#
        );
        assert_eq!(
            host.hear().await,
            r#"{"jsonrpc":"2.0","id":3,"method":"resourceRead","params":{"uri":"u"}}"#
        );
        host.say(r#"{"jsonrpc":"2.0","id":3,"result":{"n": 1}}"#)
            .await;
        assert_eq!(
            host.hear().await,
            r#"{"jsonrpc":"2.0","id":4,"method":"ping","params":{"channel":"ahp-root://"}}"#
        );
        host.say(r#"{"jsonrpc":"2.0","id":4,"result":null}"#).await;
        assert_eq!(
            host.hear().await,
            r#"{"jsonrpc":"2.0","id":5,"method":"bare"}"#
        );
        host.say(r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32601,"message":"no such method","data":[1]}}"#).await;
    };
    let calls = async {
        let state = client.subscribe("ahp-session:/a").await.unwrap().unwrap();
        assert_eq!((state.from_seq, &*state.state), (12, "[7]"));
        let seq = client
            .dispatch("ahp-session:/a", raw(r#"{"type":"x"}"#))
            .await;
        assert_eq!(seq.unwrap(), 1);
        client.unsubscribe("ahp-root://").await.unwrap();
        let result = client
            .request("resourceRead", Some(raw(r#"{"uri":"u"}"#)))
            .await;
        assert_eq!(result.unwrap(), r#"{"n": 1}"#);
        client.ping().await.unwrap();
        let refused = client.request("bare", None).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the host answered with error -32601: no such method"
        );
        let bad = client.request("x", Some(raw("1"))).await.unwrap_err();
        assert_eq!(bad.to_string(), "params must be an object or an array");
    };
    tokio::join!(script, calls);
    assert_eq!(next(&client).await, "state of ahp-session:/a at 12");
    let event = client.next().await.unwrap();
    let breakbulk_ahp::Event::Action(action) = event else {
        panic!("{event:?}");
    };
    assert_eq!(&*action.action, r#"{"t":1}"#);
    assert_eq!(action.origin.unwrap().client_seq, 1);
    assert_eq!(action.rejection_reason.as_deref(), Some("no"));
    assert_eq!(client.subscriptions(), ["ahp-session:/a"]);
    assert_eq!(client.last_seen(), 13);
}

// AHP-13
#[tokio::test(start_paused = true)]
async fn a_reconnect_goes_on_where_the_client_was() {
    let (client, mut host) = connected(ClientConfig::new("c")).await;
    host.say(action(421, "")).await;
    client.dispatch("ahp-root://", raw("{}")).await.unwrap();
    host.hear().await;
    drop(host);
    assert_eq!(next(&client).await, "action 421");
    assert_eq!(
        next(&client).await,
        r#"closed 1006 "the other end is gone" unsent []"#
    );
    assert_eq!(next(&client).await, "nothing");

    // The replay is delivered in order, before new actions, without actions that the client has already.
    let (ours, theirs) = memory::pair(16);
    let mut host = Raw::new(theirs);
    let script = async {
        let request = host.hear().await;
        assert_eq!(
            request,
            format!(
                r#"{{"jsonrpc":"2.0","id":2,"method":"reconnect","params":{{"channel":"ahp-root://","clientId":"c","lastSeenServerSeq":421,"subscriptions":["ahp-root://"],"capabilities":{OURS}}}}}"#
            )
        );
        // Both overtake the answer; 424 is in the replay as well.
        host.say(action(424, "")).await;
        host.say(action(425, "")).await;
        let missed = [421, 422, 423, 424].map(|seq| params(seq, ""));
        let answer = replay(&request, &missed).replace(
            r#""missing":[]"#,
            r#""missing":["ahp-root://","ahp-chat:/never"]"#,
        );
        host.say(answer).await;
        host.say(action(426, "")).await;
    };
    let (resumed, ()) = tokio::join!(client.reconnect(ours), script);
    let Resumed::Replay { actions, missing } = resumed.unwrap() else {
        panic!("no replay");
    };
    assert_eq!((actions, &*missing), (3, &["ahp-root://".to_owned()][..]));
    for seq in 422..=426 {
        assert_eq!(next(&client).await, format!("action {seq}"));
    }
    assert_eq!(client.subscriptions(), [""; 0]);
    // The numbers of the client's own actions continue.
    assert_eq!(client.dispatch("ahp-root://", raw("{}")).await.unwrap(), 2);

    // Over a connection that is still open: that one is closed first, and what it had queued is dropped.
    let (ours, theirs) = memory::pair(16);
    let mut second = Raw::new(theirs);
    let script = async {
        let request = second.hear().await;
        assert!(request.contains(r#""id":3,"#) && request.contains(r#""lastSeenServerSeq":426"#));
        second.say(r#"{"jsonrpc":"2.0","id":3,"result":{"type":"snapshot","snapshots":[{"resource":"ahp-root://","state":1,"fromSeq":500},{"resource":"ahp-chat:/x","state":2,"fromSeq":499}]}}"#).await;
    };
    let (resumed, ()) = tokio::join!(client.reconnect(ours), script);
    let Resumed::Snapshot(states) = resumed.unwrap() else {
        panic!("no states");
    };
    assert_eq!((states.len(), states.is_empty()), (2, false));
    let closed = r#"closed 1000 "a new connection takes over" unsent [2]"#;
    for expected in [
        closed,
        "state of ahp-root:// at 500",
        "state of ahp-chat:/x at 499",
    ] {
        assert_eq!(next(&client).await, expected);
    }
    assert_eq!(client.last_seen(), 500);
    drop(host);

    client.close(4000, "enough");
    assert_eq!(next(&client).await, r#"closed 4000 "enough" unsent []"#);
    assert_eq!(second.frame().await.unwrap_err().code, 4000);
}

/// The state of a channel that was subscribed late already contains some actions of a replay.
// AHP-13
#[tokio::test(start_paused = true)]
async fn what_is_in_a_state_is_not_told_again() {
    let (client, mut host) = connected(ClientConfig::new("c")).await;
    let script = async {
        host.hear().await;
        host.say(r#"{"jsonrpc":"2.0","id":2,"result":{"snapshot":{"resource":"ahp-chat:/x","state":0,"fromSeq":430}}}"#).await;
    };
    let (state, ()) = tokio::join!(client.subscribe("ahp-chat:/x"), script);
    assert_eq!(state.unwrap().unwrap().from_seq, 430);
    assert_eq!(next(&client).await, "state of ahp-chat:/x at 430");
    drop(host);
    assert!(next(&client).await.starts_with("closed 1006"));
    let (ours, theirs) = memory::pair(16);
    let mut host = Raw::new(theirs);
    let script =
        async {
            let request = host.hear().await;
            assert!(request.contains(
                r#""lastSeenServerSeq":420,"subscriptions":["ahp-chat:/x","ahp-root://"]"#
            ));
            let chat = |seq| params(seq, "").replace("ahp-root://", "ahp-chat:/x");
            let missed = [chat(429), chat(430), params(431, ""), chat(432)];
            host.say(replay(&request, &missed)).await;
        };
    let (resumed, ()) = tokio::join!(client.reconnect(ours), script);
    assert!(matches!(resumed, Ok(Resumed::Replay { actions: 2, .. })));
    assert_eq!(next(&client).await, "action 431");
    assert_eq!(next(&client).await, "action 432");
}

#[tokio::test(start_paused = true)]
async fn a_question_of_the_hosts_is_answered_once() {
    let (client, mut host) = connected(ClientConfig::new("c")).await;
    for id in ["1", r#""\u0061""#, "3"] {
        let ask =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"resourceRead","params":{{"u":1}}}}"#);
        host.say(ask).await;
    }
    let mut asked = Vec::new();
    for _ in 0..3 {
        let breakbulk_ahp::Event::Request(request) = client.next().await.unwrap() else {
            panic!("no question");
        };
        assert_eq!(request.params.as_deref(), Some(r#"{"u":1}"#));
        asked.push(request);
    }
    let mut asked = asked.into_iter();
    asked.next().unwrap().answer(raw("[true]")).await.unwrap();
    asked
        .next()
        .unwrap()
        .refuse(-5, "not \"now\"")
        .await
        .unwrap();
    drop(asked);
    for expected in [
        r#"{"jsonrpc":"2.0","id":1,"result":[true]}"#,
        r#"{"jsonrpc":"2.0","id":"\u0061","error":{"code":-5,"message":"not \"now\""}}"#,
        r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"the client does not answer this method"}}"#,
    ] {
        assert_eq!(host.hear().await, expected);
    }
    host.say(r#"{"jsonrpc":"2.0","id":4,"method":"m"}"#).await;
    let breakbulk_ahp::Event::Request(late) = client.next().await.unwrap() else {
        panic!("no question");
    };
    host.close(1001, "bye").await;
    assert_eq!(short(client.next().await), r#"closed 1001 "bye" unsent []"#);
    let gone = late.answer(raw("1")).await.unwrap_err();
    assert!(gone.to_string().contains("ended with 1001 (bye)"), "{gone}");
}
