//! A journal on real NATS servers: every appended record is read by all readers, once and in order, whichever
//! server or writer is lost.

#![cfg(feature = "jetstream")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream;
use breakbulk_net::nats::journal::{AppendError, Journal, JournalOptions, News, Record, Tail};
use breakbulk_testkit::nats::NatsCluster;
use bytes::Bytes;
use tokio::time::timeout;

const PAYLOAD: usize = 16 << 10;

fn options(cluster: &NatsCluster) -> JournalOptions {
    JournalOptions::parse(&cluster.stream("JOURNAL")).unwrap()
}

/// Opens a journal, and reads the records that it has already.
async fn open(options: &JournalOptions) -> (Journal, Tail, Vec<Record>) {
    let (journal, mut tail) = Journal::open(options).await.unwrap();
    let mut before = Vec::new();
    loop {
        match next(&mut tail).await {
            News::Record(record) => before.push(record),
            News::CaughtUp { .. } => return (journal, tail, before),
            lost => panic!("{lost:?}"),
        }
    }
}

async fn next(tail: &mut Tail) -> News {
    let news = timeout(Duration::from_secs(30), tail.next());
    news.await.unwrap().unwrap()
}

async fn record(tail: &mut Tail) -> Record {
    match next(tail).await {
        News::Record(record) => record,
        other => panic!("{other:?}"),
    }
}

/// Bytes that depend on a number.
fn numbered(number: usize, size: usize) -> Bytes {
    let bytes: Vec<u8> = (0..size).map(|at| (number * 31 + at) as u8).collect();
    bytes.into()
}

#[tokio::test]
async fn records_of_any_size_are_read_by_all_and_by_those_who_come_later() {
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let options = options(&cluster);
    let (journal, mut tail, before) = open(&options).await;
    assert_eq!(before, []);
    let mut expected = Vec::new();
    let mut place = 0;
    for (number, size) in [0, 1, PAYLOAD, 10 * PAYLOAD + 7, 3].into_iter().enumerate() {
        let bytes = numbered(number, size);
        place = journal.append("t", place, bytes.clone()).await.unwrap();
        expected.push((place, bytes));
    }
    let mut read = Vec::new();
    for _ in 0..expected.len() {
        let record = record(&mut tail).await;
        assert_eq!(record.topic, "t");
        read.push((record.place, record.bytes));
    }
    assert_eq!(read, expected);
    let (_, _, before) = open(&options).await;
    let before: Vec<_> = before.into_iter().map(|r| (r.place, r.bytes)).collect();
    assert_eq!(before, expected);
}

#[tokio::test]
async fn of_two_writers_one_is_overtaken_and_there_is_one_history() {
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let options = options(&cluster);
    let (one, mut one_tail, _) = open(&options).await;
    let (two, mut two_tail, _) = open(&options).await;
    let first = one.append("t", 0, numbered(1, 9)).await.unwrap();
    let overtaken = two.append("t", 0, numbered(2, 3 * PAYLOAD)).await;
    let overtaken = overtaken.unwrap_err();
    assert!(
        matches!(overtaken, AppendError::Overtaken { after: 0, .. }),
        "{overtaken}"
    );
    assert_eq!(record(&mut two_tail).await.bytes, numbered(1, 9));
    let second = two
        .append("t", first, numbered(2, 3 * PAYLOAD))
        .await
        .unwrap();
    // A record on another topic does not matter.
    one.append("u", 0, numbered(3, 5)).await.unwrap();
    let one_again = one.append("t", first, numbered(4, 1)).await;
    assert!(matches!(one_again, Err(AppendError::Overtaken { .. })));
    one.append("t", second, numbered(4, 1)).await.unwrap();
    for tail in [&mut one_tail, &mut two_tail] {
        let mut sizes = Vec::new();
        while sizes.len() < 3 {
            let record = record(tail).await;
            if record.bytes != numbered(1, 9) {
                sizes.push((record.topic, record.bytes.len()));
            }
        }
        let expected = [("t", 3 * PAYLOAD), ("u", 5), ("t", 1)];
        assert_eq!(
            sizes,
            expected.map(|(topic, size)| (topic.to_owned(), size))
        );
    }
}

