use breakbulk_ahp::{Client, ClientConfig};
use breakbulk_net::memory;

use super::scripted::{Raw, action, params, replay};
use super::{connected, next};

/// Messages of a misbehaving host on an open connection: the events that the application gets, and the
/// close that the host sees.
#[tokio::test(start_paused = true)]
async fn what_a_host_may_not_do() {
    let wrong_action = |what: &str| format!(r#"closed 4400 "invalid action: {what}" unsent []"#);
    for (said, told) in [
        // Responses that match no open call: unknown id, id of an answered call, other types of id.
        (vec![r#"{"jsonrpc":"2.0","id":99,"result":1}"#.to_owned()], vec![]),
        (vec![r#"{"jsonrpc":"2.0","id":1,"result":1}"#.to_owned()], vec![]),
        (vec![r#"{"jsonrpc":"2.0","id":"1","result":1}"#.to_owned()], vec![]),
        (vec![r#"{"jsonrpc":"2.0","id":-1,"error":{}}"#.to_owned()], vec![]),
        (vec![r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":""}}"#.to_owned()], vec![]),
        (vec![format!(r#"{{"jsonrpc":"2.0","id":"{}","result":1}}"#, "é".repeat(100))], vec![]),
        // What is no JSON-RPC goes to the application.
        (vec!["[]".to_owned()], vec!["other []".to_owned()]),
        (vec!["".to_owned()], vec!["other ".to_owned()]),
        (vec![r#"{"jsonrpc":"2.0","id":1}"#.to_owned()], vec![r#"other {"jsonrpc":"2.0","id":1}"#.to_owned()]),
        (vec![r#"{"jsonrpc":"2.0","method":"x"}"#.to_owned()], vec!["notification x".to_owned()]),
        // An action without a valid number would leave a gap, and later actions would hide it.
        (vec![r#"{"jsonrpc":"2.0","method":"action"}"#.to_owned(), action(421, "")], vec![wrong_action("`params` is missing")]),
        (vec![r#"{"jsonrpc":"2.0","method":"action","params":[]}"#.to_owned(), action(421, "")], vec![wrong_action("an object is expected")]),
        (vec![action(421, "").replace("421", "1.5"), action(422, "")], vec![wrong_action("`serverSeq` must be an integer of 64 bits")]),
        (vec![action(421, ""), action(422, "").replace("\"ahp-root://\"", "7"), action(423, "")], vec!["action 421".to_owned(), wrong_action("`channel` must be a string")]),
        // The largest and the smallest number.
        (vec![action(i64::MAX, ""), action(421, "")], vec![format!("action {}", i64::MAX), "action 421".to_owned()]),
        (vec![action(421, "").replace("ahp-root://", "ahp-x:/"), action(i64::MIN, "").replace("ahp-root://", "ahp-x:/")], vec!["action 421".to_owned(), format!("action {}", i64::MIN)]),
        // An invalid segment.
        (vec![r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{}}"#.to_owned()], vec![r#"closed 4400 "invalid messageSegment: groupId must be 1 to 128 bytes of text" unsent []"#.to_owned()]),
    ] {
        let (client, mut host) = connected(ClientConfig::new("c")).await;
        for frame in &said {
            host.say(frame).await;
        }
        let closes = told.last().is_some_and(|last: &String| last.starts_with("closed"));
        for expected in &told {
            assert_eq!(&next(&client).await, expected, "{said:?}");
        }
        if closes {
            assert_eq!(host.frame().await.unwrap_err().code, 4400, "{said:?}");
            continue;
        }
        // The connection is still open, and there is no further event.
        let script = async {
            assert!(host.hear().await.contains(r#""id":2,"method":"ping""#));
            let pong = r#"{"jsonrpc":"2.0","id":2,"result":null}"#;
            host.say(pong).await;
            host.say(pong).await;
        };
        let (pong, ()) = tokio::join!(client.ping(), script);
        pong.unwrap();
        host.close(1001, "end").await;
        assert_eq!(next(&client).await, r#"closed 1001 "end" unsent []"#, "{said:?}");
    }
}

/// Unusable answers to a handshake: the caller gets an error, the connection is closed, and the client
/// keeps its subscriptions and numbers.
#[tokio::test(start_paused = true)]
async fn a_handshake_that_makes_no_sense() {
    let answer = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":2,"result":{result}}}"#);
    let replayed = |actions: &[String]| replay(r#"{"id":2}"#, actions);
    for (answer, why) in [
        (answer("null"), "an object is expected"),
        (answer("{}"), "`type` is missing"),
        (
            answer(r#"{"type":"other"}"#),
            r#"`type` must be "replay" or "snapshot""#,
        ),
        (answer(r#"{"type":"replay"}"#), "`actions` is missing"),
        (
            answer(r#"{"type":"replay","actions":{}}"#),
            "`actions` must be an array",
        ),
        (
            answer(r#"{"type":"replay","actions":[],"missing":[1]}"#),
            "`missing` must be an array of strings",
        ),
        (
            answer(r#"{"type":"snapshot","snapshots":[{}]}"#),
            "`resource` is missing",
        ),
        (replayed(&["7".to_owned()]), "an object is expected"),
        (
            replayed(&[params(421, ""), "{}".to_owned()]),
            "`channel` is missing",
        ),
        (
            replayed(&[params(421, ""), params(421, "")]),
            "action 421 is out of order in the replay",
        ),
        (
            replayed(&[params(422, ""), params(421, "")]),
            "action 421 is out of order in the replay",
        ),
    ] {
        let (client, host) = connected(ClientConfig::new("c")).await;
        drop(host);
        assert!(next(&client).await.starts_with("closed 1006"));
        let (ours, theirs) = memory::pair(16);
        let mut host = Raw::new(theirs);
        let script = async {
            host.hear().await;
            host.say(action(430, "")).await;
            host.say(&answer).await;
            host.say(action(431, "")).await;
        };
        let (resumed, ()) = tokio::join!(client.reconnect(ours), script);
        assert_eq!(
            resumed.unwrap_err().to_string(),
            format!("the host's answer to reconnect cannot be used: {why}"),
            "{answer}"
        );
        assert_eq!(host.frame().await.unwrap_err().code, 4400);
        assert_eq!(next(&client).await, "nothing", "{answer}");
        assert_eq!(client.last_seen(), 420);
        assert_eq!(client.subscriptions(), ["ahp-root://"]);
    }
    for (answer, why) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"result":[]}"#,
            "the host's answer to initialize cannot be used: an object is expected",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1","serverSeq":1,"snapshots":[1]}}"#,
            "the host's answer to initialize cannot be used: an object is expected",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"Unsupported"}}"#,
            "the host answered with error -32005: Unsupported",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{}}"#,
            "the host answered with error 0: ",
        ),
    ] {
        let client = Client::new(ClientConfig::new("c"));
        let (ours, theirs) = memory::pair(16);
        let mut host = Raw::new(theirs);
        let script = async {
            host.hear().await;
            host.say(answer).await;
        };
        let (failed, ()) = tokio::join!(client.initialize(ours, &["ahp-root://"]), script);
        assert_eq!(failed.unwrap_err().to_string(), why, "{answer}");
        assert!(host.frame().await.is_err());
        assert_eq!(next(&client).await, "nothing");
    }
}
