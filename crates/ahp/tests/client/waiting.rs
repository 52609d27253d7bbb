use std::time::Duration;

use breakbulk_ahp::{Client, ClientConfig, Config};
use breakbulk_link::{Budget, Cap};
use breakbulk_message::ahp::Chunking;
use breakbulk_net::memory;
use tokio::time::{Instant, timeout};

use super::scripted::{Scripted, action, id_of, welcome};
use super::{connected, next};

/// A piece of a group that is never finished.
fn piece(index: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{{"groupId":"g","index":{index},"total":100,"data":"eHh4"}}}}"#
    )
}

// AHP-14
#[tokio::test(start_paused = true)]
async fn a_call_waits_for_as_long_as_pieces_come() {
    let mut config = ClientConfig::new("c");
    config.request_timeout = Some(Duration::from_secs(10));
    let (client, mut host) = connected(config).await;
    let began = Instant::now();
    let script = async {
        host.hear().await;
        for index in 0..5 {
            tokio::time::sleep(Duration::from_secs(9)).await;
            host.say(piece(index)).await;
        }
        // No further piece comes: the call times out 10 s after the last one.
        tokio::time::sleep(Duration::from_secs(100)).await;
    };
    tokio::select! {
        failed = client.request("slow", None) => assert_eq!(
            failed.unwrap_err().to_string(),
            "no answer to slow, and no piece of one, for 10 s; raise request_timeout, and make sure that the application calls next()"
        ),
        () = script => panic!("it never gave up"),
    }
    assert_eq!(began.elapsed(), Duration::from_secs(5 * 9 + 10));
    // The late answer belongs to no call and is ignored; the connection stays open.
    host.say(r#"{"jsonrpc":"2.0","id":2,"result":1}"#).await;
    let script = async {
        let id = id_of(&host.hear().await);
        host.say(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":null}}"#))
            .await;
    };
    let (pong, ()) = tokio::join!(client.ping(), script);
    pong.unwrap();
}

// AHP-14
#[tokio::test(start_paused = true)]
async fn small_messages_do_not_keep_a_call_waiting() {
    let mut config = ClientConfig::new("c");
    config.request_timeout = Some(Duration::from_secs(10));
    let (client, mut host) = connected(config).await;
    let began = Instant::now();
    let script = async {
        host.hear().await;
        for seq in 421.. {
            tokio::time::sleep(Duration::from_secs(3)).await;
            host.say(action(seq, "")).await;
        }
    };
    tokio::select! {
        failed = client.request("m", None) => drop(failed.unwrap_err()),
        () = script => {}
    }
    assert_eq!(began.elapsed(), Duration::from_secs(10));
}

/// An application that does not take its events makes the host wait, within the limits that the client
/// advertised, and loses nothing.
#[tokio::test(start_paused = true)]
async fn a_slow_application_stops_its_own_connection_and_loses_nothing() {
    let chunking = Chunking {
        max_frame_bytes: 9_000,
        max_message_bytes: 200_000,
        max_groups: Some(2),
        // After this long a host would give up a transfer and close the connection.
        group_timeout_ms: Some(600_000),
        ..Chunking::default()
    };
    let budget = Budget::new(1 << 30);
    let mut config = ClientConfig::new("c");
    config.connection.chunking = chunking;
    config.connection.budget = budget.clone();
    config.connection.options.silence = None;
    config.request_timeout = Some(Duration::from_secs(30));
    let limit = 2 * 250_000 + (8 << 20);
    let client = Client::new(config);
    let config = Config::default().with(|config| config.cap = Cap::frame(9_000));
    let (ours, theirs) = memory::pair(1);
    let host = Scripted::new(theirs, config);
    let script = async {
        let request = host.hear().await;
        host.say(welcome(&request, 0, "{}", None));
    };
    let (initialized, ()) = tokio::join!(client.initialize(ours, &["ahp-root://"]), script);
    drop(initialized.unwrap());
    let body = "x".repeat(150_000);
    for seq in 1..=200 {
        host.say(action(seq, &body));
    }
    // No further message fits: the client does not take all of the 30 MB.
    let drained = timeout(Duration::from_secs(20), host.connection.drained()).await;
    assert!(drained.is_err());
    let held = budget.used();
    assert!(held > limit - 500_000 && held <= limit, "{held}");
    // The client's own calls wait as well.
    assert!(
        client
            .ping()
            .await
            .unwrap_err()
            .to_string()
            .contains("next()")
    );
    assert_eq!(next(&client).await, "state of ahp-root:// at 0");
    for seq in 1..=200 {
        assert_eq!(next(&client).await, format!("action {seq}"));
        assert!(budget.used() <= limit);
    }
    host.connection.drained().await;
    assert_eq!(budget.used(), 0);
}

/// The path goes silent without closing: nothing arrives on either side.
#[tokio::test(start_paused = true)]
async fn a_silent_path_fails_the_open_calls() {
    let mut config = ClientConfig::new("c");
    // No time limit for calls, so that the keepalive ends the connection first.
    config.request_timeout = None;
    let (client, _silent) = connected(config).await;
    let began = Instant::now();
    let failed = client.request("m", None).await.unwrap_err();
    assert_eq!(
        failed.to_string(),
        "the connection ended with 1006 (nothing received from the other end for 60 s) before there was an answer; reconnect, and call again where that is safe"
    );
    assert_eq!(began.elapsed(), Duration::from_secs(60));
    assert_eq!(
        next(&client).await,
        r#"closed 1006 "nothing received from the other end for 60 s" unsent []"#
    );
}