#[tokio::test]
async fn what_a_dead_writer_left_unfinished_is_invisible_and_cleaned_up_by_the_next() {
    // JET-1
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let options = options(&cluster);
    let (journal, mut tail, _) = open(&options).await;
    let first = journal.append("t", 0, numbered(1, 1)).await.unwrap();
    record(&mut tail).await;
    // Does what a writer does that dies after two of three pieces.
    let client = async_nats::connect(cluster.servers()).await.unwrap();
    let context = jetstream::new(client);
    let mut left = Vec::new();
    for index in 0..2 {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert(
            "Breakbulk-Piece",
            format!("dead-1 {index} 3 9 {}", first + index),
        );
        let sent = context.publish_with_headers("JOURNAL.t", headers, "abc".into());
        left.push(sent.await.unwrap().await.unwrap().sequence);
    }
    let second = journal.append("t", first, numbered(2, 2)).await.unwrap();
    assert_eq!(record(&mut tail).await.place, second);
    let stream = context.get_stream("JOURNAL").await.unwrap();
    let cleaned = async {
        while stream.get_info().await.unwrap().state.messages > 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), cleaned).await.unwrap();
    for message in left {
        assert!(stream.get_raw_message(message).await.is_err());
    }
    let (_, _, before) = open(&options).await;
    let before: Vec<_> = before.into_iter().map(|record| record.place).collect();
    assert_eq!(before, [first, second]);
}

#[tokio::test]
async fn a_topic_forgets_what_a_later_record_contains() {
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let options = options(&cluster);
    let (journal, mut tail, _) = open(&options).await;
    let mut place = 0;
    let mut useless = Vec::new();
    for number in 0..3 {
        place = journal
            .append("t", place, numbered(number, 3 * PAYLOAD))
            .await
            .unwrap();
        let record_of_t = record(&mut tail).await;
        assert_eq!(record_of_t.messages.len(), 4);
        if number < 2 {
            useless.extend(record_of_t.messages);
        }
        if number == 0 {
            journal.append("other", 0, numbered(9, 1)).await.unwrap();
            record(&mut tail).await;
        }
    }
    journal.forget(&useless).await.unwrap();
    // Deleting messages that are deleted already is no error.
    journal.forget(&useless).await.unwrap();
    let next = journal.append("t", place, numbered(5, 5)).await.unwrap();
    let (_, _, before) = open(&options).await;
    let before: Vec<_> = before.into_iter().map(|r| (r.topic, r.place)).collect();
    let topics: Vec<&str> = before.iter().map(|(topic, _)| topic.as_str()).collect();
    assert_eq!(topics, ["other", "t", "t"]);
    assert_eq!(before[2].1, next);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_topic_loses_what_another_one_forgets_when_servers_are_killed() {
    // JET-9
    let mut cluster = NatsCluster::start(3, PAYLOAD).await;
    let options = options(&cluster);
    let (journal, mut tail, _) = open(&options).await;
    let mut history = Vec::new();
    let mut useless = Vec::new();
    let mut last = BTreeMap::new();
    for (number, topic) in ["kept", "t", "t", "kept", "t", "kept"]
        .into_iter()
        .enumerate()
    {
        if number == 5 {
            // The deletion must not be the last entry that a killed server replays: the server would not know
            // that it was committed.
            journal.forget(&useless).await.unwrap();
        }
        let after = last.get(topic).copied().unwrap_or(0);
        let place = journal.append(topic, after, numbered(number, 2 * PAYLOAD));
        last.insert(topic, place.await.unwrap());
        let record = record(&mut tail).await;
        match number {
            1 | 2 => useless.extend(record.messages),
            _ => history.push(record.place),
        }
    }
    let servers = cluster.servers();
    let servers: Vec<&str> = servers.split(',').collect();
    let client = async_nats::connect(servers).await.unwrap();
    let context = jetstream::new(client);
    for server in 0..3 {
        cluster.kill(server);
        cluster.restart(server).await;
        until_all_replicas_are_current(&context).await;
    }
    let (_, _, found) = open(&options).await;
    let found: Vec<_> = found.into_iter().map(|record| record.place).collect();
    assert_eq!(found, history);
}

#[tokio::test]
async fn a_writer_does_not_go_on_behind_less_than_it_has_read() {
    // JET-9
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let mut options = options(&cluster);
    options.outage = Duration::from_secs(1);
    let (journal, mut tail, _) = open(&options).await;
    let place = journal.append("t", 0, numbered(1, 1)).await.unwrap();
    record(&mut tail).await;
    let client = async_nats::connect(cluster.servers()).await.unwrap();
    let stream = jetstream::new(client).get_stream("JOURNAL").await.unwrap();
    stream.purge().await.unwrap();
    let refused = journal.append("t", place, numbered(2, 1)).await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, AppendError::Outage { .. }), "{refused}");
    let reason = "the last message of its topic is 0, and 1 was stored";
    assert!(refused.to_string().contains(reason), "{refused}");
    let (_, _, found) = open(&options).await;
    assert_eq!(found, []);
}

