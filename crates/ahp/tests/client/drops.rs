use breakbulk_ahp::testing::{Lanes, switched};
use breakbulk_ahp::{Client, ClientConfig, ClientError, Config, Resumed};
use breakbulk_link::Cap;
use breakbulk_message::ahp::Chunking;
use breakbulk_message::jsonrpc::Envelope;
use breakbulk_net::memory;
use serde_json::value::RawValue;

use super::scripted::{Raw, Scripted, action, params, replay, welcome};
use super::{connected, next, start};

fn raw(text: &str) -> &RawValue {
    serde_json::from_str(text).unwrap()
}

/// `{"jsonrpc":"2.0","method":"action","params":{"channel":"ahp-root://","action":0,"serverSeq":421}}`
/// in two segments.
const FIRST: &str = r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":2,"data":"eyJqc29ucnBjIjoiMi4wIiwibWV0aG9kIjoiYWN0aW9uIiwicGFyYW1z"}}"#;
const SECOND: &str = r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":1,"total":2,"data":"Ijp7ImNoYW5uZWwiOiJhaHAtcm9vdDovLyIsImFjdGlvbiI6MCwic2VydmVyU2VxIjo0MjF9fQ=="}}"#;

async fn reconnect(client: &Client, expected: i64, missed: &[i64]) -> Raw {
    let (ours, theirs) = memory::pair(16);
    let mut host = Raw::new(theirs);
    let script = async {
        let request = host.hear().await;
        let from = format!(r#""lastSeenServerSeq":{expected},"#);
        assert!(request.contains(&from), "{request}");
        let missed: Vec<_> = missed.iter().map(|&seq| params(seq, "")).collect();
        host.say(replay(&request, &missed)).await;
    };
    let (resumed, ()) = tokio::join!(client.reconnect(ours), script);
    assert!(matches!(resumed, Ok(Resumed::Replay { .. })), "{resumed:?}");
    host
}

#[tokio::test(start_paused = true)]
async fn an_action_that_was_overtaken_when_the_line_dropped_is_not_lost() {
    let (client, mut host) = connected(ClientConfig::new("c")).await;
    for frame in [FIRST, &action(422, ""), &action(423, "")] {
        host.say(frame).await;
    }
    drop(host);
    for expected in ["action 422", "action 423"] {
        assert_eq!(next(&client).await, expected);
    }
    assert!(next(&client).await.starts_with("closed 1006"));
    // The connection drops again before the answer: the client still remembers what it lost.
    let (ours, theirs) = memory::pair(16);
    let mut host = Raw::new(theirs);
    let script = async {
        assert!(host.hear().await.contains(r#""lastSeenServerSeq":420,"#));
        host.say(action(424, "")).await;
        host.say(FIRST).await;
        drop(host);
    };
    let (failed, ()) = tokio::join!(client.reconnect(ours), script);
    assert!(matches!(
        failed,
        Err(ClientError::Disconnected { code: 1006, .. })
    ));
    let mut host = reconnect(&client, 420, &[421, 422, 423, 424, 425]).await;
    for seq in [421, 424, 425] {
        assert_eq!(next(&client).await, format!("action {seq}"));
    }
    // Nothing is missing any more: the next reconnect starts from the last action.
    host.close(1001, "").await;
    assert!(next(&client).await.starts_with("closed 1001"));
    drop(reconnect(&client, 425, &[]).await);
}

#[tokio::test(start_paused = true)]
async fn without_the_defence_it_is_lost() {
    let mut config = ClientConfig::new("c");
    config.connection = switched(config.connection, Lanes::ByMeaning, false);
    let (client, mut host) = connected(config).await;
    for frame in [FIRST, &action(422, "")] {
        host.say(frame).await;
    }
    drop(host);
    assert_eq!(next(&client).await, "action 422");
    assert!(next(&client).await.starts_with("closed 1006"));
    drop(reconnect(&client, 422, &[]).await);
}

/// A group that began before the answer to `initialize`, which starts everything anew.
#[tokio::test(start_paused = true)]
async fn a_group_that_opened_before_the_states_came_is_not_forgotten() {
    let client = Client::new(ClientConfig::new("c"));
    let (ours, theirs) = memory::pair(16);
    let mut host = Raw::new(theirs);
    let script = async {
        let request = host.hear().await;
        host.say(FIRST).await;
        host.say(welcome(&request, 420, "{}", None)).await;
        host.say(action(422, "")).await;
        drop(host);
    };
    let (initialized, ()) = tokio::join!(client.initialize(ours, &["ahp-root://"]), script);
    initialized.unwrap();
    assert_eq!(next(&client).await, "state of ahp-root:// at 420");
    assert_eq!(next(&client).await, "action 422");
    assert!(next(&client).await.starts_with("closed 1006"));
    drop(reconnect(&client, 420, &[421, 422]).await);
    assert_eq!(next(&client).await, "action 421");
}

#[tokio::test(start_paused = true)]
async fn a_group_that_became_whole_is_told_once() {
    let (client, mut host) = connected(ClientConfig::new("c")).await;
    for frame in [FIRST, &action(422, ""), SECOND] {
        host.say(frame).await;
    }
    drop(host);
    for expected in ["action 422", "action 421"] {
        assert_eq!(next(&client).await, expected);
    }
    assert!(next(&client).await.starts_with("closed 1006"));
    drop(reconnect(&client, 422, &[423]).await);
    assert_eq!(next(&client).await, "action 423");
}

/// As above, with a real sender that lets every message overtake others.
#[tokio::test(start_paused = true)]
async fn a_large_action_is_overtaken_by_small_ones_and_comes_with_the_replay() {
    let mut config = ClientConfig::new("c");
    config.connection.chunking = Chunking {
        max_frame_bytes: 2000,
        ..Chunking::default()
    };
    let client = Client::new(config);
    let config = switched(Config::default(), Lanes::Each, true);
    let (ours, theirs) = memory::pair(1);
    let host = Scripted::new(theirs, config.clone());
    let script = async {
        let request = host.hear().await;
        host.say(welcome(&request, 420, "{}", Some(&config.chunking)));
    };
    let (initialized, ()) = tokio::join!(client.initialize(ours, &["ahp-root://"]), script);
    initialized.unwrap();
    assert_eq!(next(&client).await, "state of ahp-root:// at 420");
    let large = "x".repeat(3_000_000);
    host.say(action(421, &large));
    for seq in 422..432 {
        host.say(action(seq, ""));
    }
    for seq in 422..432 {
        assert_eq!(next(&client).await, format!("action {seq}"));
    }
    host.connection.close(1011, "cut");
    assert_eq!(next(&client).await, r#"closed 1011 "cut" unsent []"#);

    let (ours, theirs) = memory::pair(1);
    let host = Scripted::new(theirs, config);
    let script = async {
        let request = host.hear().await;
        assert!(request.contains(r#""lastSeenServerSeq":420,"#), "{request}");
        let mut missed = vec![params(421, &large)];
        missed.extend((422..434).map(|seq| params(seq, "")));
        host.say(replay(&request, &missed));
        // Overtakes the replay, which is large; the client delivers it after the replay.
        host.say(action(434, ""));
    };
    let (resumed, ()) = tokio::join!(client.reconnect(ours), script);
    assert!(matches!(resumed, Ok(Resumed::Replay { actions: 3, .. })));
    for seq in [421, 432, 433, 434] {
        assert_eq!(next(&client).await, format!("action {seq}"));
    }
}

// AHP-15
#[tokio::test(start_paused = true)]
async fn every_call_that_waits_fails_and_what_was_not_sent_is_named() {
    let mut config = ClientConfig::new("c");
    config.connection.cap = Cap::frame(1000);
    let (client, mut host) = connected(config).await;
    let calls = async {
        tokio::join!(
            client.request("a", None),
            client.subscribe("ahp-chat:/x"),
            client.ping(),
        )
    };
    let script = async {
        let mut heard = Vec::new();
        for _ in 0..3 {
            let request = host.hear().await;
            let envelope = Envelope::parse(&request).unwrap();
            heard.push(envelope.method().unwrap().into_owned());
        }
        heard.sort();
        assert_eq!(heard, ["a", "ping", "subscribe"]);
        host.close(4001, "no more").await;
    };
    let ((a, b, c), ()) = tokio::join!(calls, script);
    for error in [a.unwrap_err(), b.unwrap_err(), c.unwrap_err()] {
        assert_eq!(
            error.to_string(),
            "the connection ended with 4001 (no more) before there was an answer; reconnect, and call again where that is safe"
        );
    }
    assert_eq!(next(&client).await, r#"closed 4001 "no more" unsent []"#);
    let late = client.request("a", None).await.unwrap_err();
    assert!(matches!(late, ClientError::Disconnected { code: 4001, .. }));
    // A subscription that was not answered does not take effect.
    assert_eq!(client.subscriptions(), ["ahp-root://"]);

    // A host that reads nothing: one frame is in its queue, and one on its way to it.
    let host = start(&client).await;
    let large = format!(r#""{}""#, "x".repeat(50_000));
    for expected in 1..=3 {
        let seq = client.dispatch("ahp-root://", raw(&large)).await;
        assert_eq!(seq.unwrap(), expected);
    }
    assert_eq!(client.dispatch("ahp-root://", raw("1")).await.unwrap(), 4);
    drop(host);
    let told = next(&client).await;
    assert_eq!(
        told,
        r#"closed 1006 "the other end is gone" unsent [1, 2, 3, 4]"#
    );
    let host = start(&client).await;
    // A number (`clientSeq`) is never used twice.
    assert_eq!(client.dispatch("ahp-root://", raw("1")).await.unwrap(), 5);
    drop(host);
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_waits_for_room_and_is_told_when_the_line_drops() {
    let mut config = ClientConfig::new("c");
    config.connection.cap = Cap::frame(1000);
    config.connection.limits.queued = 2;
    let (client, host) = connected(config).await;
    let large = format!(r#""{}""#, "x".repeat(50_000));
    for seq in 1..=2 {
        let sent = client.dispatch("ahp-root://", raw(&large)).await;
        assert_eq!(sent.unwrap(), seq);
    }
    let waiting = client.dispatch("ahp-root://", raw("3"));
    tokio::pin!(waiting);
    let soon = std::time::Duration::from_secs(1);
    assert!(tokio::time::timeout(soon, &mut waiting).await.is_err());
    drop(host);
    assert!(matches!(
        waiting.await,
        Err(ClientError::Disconnected { .. })
    ));
    assert!(next(&client).await.ends_with("unsent [1, 2]"));
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_is_given_up_leaves_no_connection() {
    let client = Client::new(ClientConfig::new("c"));
    let (ours, theirs) = memory::pair(16);
    let mut host = Raw::new(theirs);
    {
        let initialize = client.initialize(ours, &["ahp-root://"]);
        tokio::pin!(initialize);
        tokio::select! {
            _ = &mut initialize => panic!("nobody answered"),
            _ = host.hear() => {}
        }
        let early = client.ping().await.unwrap_err();
        assert_eq!(
            early.to_string(),
            "not connected; call initialize or reconnect first"
        );
    }
    let closed = host.frame().await.unwrap_err();
    assert_eq!(
        (closed.code, &*closed.reason),
        (1000, "the client abandoned the handshake")
    );
    assert_eq!(next(&client).await, "nothing");
    // Dropping the last handle closes the connection.
    let (client, mut host) = connected(ClientConfig::new("c")).await;
    drop(client);
    assert_eq!(host.frame().await.unwrap_err().code, 1000);
}
