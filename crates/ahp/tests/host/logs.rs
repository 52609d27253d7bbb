//! No action is visible before it is in the log, and none if the log fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use breakbulk_ahp::log::{Entry, LogError, MemoryLog, ReplayLog, ReplayReader};
use breakbulk_ahp::{Host, PublishError};
use breakbulk_message::ahp::Chunking;
use breakbulk_testkit::log::{Level, Log};

use super::common::*;

/// A log that fails at its n-th batch, or waits for a signal before each.
struct Odd {
    log: MemoryLog,
    fails_at: usize,
    gate: Option<mpsc::Receiver<()>>,
    batches: Arc<Mutex<Vec<usize>>>,
}

impl ReplayLog for Odd {
    fn last(&self) -> i64 {
        self.log.last()
    }
    fn append(&mut self, batch: &[Entry]) -> Result<(), LogError> {
        let mut batches = self.batches.lock().unwrap();
        batches.push(batch.len());
        let number = batches.len();
        drop(batches);
        if let Some(gate) = &self.gate {
            gate.recv().unwrap();
        }
        if number == self.fails_at {
            return Err(LogError::Failed {
                log: "odd".to_owned(),
            });
        }
        self.log.append(batch)
    }
    fn reader(&self) -> Arc<dyn ReplayReader> {
        self.log.reader()
    }
    fn blocks(&self) -> bool {
        self.gate.is_some()
    }
}

fn odd(fails_at: usize) -> Odd {
    Odd {
        log: MemoryLog::default(),
        fails_at,
        gate: None,
        batches: Arc::default(),
    }
}

