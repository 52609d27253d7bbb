//! Calls that are given up, in every state: later calls still get their own answers.

use std::time::Duration;

use breakbulk_tywrap::{Breach, CallError};

use super::common::{Flag, host, ordinary};

const SHORT: Option<Duration> = Some(Duration::from_millis(100));

#[tokio::test]
async fn a_timeout_within_a_hundred_frames_mixes_nothing_up() {
    let host = host(|_| ());
    host.start().await.unwrap();
    let flag = Flag::new();
    let limit = Some(Duration::from_secs(1));
    let late = host
        .call_within(limit, "t", "tail", flag.args(",10000,100"), None)
        .await;
    assert!(matches!(late, Err(CallError::TimedOut { .. })), "{late:?}");
    flag.half().await;
    assert!(host.is_busy());
    flag.raise();
    ordinary(&host, 1000).await;
    assert!(!host.is_busy(), "the rest of the answer came by");
    assert_eq!(host.starts(), 1);
}

#[tokio::test]
async fn a_dropped_call_mixes_nothing_up() {
    let host = host(|_| ());
    let flag = Flag::new();
    tokio::select! {
        biased;
        outcome = host.call("t", "tail", flag.args(",10000,100"), None) => panic!("{outcome:?}"),
        () = flag.half() => {}
    }
    assert!(host.is_busy());
    flag.raise();
    host.settled().await;
    assert!(!host.is_busy());
    ordinary(&host, 1000).await;
    assert_eq!(host.starts(), 1);
}

#[tokio::test]
async fn calls_that_are_dropped_at_any_moment_mix_nothing_up() {
    let host = host(|_| ());
    host.start().await.unwrap();
    for round in 0..200 {
        let text = format!("[\"{}\"]", "x".repeat(round * 50));
        let call = host.call("t", "echo", text, None);
        // After this many turns of the runtime the call is dropped.
        let turns = async {
            for _ in 0..round % 40 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = turns => {}
            outcome = call => drop(outcome.unwrap()),
        }
        ordinary(&host, 2).await;
    }
    assert_eq!(host.starts(), 1);
}

#[tokio::test]
async fn many_late_calls_are_answered_to_nobody() {
    let host = host(|_| ());
    host.start().await.unwrap();
    let flag = Flag::new();
    let calls = (0..20).map(|_| {
        let (host, args) = (host.clone(), flag.args(""));
        tokio::spawn(async move { host.call_within(SHORT, "t", "wait", args, None).await })
    });
    for call in calls.collect::<Vec<_>>() {
        let outcome = call.await.unwrap();
        assert!(matches!(outcome, Err(CallError::TimedOut { .. })));
    }
    flag.raise();
    ordinary(&host, 100).await;
    assert_eq!(host.starts(), 1);
}

#[tokio::test]
async fn a_late_answer_is_held_to_no_limit_since_nothing_of_it_is_kept() {
    let host = host(|config| config.limits.message = 20_000);
    host.start().await.unwrap();
    let flag = Flag::new();
    let args = flag.args(",100000");
    let late = host.call_within(SHORT, "t", "wait", args, None).await;
    assert!(matches!(late, Err(CallError::TimedOut { .. })), "{late:?}");
    flag.raise();
    ordinary(&host, 100).await;
    assert_eq!(host.starts(), 1);
}

// TYWRAP-5, TYWRAP-7
#[tokio::test]
async fn a_bridge_that_reads_nothing_more_is_killed_after_a_grace() {
    let host = host(|_| ());
    let pid = host.call("t", "deaf", "[]", None).await.unwrap();
    let pid: u64 = pid.json().parse().unwrap();
    // More than a pipe buffers.
    let large = format!("[\"{}\"]", "x".repeat(1 << 20));
    let limit = Some(Duration::from_secs(1));
    let late = host
        .call_within(limit, "t", "size", large.clone(), None)
        .await;
    assert!(matches!(late, Err(CallError::TimedOut { .. })), "{late:?}");
    assert!(host.is_busy(), "a line is stuck");
    // The call behind it has not been sent, and goes to the next bridge.
    assert_eq!(
        host.call("t", "size", large, None).await.unwrap().json(),
        (1 << 20).to_string()
    );
    assert_eq!(host.starts(), 2);
    super::common::gone(pid).await;
    ordinary(&host, 1000).await;
}

// TYWRAP-7
#[tokio::test]
async fn a_call_that_is_at_work_is_not_killed_for_one_that_waits() {
    let host = host(|config| config.grace = Duration::from_millis(20));
    let flag = Flag::new();
    let first = tokio::spawn({
        let (host, args) = (host.clone(), flag.args(""));
        async move { host.call("t", "wait", args, None).await }
    });
    flag.half().await;
    // The second call waits for the first, and must not get the bridge killed.
    let large = format!("[\"{}\"]", "x".repeat(1 << 20));
    let late = host.call_within(SHORT, "t", "size", large, None).await;
    assert!(matches!(late, Err(CallError::TimedOut { .. })), "{late:?}");
    // While a third call waits in vain, several times the grace period passes.
    let late = host.call_within(SHORT, "t", "pid", "[]", None).await;
    assert!(matches!(late, Err(CallError::TimedOut { .. })), "{late:?}");
    flag.raise();
    assert_eq!(first.await.unwrap().unwrap().json(), "\"waited\"");
    ordinary(&host, 100).await;
    assert_eq!(host.starts(), 1);
}

#[tokio::test]
async fn prints_are_skipped_where_they_may_be() {
    let tolerant = host(|config| config.tolerant = true);
    for line in ["hello", "[1, 2]", "{\"a\": 1}", "{\"id\": 1}", "{", "7"] {
        let args = serde_json::json!([line]).to_string();
        let printed = tolerant.call("t", "print", args, None).await.unwrap();
        assert_eq!(printed.json(), "\"printed\"", "{line}");
    }
    ordinary(&tolerant, 1000).await;
    assert_eq!(tolerant.starts(), 1);

    let strict = host(|_| ());
    for round in 1..4 {
        let polluted = strict.call("t", "print", "[\"hello\"]", None).await;
        let Err(CallError::Breach { breach, .. }) = polluted else {
            panic!("{polluted:?}")
        };
        let line = "hello".to_owned();
        assert_eq!(breach, Breach::Pollution { line });
        ordinary(&strict, 300).await;
        assert_eq!(strict.starts(), round + 1);
    }
}
