//! Tests of a log on NATS JetStream that several hosts share: all have one history, and any of them
//! answers a client that reconnects.

#![cfg(feature = "jetstream")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use breakbulk_ahp::host::{Applied, State};
use breakbulk_ahp::log::{self, Entry, Limits, LogError, NatsLog, Replay, ReplayLog};
use breakbulk_ahp::{Application, Client, ClientConfig, Event, Host, HostConfig, Resumed};
use breakbulk_net::memory;
use breakbulk_testkit::nats::NatsCluster;
use serde_json::value::RawValue;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

const CHANNEL: &str = "ahp-root://";
const PAYLOAD: usize = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(30);

fn entry(seq: i64, size: usize) -> Entry {
    let text = format!(
        r#"{{"channel":"c","action":"{}","serverSeq":{seq}}}"#,
        "x".repeat(size)
    );
    Entry::new(seq, "c", text)
}

async fn open(cluster: &NatsCluster) -> NatsLog {
    let limits = Limits::default();
    NatsLog::open(&cluster.stream("LOG"), limits).await.unwrap()
}

/// Appends as a host does: on a thread that may wait.
async fn append(mut log: NatsLog, batch: Vec<Entry>) -> (NatsLog, Result<(), LogError>) {
    let appending = spawn_blocking(move || {
        let appended = log.append(&batch);
        (log, appended)
    });
    appending.await.unwrap()
}

