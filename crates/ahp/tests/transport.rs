//! The client of the crate `ahp` over a path of small frames.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "ahp-client")]

#[path = "client/scripted.rs"]
mod scripted;

use std::time::Duration;

use ahp::hosts::{HostConfig, HostEvent, MultiHostClient};
use ahp::{Client, ClientConfig, SubscriptionEvent, Transport as _, TransportMessage};
use ahp_types::actions::StateAction;
use breakbulk_ahp::Config;
use breakbulk_ahp::foreign::Sessions;
use breakbulk_ahp::transport::{Factory, Segmenting};
use breakbulk_link::Cap;
use breakbulk_message::ahp::Chunking;
use breakbulk_net::memory::{self, Memory};
use scripted::{Raw, Scripted, id_of};
use tokio::sync::mpsc;

const FRAME: usize = 9_000;

fn config() -> Config {
    Config::default().with(|config| {
        config.cap = Cap::frame(FRAME);
        config.chunking = Chunking {
            max_frame_bytes: FRAME as u64,
            ..Chunking::default()
        };
    })
}

const ROOT: &str = r#"{"agents":[]}"#;

fn welcome(request: &str, seq: i64) -> String {
    scripted::welcome(request, seq, ROOT, Some(&config().chunking))
}

fn title(text: &str) -> StateAction {
    let action = serde_json::json!({"type":"session/titleChanged","title":text});
    serde_json::from_value(action).unwrap()
}

/// An action that the real client can read.
fn params(seq: i64, title: &str) -> String {
    format!(
        r#"{{"channel":"ahp-root://","action":{{"type":"session/titleChanged","title":"{title}"}},"serverSeq":{seq}}}"#
    )
}

fn action(seq: i64, title: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"action","params":{}}}"#,
        params(seq, title)
    )
}

fn listed(request: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"items":[]}}}}"#,
        id_of(request)
    )
}

