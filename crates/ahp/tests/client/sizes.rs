use breakbulk_ahp::{Client, ClientConfig, ClientError, Config, Event};
use breakbulk_link::Cap;
use breakbulk_message::ahp::Chunking;
use breakbulk_net::memory;
use serde_json::value::RawValue;

use super::next;
use super::scripted::{Raw, Scripted, action, welcome};

fn raw(text: &str) -> &RawValue {
    serde_json::from_str(text).unwrap()
}

/// A JSON string of this many bytes.
fn sized(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

async fn start(config: ClientConfig, host_takes: Option<Chunking>) -> (Client, Raw) {
    let client = Client::new(config);
    let (ours, theirs) = memory::pair(16);
    let mut host = Raw::new(theirs);
    let script = async {
        let request = host.hear().await;
        host.say(welcome(&request, 1, "{}", host_takes.as_ref()))
            .await;
    };
    let (initialized, ()) = tokio::join!(client.initialize(ours, &["ahp-root://"]), script);
    initialized.unwrap();
    (client, host)
}

/// A message that is too large fails in the call that makes it, and the connection stays open.
#[tokio::test(start_paused = true)]
async fn what_is_too_large_fails_at_once_and_says_what_to_do() {
    let takes = Chunking {
        max_frame_bytes: 2_000,
        max_message_bytes: 10_000,
        ..Chunking::default()
    };
    let tiny = Chunking {
        max_frame_bytes: 100,
        ..takes
    };
    let narrow = Chunking {
        max_frame_bytes: 200,
        max_message_bytes: 1 << 30,
        ..takes
    };
    let no_segments = "message too large: {} bytes, one frame holds 1000 and the receiver takes no segments; send less or let it advertise capabilities.chunking";
    for (takes, size, expected) in [
        (None, 2_000, Some(no_segments)),
        (None, 500, None),
        (Some(takes), 9_000, None),
        (
            Some(takes),
            10_000,
            Some(
                "message too large: {} bytes, and the receiver takes 10000; send less or raise its maxIncomingMessageBytes",
            ),
        ),
        (
            Some(tiny),
            9_000,
            Some(
                "not sent: a frame cap of 100 bytes leaves no room for data; it must be at least 145 bytes",
            ),
        ),
        (
            Some(narrow),
            4_000_000,
            Some(
                "not sent: message of {} bytes needs more than 65535 pieces under a frame cap of 200 bytes; raise the cap or send less",
            ),
        ),
    ] {
        let mut config = ClientConfig::new("c");
        config.connection.cap = Cap::frame(1000);
        let (client, mut host) = start(config, takes).await;
        let body = sized(size);
        let dispatched = client.dispatch("ahp-root://", raw(&body)).await;
        let frame = format!(
            r#"{{"jsonrpc":"2.0","method":"dispatchAction","params":{{"action":{body},"channel":"ahp-root://","clientSeq":1}}}}"#
        );
        let Some(expected) = expected else {
            assert_eq!(dispatched.unwrap(), 1);
            host.hear().await;
            continue;
        };
        assert_eq!(
            dispatched.unwrap_err().to_string(),
            expected.replace("{}", &frame.len().to_string())
        );
        let params = format!("[{body}]");
        let asked = client.request("m", Some(raw(&params))).await.unwrap_err();
        let size = format!(r#"{{"jsonrpc":"2.0","id":2,"method":"m","params":{params}}}"#).len();
        assert_eq!(asked.to_string(), expected.replace("{}", &size.to_string()));
        if takes == Some(tiny) {
            continue;
        }
        // Nothing of the refused action was sent, and it used no number.
        assert_eq!(client.dispatch("ahp-root://", raw("1")).await.unwrap(), 1);
        assert!(host.hear().await.ends_with(r#""clientSeq":1}}"#));
    }
}

#[tokio::test(start_paused = true)]
async fn a_handshake_is_never_cut() {
    let mut config = ClientConfig::new("c");
    config.connection.cap = Cap::frame(400);
    let (client, host) = start(config, Some(Chunking::default())).await;
    let many: Vec<_> = (0..20).map(|n| format!("ahp-session:/{n}")).collect();
    let (ours, theirs) = memory::pair(1);
    let failed = client.initialize(ours, &many).await.unwrap_err();
    let ClientError::TooLarge(error) = &failed else {
        panic!("{failed}");
    };
    assert_eq!((error.max_frame_bytes, error.chunking), (400, false));
    assert!(error.message_bytes > 600, "{failed}");
    // No frame of the refused handshake was sent.
    assert!(Raw::new(theirs).frame().await.is_err());
    drop(host);
}

/// -32011 is also the host's code for "conflict"; only `data.reason` tells the two apart.
#[tokio::test(start_paused = true)]
async fn the_hosts_too_large_is_told_apart_from_a_conflict() {
    let (client, mut host) = start(ClientConfig::new("c"), None).await;
    for (error, expected) in [
        (
            r#"{"code":-32011,"message":"m","data":{"reason":"messageTooLarge","messageBytes":5000000,"maxFrameBytes":900000,"maxMessageBytes":4000000,"chunking":true}}"#,
            "message too large: 5000000 bytes, and the receiver takes 4000000; send less or raise its maxIncomingMessageBytes",
        ),
        (
            r#"{"code":-32011,"message":"Conflict","data":{"etag":"x"}}"#,
            "the host answered with error -32011: Conflict",
        ),
        (
            r#"{"code":-32011,"message":"Conflict"}"#,
            "the host answered with error -32011: Conflict",
        ),
    ] {
        let script = async {
            let id = super::scripted::id_of(&host.hear().await);
            host.say(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
                .await;
        };
        let (answer, ()) = tokio::join!(client.request("resourceWrite", None), script);
        let answer = answer.unwrap_err();
        assert_eq!(answer.to_string(), expected);
        if let ClientError::Rpc(told) = answer {
            assert_eq!(told.json, error);
        }
    }
}

/// This client's answer is too large: the host gets an error, and so does the application.
#[tokio::test(start_paused = true)]
async fn an_answer_of_ours_that_is_too_large_becomes_an_error() {
    let mut config = ClientConfig::new("c");
    config.connection.cap = Cap::frame(1000);
    let (client, mut host) = start(config, None).await;
    next(&client).await;
    host.say(r#"{"jsonrpc":"2.0","id":9,"method":"resourceRead"}"#)
        .await;
    let Some(Event::Request(request)) = client.next().await else {
        panic!("no question");
    };
    let told = request.answer(raw(&sized(2000))).await.unwrap_err();
    assert!(matches!(told, ClientError::TooLarge(_)));
    assert_eq!(
        host.hear().await,
        r#"{"jsonrpc":"2.0","id":9,"error":{"code":-32011,"message":"message too large: 2034 bytes, one frame holds 1000 and the receiver takes no segments; send less or let it advertise capabilities.chunking","data":{"reason":"messageTooLarge","messageBytes":2034,"maxFrameBytes":1000,"maxMessageBytes":1000,"chunking":false}}}"#
    );
}

/// Megabytes both ways at once over a path of small frames.
#[tokio::test(start_paused = true)]
async fn large_messages_travel_in_pieces_both_ways_at_once() {
    let frame = 9_000;
    let mut config = ClientConfig::new("c");
    let chunking = Chunking {
        max_frame_bytes: frame,
        ..Chunking::default()
    };
    config.connection.chunking = chunking;
    config.connection.cap = Cap::frame(frame as usize);
    let client = Client::new(config);
    let config = Config::default().with(|config| {
        config.chunking = chunking;
        config.cap = Cap::frame(frame as usize);
    });
    let (ours, theirs) = memory::pair(1);
    let host = Scripted::new(theirs, config);
    let state = sized(5 << 20);
    let script = async {
        let request = host.hear().await;
        host.say(welcome(&request, 1, &state, Some(&chunking)));
    };
    let (initialized, ()) = tokio::join!(client.initialize(ours, &["ahp-root://"]), script);
    let initialized = initialized.unwrap();
    assert_eq!(initialized.snapshots.iter().next().unwrap().state, &*state);
    drop(initialized);
    let Some(Event::Snapshot(snapshot)) = client.next().await else {
        panic!("no state");
    };
    assert_eq!(snapshot.state, &*state);

    let large = sized(6 << 20);
    let (up, down) = (3, 3);
    let host_side = async {
        for seq in 0..down {
            host.say(action(2 + seq, &large[1..large.len() - 1]));
        }
        for seq in 1..=up {
            let heard = host.hear().await;
            assert!(heard.ends_with(&format!(r#""clientSeq":{seq}}}}}"#)));
            assert_eq!(heard.len(), large.len() + 102);
        }
    };
    let client_side = async {
        for seq in 1..=up {
            let sent = client.dispatch("ahp-root://", raw(&large)).await;
            assert_eq!(sent.unwrap(), seq);
        }
        for seq in 0..down {
            let Some(Event::Action(action)) = client.next().await else {
                panic!("no action");
            };
            assert_eq!(action.seq, 2 + seq);
            assert!(action.action.contains(&*large));
        }
    };
    tokio::join!(host_side, client_side);
}