// AHP-5
#[tokio::test(start_paused = true)]
async fn a_log_that_fails_ends_the_host_and_shows_nothing() {
    let log = Log::capture();
    let host = Host::new(Board::with(&[ROOT, CHAT]), odd(2), config());
    let client = Client::new(&host);
    client.initialize("c", r#""ahp-root://""#).await;
    publish(&host, ROOT, "1").await;
    assert_eq!(client.hear().await, action(ROOT, "1", 1));
    for number in 2..=4 {
        assert_eq!(host.publish(ROOT, &raw("0"), None), Ok(number));
    }
    let failed = host.visible(2).await.unwrap_err();
    assert!(matches!(failed, PublishError::Failed { .. }));
    assert_eq!(
        failed.to_string(),
        "the host takes no more actions: the replay log odd takes nothing after a failed append: open it again, it then tells which action is its last"
    );
    assert_eq!(host.publish(ROOT, &raw("0"), None), Err(failed));
    let error = [
        "the host has failed: no further action is accepted or sent",
        "takes nothing after a failed append",
    ];
    log.assert_line(Level::ERROR, &error);
    assert_eq!((host.visible(1).await, host.last_visible()), (Ok(()), 1));
    assert_eq!(*host.app().applied.lock().unwrap(), [1]);
    for client in [client, Client::new(&host)] {
        let closed = client.closed().await;
        assert_eq!(
            (closed.code, &*closed.reason),
            (
                1011,
                "the host's replay log has failed: ask the operator of the host"
            )
        );
    }
}

// AHP-12
#[tokio::test(start_paused = true)]
async fn settings_that_no_client_would_believe_are_refused() {
    let sound = connection_config().chunking;
    for (chunking, words) in [
        (
            Chunking {
                max_frame_bytes: 0,
                ..sound
            },
            "chunking.max_frame_bytes is 0, so that nothing could be received; raise it",
        ),
        (
            Chunking {
                max_groups: Some(0),
                ..sound
            },
            "chunking.max_groups is 0, so that nothing could be received; raise it",
        ),
        (
            Chunking {
                group_timeout_ms: Some(0),
                ..sound
            },
            "chunking.group_timeout_ms is 0, so that nothing could be received; raise it",
        ),
        (
            Chunking {
                max_message_bytes: 999,
                ..sound
            },
            "chunking.max_message_bytes is 999, less than max_frame_bytes, which is 1000; raise the one or lower the other",
        ),
    ] {
        let connection = connection_config().with(|config| config.chunking = chunking);
        assert_eq!(connection.check().unwrap_err().to_string(), words);
        let host = host(config().with(|it| it.connection = connection));
        let refused = host.publish(ROOT, &raw("0"), None).unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("the host takes no more actions: {words}")
        );
        assert_eq!(host.visible(1).await, Err(refused));
        let closed = Client::new(&host).closed().await;
        assert_eq!(
            (closed.code, &*closed.reason),
            (1011, "the host has invalid settings: ask its operator")
        );
        assert!(host.shutdown().await.is_some(), "the log comes back");
    }
    assert_eq!(connection_config().check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn an_application_that_panics_under_an_action_ends_the_host() {
    let host = host(config());
    let seq = host.publish(ROOT, &raw(r#""panic""#), None).unwrap();
    let failed = host.visible(seq).await.unwrap_err();
    assert!(failed.to_string().contains("panicked"), "{failed}");
    assert_eq!(Client::new(&host).closed().await.code, 1011);
}

// AHP-5
#[tokio::test]
async fn nothing_is_told_before_it_is_in_the_log_and_the_rest_goes_in_one_batch() {
    let (open, gate) = mpsc::channel();
    let log = Odd {
        gate: Some(gate),
        ..odd(0)
    };
    let batches = log.batches.clone();
    let host = Host::new(Board::with(&[ROOT, CHAT]), log, config());
    let client = Client::new(&host);
    client.initialize("c", r#""ahp-root://""#).await;
    host.publish(ROOT, &raw("1"), None).unwrap();
    while batches.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    for number in 2..=100 {
        host.publish(ROOT, &raw(&number.to_string()), None).unwrap();
    }
    // The log has the first action but has not stored it: nobody can see it yet.
    let other = Client::new(&host).initialize("d", r#""ahp-root://""#).await;
    assert!(other.contains(r#""serverSeq":0,"snapshots":[{"resource":"ahp-root://","state":[]"#));
    let ping = r#"{"jsonrpc":"2.0","id":5,"method":"who","params":{}}"#;
    assert_eq!(
        client.ask(ping).await,
        r#"{"jsonrpc":"2.0","id":5,"result":"c"}"#
    );
    open.send(()).unwrap();
    open.send(()).unwrap();
    for number in 1..=100 {
        assert_eq!(
            client.hear().await,
            action(ROOT, &number.to_string(), number)
        );
    }
    assert_eq!(*batches.lock().unwrap(), [1, 99]);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_shows_what_was_published_and_the_next_life_goes_on() {
    let first = host(config());
    let client = Client::new(&first);
    client.initialize("c", r#""ahp-chat:/a""#).await;
    for number in 1..=3 {
        first
            .publish(CHAT, &raw(&number.to_string()), None)
            .unwrap();
    }
    let log = first.shutdown().await.unwrap();
    assert_eq!(
        first.publish(CHAT, &raw("0"), None),
        Err(PublishError::ShutDown)
    );
    assert!(first.shutdown().await.is_none());
    for number in 1..=3 {
        assert_eq!(
            client.hear().await,
            action(CHAT, &number.to_string(), number)
        );
    }
    let closed = client.closed().await;
    assert_eq!(
        (closed.code, &*closed.reason),
        (1001, "the host is shut down: reconnect later")
    );
    assert_eq!(Client::new(&first).closed().await.code, 1001);

    let second = Host::boxed(Board::default(), log, config());
    second.app().open(CHAT, &["1", "2", "3"]);
    let client = Client::new(&second);
    assert_eq!(
        client.ask(reconnect("c", 1, r#""ahp-chat:/a""#, "")).await,
        format!(
            r#"{{"jsonrpc":"2.0","id":2,"result":{{"type":"replay","actions":[{},{}],"missing":[]}}}}"#,
            envelope(CHAT, "2", 2),
            envelope(CHAT, "3", 3)
        )
    );
    assert_eq!(publish(&second, CHAT, "4").await, 4);
    assert_eq!(client.hear().await, action(CHAT, "4", 4));
}

/// A host without a log on disk starts above the numbers that it used before it was restarted: clients
/// get a snapshot, never other actions under the same numbers.
#[tokio::test(start_paused = true)]
async fn a_life_without_the_log_of_the_former_one_begins_above_it() {
    let host = host(config().with(|it| it.start_after = 1000));
    assert_eq!(publish(&host, CHAT, "1").await, 1001);
    let chat = r#"{"resource":"ahp-chat:/a","state":[1],"fromSeq":1001}"#;
    for seen in [3, 999] {
        assert_eq!(
            Client::new(&host)
                .ask(reconnect("c", seen, r#""ahp-chat:/a""#, ""))
                .await,
            format!(
                r#"{{"jsonrpc":"2.0","id":2,"result":{{"type":"snapshot","snapshots":[{chat}]}}}}"#
            )
        );
    }
}

#[tokio::test(start_paused = true)]
async fn with_the_last_handle_the_log_is_let_go() {
    struct Told(MemoryLog, Arc<AtomicUsize>, Arc<tokio::sync::Notify>);
    impl ReplayLog for Told {
        fn last(&self) -> i64 {
            self.0.last()
        }
        fn append(&mut self, batch: &[Entry]) -> Result<(), LogError> {
            self.1.fetch_add(batch.len(), Ordering::Relaxed);
            self.0.append(batch)
        }
        fn reader(&self) -> Arc<dyn ReplayReader> {
            self.0.reader()
        }
        fn blocks(&self) -> bool {
            false
        }
    }
    impl Drop for Told {
        fn drop(&mut self) {
            self.2.notify_one();
        }
    }
    let (count, dropped) = (Arc::<AtomicUsize>::default(), Arc::default());
    let log = Told(MemoryLog::default(), count.clone(), Arc::clone(&dropped));
    let host = Host::new(Board::with(&[ROOT]), log, config());
    host.publish(ROOT, &raw("1"), None).unwrap();
    drop(host);
    dropped.notified().await;
    assert_eq!(count.load(Ordering::Relaxed), 1);
}