#[tokio::test(start_paused = true)]
async fn the_real_client_speaks_in_megabytes_over_frames_of_nine_kilobytes() {
    let (ours, theirs) = memory::pair(1);
    let host = Scripted::new(theirs, config());
    let transport = Segmenting::over(ours, config(), Sessions::default()).unwrap();
    let client = Client::connect(transport, ClientConfig::default())
        .await
        .unwrap();
    let script = async {
        let request = host.hear().await;
        assert!(request.contains(r#""capabilities":{"chunking":{"maxIncomingFrameBytes":9000,"#));
        host.say(welcome(&request, 1));
    };
    let versions = vec!["1.0.0".to_owned()];
    let channels = vec!["ahp-root://".to_owned()];
    let (initialized, ()) = tokio::join!(
        client.initialize("c".to_owned(), versions, channels),
        script
    );
    assert_eq!(initialized.unwrap().server_seq, 1);
    let mut root = client.attach_subscription("ahp-root://").await;

    // A state of 5 MB.
    let big = "x".repeat(5 << 20);
    let script = async {
        let request = host.hear().await;
        let id = id_of(&request);
        host.say(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"snapshot":{{"resource":"ahp-root:/big","state":{{"agents":[],"_meta":{{"big":"{big}"}}}},"fromSeq":1}}}}}}"#
        ));
    };
    let (subscribed, ()) = tokio::join!(client.subscribe("ahp-root:/big".to_owned()), script);
    let (result, _subscription) = subscribed.unwrap();
    let result = serde_json::to_string(&result).unwrap();
    assert!(result.contains(&big));

    // Three messages of 5 MB each way at once.
    let script = async {
        for seq in 2..5 {
            host.say(action(seq, &big));
        }
        for seq in 1..=3 {
            let heard = host.hear().await;
            assert!(heard.contains(&big) && heard.contains(&format!(r#""clientSeq":{seq}"#)));
        }
    };
    let calls = async {
        for _ in 0..3 {
            client
                .dispatch("ahp-root://".to_owned(), title(&big))
                .await
                .unwrap();
        }
        for seq in 2..5 {
            let Some(SubscriptionEvent::Action(action)) = root.recv().await else {
                panic!("no action");
            };
            assert_eq!(i64::try_from(action.server_seq).unwrap(), seq);
        }
    };
    tokio::join!(script, calls);

    // A request that is too large for the host is answered with an error, and the connection stays open.
    let huge = "x".repeat(33 << 20);
    let refused = client
        .request::<_, serde_json::Value>("m", [huge])
        .await
        .unwrap_err();
    let ahp::ClientError::Rpc(error) = refused else {
        panic!("{refused}");
    };
    assert_eq!(error.code, -32011);
    assert_eq!(
        serde_json::to_value(&error.data).unwrap()["reason"],
        "messageTooLarge"
    );
    let script = async {
        let id = id_of(&host.hear().await);
        host.say(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":null}}"#));
    };
    let (pong, ()) = tokio::join!(client.ping(), script);
    pong.unwrap();
    client.shutdown().await;
    assert_eq!(host.try_hear().await, None);
}

/// Both ends only send and do not receive, as the crate's client does while it sends: over small pipes,
/// with queues too small for all messages.
#[tokio::test(start_paused = true)]
async fn two_that_send_at_once_do_not_wait_for_each_other() {
    let small = config().with(|config| config.limits.queued_bytes = 1 << 20);
    let (left, right) = memory::pair(1);
    let sessions = Sessions::default();
    let mut client = Segmenting::over(left, small.clone(), sessions).unwrap();
    let host = Scripted::new(right, small);
    client.send(TransportMessage::Text(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"channel":"ahp-root://","clientId":"c","protocolVersions":["1"]}}"#.to_owned())).await.unwrap();
    let request = host.hear().await;
    host.say(welcome(&request, 0));
    client.recv().await.unwrap().unwrap();
    const EACH: usize = 4 << 20;
    let text = |seq: usize| {
        let title = "x".repeat(EACH);
        format!(r#"{{"jsonrpc":"2.0","method":"m","params":["{title}",{seq}]}}"#)
    };
    let up = async {
        for seq in 0..6 {
            client
                .send(TransportMessage::Text(text(seq)))
                .await
                .unwrap();
        }
    };
    let down = async {
        for seq in 0..6 {
            let message = breakbulk_link::Outgoing::new(text(seq));
            host.connection.send_when_writable(message).await.unwrap();
        }
    };
    // Neither end receives a message before all of its own are queued.
    tokio::join!(up, down);
    for seq in 0..6 {
        let Some(TransportMessage::Text(heard)) = client.recv().await.unwrap() else {
            panic!("no text");
        };
        assert!(heard == text(seq), "{seq}");
        assert!(host.hear().await == text(seq), "{seq}");
    }
}

/// Both queues stay full: `send` fails instead of waiting for ever.
#[tokio::test(start_paused = true)]
async fn a_send_that_can_never_go_on_fails() {
    let (ours, theirs) = memory::pair(1);
    let full = config().with(|config| config.limits.queued = 2);
    let mut client = Segmenting::over(ours, full, Sessions::default()).unwrap();
    let text = TransportMessage::Text(format!(r#"{{"a":"{}"}}"#, "x".repeat(8_000)));
    let began = tokio::time::Instant::now();
    let error = loop {
        if let Err(error) = client.send(text.clone()).await {
            break error;
        }
    };
    assert!(
        error.to_string().contains("no frame went out for 60 s")
            || error
                .to_string()
                .contains("nothing received from the other end for 60 s"),
        "{error}"
    );
    assert_eq!(began.elapsed(), Duration::from_secs(60));
    assert!(client.recv().await.is_err());
    assert!(client.recv().await.unwrap().is_none());
    drop(theirs);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_when_recv_is_dropped() {
    let (ours, theirs) = memory::pair(1);
    let mut client = Segmenting::over(ours, config(), Sessions::default()).unwrap();
    let mut host = Raw::new(theirs);
    let says = tokio::spawn(async move {
        for seq in 0..500 {
            host.say(format!(
                r#"{{"jsonrpc":"2.0","method":"m","params":[{seq}]}}"#
            ))
            .await;
            for _ in 0..seq % 3 {
                tokio::task::yield_now().await;
            }
        }
        host
    });
    let (mut heard, mut dropped) = (0, 0);
    while heard < 500 {
        tokio::select! {
            biased;
            message = client.recv() => {
                let Some(TransportMessage::Text(text)) = message.unwrap() else {
                    panic!("no text");
                };
                assert_eq!(text, format!(r#"{{"jsonrpc":"2.0","method":"m","params":[{heard}]}}"#));
                heard += 1;
            }
            () = tokio::task::yield_now() => dropped += 1,
        }
    }
    assert!(dropped > 100, "{dropped}");
    drop(client);
    let closed = says.await.unwrap().frame().await.unwrap_err();
    assert_eq!(closed.code, 1000);
}

/// The runtime for several hosts reconnects from the largest number that it saw. Only the transport knows
/// that a group was incomplete.
// AHP-17
#[tokio::test(start_paused = true)]
async fn the_real_runtime_gets_an_overtaken_action_after_a_drop() {
    let (opened, mut carriers) = mpsc::unbounded_channel::<Memory>();
    let factory = Factory::new(config(), move |_| {
        let (ours, theirs) = memory::pair(16);
        let gone = opened.send(theirs).is_err();
        async move {
            if gone {
                Err("the test is over")
            } else {
                Ok(ours)
            }
        }
    });
    let hosts = MultiHostClient::default();
    let mut told = hosts.events();
    let mut lifecycle = hosts.host_events();
    let config = HostConfig::new("h", "H", factory).with_client_id("c");
    let script = async {
        let mut host = Raw::new(carriers.recv().await.unwrap());
        let request = host.hear().await;
        host.say(welcome(&request, 420)).await;
        let request = host.hear().await;
        host.say(listed(&request)).await;
        // Half of 421, then 422.
        host.say(r#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":"g","index":0,"total":2,"data":"eyJq"}}"#).await;
        host.say(action(422, "b")).await;
        host
    };
    let (added, host) = tokio::join!(hosts.add_host(config), script);
    added.unwrap();
    let first = told.recv().await.unwrap();
    assert!(
        matches!(first.event, SubscriptionEvent::Action(action) if i64::try_from(action.server_seq).unwrap() == 422)
    );
    drop(host);
    let mut host = Raw::new(carriers.recv().await.unwrap());
    let request = host.hear().await;
    assert!(request.contains(r#""method":"reconnect""#), "{request}");
    assert!(request.contains(r#""lastSeenServerSeq":420"#), "{request}");
    let missed = [params(421, "a"), params(422, "b"), params(423, "c")];
    host.say(scripted::replay(&request, &missed)).await;
    let request = host.hear().await;
    host.say(listed(&request)).await;
    for seq in [421, 423] {
        let event = told.recv().await.unwrap();
        assert!(
            matches!(event.event, SubscriptionEvent::Action(action) if i64::try_from(action.server_seq).unwrap() == seq),
            "{seq}"
        );
    }
    while !matches!(
        lifecycle.recv().await.unwrap(),
        HostEvent::Connected { generation: 2, .. }
    ) {}
}