fn all(log: &NatsLog) -> Vec<Entry> {
    match log.since(0, i64::MAX, &|_| true, usize::MAX).unwrap() {
        Replay::Actions(actions) => actions,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_stored_in_pieces_and_read_again_by_another_host() {
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let log = open(&cluster).await;
    assert_eq!(log.last(), 0);
    let batch = vec![entry(1, 10), entry(2, 5 * PAYLOAD), entry(3, 0)];
    let (log, appended) = append(log, batch.clone()).await;
    appended.unwrap();
    assert_eq!((log.last(), all(&log)), (3, batch.clone()));
    let (log, appended) = append(log, vec![entry(3, 0)]).await;
    assert!(matches!(
        appended,
        Err(LogError::OutOfOrder { last: 3, got: 3 })
    ));
    let (log, appended) = append(log, vec![entry(4, 0), entry(6, 0)]).await;
    assert!(matches!(
        appended,
        Err(LogError::OutOfOrder { last: 4, got: 6 })
    ));
    let other = open(&cluster).await;
    assert_eq!((other.last(), all(&other)), (3, batch));
    // A batch may skip numbers; for every host the actions before it are then gone.
    let (log, appended) = append(log, vec![entry(9, 1)]).await;
    appended.unwrap();
    for log in [log, open(&cluster).await] {
        let gone = log.since(3, i64::MAX, &|_| true, usize::MAX).unwrap();
        assert_eq!(gone, Replay::Gone { from: 8, last: 9 });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_was_overtaken_learns_it_and_goes_on_after_the_other() {
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let (one, mut two) = (open(&cluster).await, open(&cluster).await);
    let (one, appended) = append(one, vec![entry(1, 10), entry(2, 2 * PAYLOAD)]).await;
    appended.unwrap();
    let (back, appended) = append(two, vec![entry(1, 3 * PAYLOAD)]).await;
    two = back;
    assert!(
        matches!(appended, Err(LogError::Overtaken { .. })),
        "{appended:?}"
    );
    assert_eq!(two.last(), 0, "it has nothing of its own");
    let others = timeout(PATIENCE, two.others()).await.unwrap().unwrap();
    assert_eq!(others, [entry(1, 10), entry(2, 2 * PAYLOAD)]);
    let (two, appended) = append(two, vec![entry(3, 3 * PAYLOAD)]).await;
    appended.unwrap();
    let mut one = one;
    assert_eq!(
        timeout(PATIENCE, one.others()).await.unwrap().unwrap(),
        [entry(3, 3 * PAYLOAD)]
    );
    assert_eq!(all(&one), all(&two));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_emptied_is_refused_since_its_numbers_are_lost() {
    // JET-5
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let (log, appended) = append(open(&cluster).await, vec![entry(1, 1)]).await;
    appended.unwrap();
    drop(log);
    let client = async_nats::connect(cluster.servers()).await.unwrap();
    let stream = async_nats::jetstream::new(client);
    let stream = stream.get_stream("LOG").await.unwrap();
    stream.purge().await.unwrap();
    let error = NatsLog::open(&cluster.stream("LOG"), Limits::default()).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("its 1 messages were deleted"), "{error}");
}

#[tokio::test]
async fn one_text_says_where_a_log_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log.redb");
    let log = log::open(file.to_str().unwrap(), Limits::default())
        .await
        .unwrap();
    assert!(file.exists() && !log.is_shared());
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let log = log::open(&cluster.stream("LOG"), Limits::default())
        .await
        .unwrap();
    assert!(log.is_shared());
    let wrong = log::open("nats://127.0.0.1/a.b", Limits::default()).await;
    assert!(wrong.is_err_and(|error| error.to_string().contains("the name of a stream")));
}

/// An application that remembers the actions applied.
#[derive(Default)]
struct Notes(Mutex<Vec<(i64, String)>>);

impl Application for Notes {
    fn snapshot(&self, channel: &str) -> Option<State> {
        let state = RawValue::from_string(self.0.lock().unwrap().len().to_string()).ok()?;
        (channel == CHANNEL).then(|| State::new(state))
    }

    fn apply(&self, action: &Applied<'_>) {
        let mut notes = self.0.lock().unwrap();
        notes.push((action.seq, action.action.to_owned()));
    }
}

async fn host(cluster: &NatsCluster) -> Host<Notes> {
    host_with(cluster, Limits::default()).await
}

async fn host_with(cluster: &NatsCluster, limits: Limits) -> Host<Notes> {
    let log = NatsLog::open(&cluster.stream("LOG"), limits).await.unwrap();
    Host::new(Notes::default(), log, HostConfig::default())
}

fn action(host: usize, number: usize) -> Box<RawValue> {
    let text = format!(
        r#"{{"host":{host},"number":{number},"text":"{}"}}"#,
        "y".repeat(number * 997 % (3 * PAYLOAD))
    );
    RawValue::from_string(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_publish_at_the_same_time_have_one_history() {
    // JET-3
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let hosts = Arc::new([
        host(&cluster).await,
        host(&cluster).await,
        host(&cluster).await,
    ]);
    let each = 60;
    let publishing: Vec<_> = (0..hosts.len())
        .map(|number| {
            let hosts = hosts.clone();
            tokio::spawn(async move {
                let host = &hosts[number];
                for count in 0..each {
                    let seq = host.publish(CHANNEL, &action(number, count), None).unwrap();
                    if count % 3 == 0 {
                        host.visible(seq).await.unwrap();
                        // This action itself is visible, not merely as many actions of others.
                        let notes = host.app().0.lock().unwrap();
                        let text = action(number, count);
                        assert!(notes.iter().any(|(_, note)| note == text.get()));
                    }
                }
            })
        })
        .collect();
    for publishing in publishing {
        publishing.await.unwrap();
    }
    let total = (each * hosts.len()) as i64;
    let mut histories = Vec::new();
    for host in hosts.iter() {
        timeout(PATIENCE, host.visible(total))
            .await
            .unwrap()
            .unwrap();
        histories.push(host.app().0.lock().unwrap().clone());
    }
    let seqs: Vec<i64> = histories[0].iter().map(|(seq, _)| *seq).collect();
    assert_eq!(seqs, (1..=total).collect::<Vec<_>>());
    for number in 0..hosts.len() {
        let own = histories[0].iter().map(|(_, text)| text.as_str());
        let begins = format!(r#"{{"host":{number},"#);
        let own: Vec<&str> = own.filter(|text| text.starts_with(&begins)).collect();
        let expected: Vec<_> = (0..each).map(|count| action(number, count)).collect();
        let expected: Vec<&str> = expected.iter().map(|text| text.get()).collect();
        assert_eq!(own, expected, "in the order of its host");
    }
    assert!(histories.iter().all(|history| *history == histories[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_goes_on_at_any_host() {
    // JET-4
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let hosts = [host(&cluster).await, host(&cluster).await];
    let client = Client::new(ClientConfig::new("c"));
    let mut seen = Vec::new();
    for turn in 0..8 {
        let (mine, theirs) = memory::pair(8);
        let host = &hosts[turn % 2];
        let serving = tokio::spawn(host.serve(theirs));
        if turn == 0 {
            client.initialize(mine, &[CHANNEL]).await.unwrap();
        } else {
            let resumed = client.reconnect(mine).await.unwrap();
            assert!(
                matches!(resumed, Resumed::Replay { .. }),
                "{turn}: a snapshot"
            );
        }
        // One action at the client's current host, which the client sees before the other host does.
        host.publish(CHANNEL, &action(turn % 2, turn), None)
            .unwrap();
        let mut actions = 0;
        while actions < 1 + usize::from(turn > 0) {
            match timeout(PATIENCE, client.next()).await.unwrap().unwrap() {
                Event::Action(action) => {
                    seen.push(action.seq);
                    actions += 1;
                }
                Event::Disconnected { .. } => panic!("disconnected"),
                _ => {}
            }
        }
        // And one that the client misses while it is disconnected.
        client.close(1000, "");
        serving.await.unwrap();
        while client.next().await.is_some() {}
        hosts[(turn + 1) % 2]
            .publish(CHANNEL, &action(9, turn), None)
            .unwrap();
    }
    assert_eq!(seen, (1..=15).collect::<Vec<i64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_was_away_for_longer_than_the_log_reaches_gets_a_snapshot() {
    // JET-5
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let limits = Limits::default().with(|limits| limits.count = 4);
    let hosts = [
        host_with(&cluster, limits).await,
        host_with(&cluster, limits).await,
    ];
    let client = Client::new(ClientConfig::new("c"));
    let (mine, theirs) = memory::pair(8);
    let serving = tokio::spawn(hosts[0].serve(theirs));
    client.initialize(mine, &[CHANNEL]).await.unwrap();
    client.close(1000, "");
    serving.await.unwrap();
    while client.next().await.is_some() {}
    let mut last = 0;
    for count in 0..9 {
        last = hosts[0].publish(CHANNEL, &action(0, count), None).unwrap();
    }
    // The other host learns of the actions only through the stream.
    timeout(PATIENCE, hosts[1].visible(last))
        .await
        .unwrap()
        .unwrap();
    let (mine, theirs) = memory::pair(8);
    let _serving = tokio::spawn(hosts[1].serve(theirs));
    let resumed = client.reconnect(mine).await.unwrap();
    assert!(matches!(resumed, Resumed::Snapshot(_)), "{resumed:?}");
}