/// Waits until the stream has a leader and all other servers have what the leader has.
async fn until_all_replicas_are_current(context: &jetstream::Context) {
    let current = async {
        loop {
            let stream = context.get_stream("JOURNAL").await;
            let cluster = stream.ok().and_then(|it| it.cached_info().cluster.clone());
            if cluster
                .is_some_and(|it| it.leader.is_some() && it.replicas.iter().all(|it| it.current))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(60), current).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_a_cluster_that_write_at_once_have_one_history() {
    // JET-1
    let cluster = NatsCluster::start(3, PAYLOAD).await;
    let options = options(&cluster);
    let (one, mut one_tail, _) = open(&options).await;
    let (two, mut two_tail, _) = open(&options).await;
    let (_, mut reader, _) = open(&options).await;
    let mut place = 0;
    for round in 0..40 {
        let size = if round % 3 == 0 { 3 * PAYLOAD } else { 10 };
        let (first, second) = tokio::join!(
            one.append("t", place, numbered(1, size)),
            two.append("t", place, numbered(2, size)),
        );
        let (stored, expected) = match (first, second) {
            (Ok(place), Err(AppendError::Overtaken { .. })) => (place, numbered(1, size)),
            (Err(AppendError::Overtaken { .. }), Ok(place)) => (place, numbered(2, size)),
            both => panic!("round {round}: {both:?}"),
        };
        for tail in [&mut one_tail, &mut two_tail, &mut reader] {
            let record = record(tail).await;
            assert_eq!(
                (record.place, &record.bytes),
                (stored, &expected),
                "round {round}"
            );
        }
        place = stored;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_of_which_each_is_killed_lose_and_double_nothing() {
    // JET-2
    let mut cluster = NatsCluster::start(3, PAYLOAD).await;
    let options = options(&cluster);
    let (one, mut one_tail, _) = open(&options).await;
    let (two, mut two_tail, _) = open(&options).await;
    let total = 30;
    let mut history = Vec::new();
    let mut place = 0;
    for number in 0..total {
        // Both programs write in turn, and each reads what the other one wrote.
        let (journal, tail, other) = match number % 2 {
            0 => (&one, &mut one_tail, &mut two_tail),
            _ => (&two, &mut two_tail, &mut one_tail),
        };
        if number % 10 == 5 {
            cluster.kill(number / 10 % 3);
        }
        if number % 10 == 9 {
            cluster.restart(number / 10 % 3).await;
        }
        let size = if number % 7 == 0 { 5 * PAYLOAD } else { 100 };
        let bytes = numbered(number, size);
        place = journal.append("t", place, bytes.clone()).await.unwrap();
        history.push((place, bytes));
        for tail in [tail, other] {
            let record = record(tail).await;
            assert_eq!((record.place, &record.bytes), (place, &history[number].1));
        }
    }
    let (_, _, before) = open(&options).await;
    let before: Vec<_> = before.into_iter().map(|r| (r.place, r.bytes)).collect();
    assert_eq!(before, history);
}
