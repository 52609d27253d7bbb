//! Tests of nodes that share documents on NATS JetStream: all nodes, also later ones, have what one stores.

#![cfg(feature = "jetstream")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::time::Duration;

use breakbulk_loro::store::{NatsStore, Store, Write};
use breakbulk_loro::{Config, Doc, DocId, Head, Node};
use breakbulk_testkit::nats::NatsCluster;
use tokio::time::{sleep, timeout};

const PAYLOAD: usize = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(30);

async fn node(cluster: &NatsCluster) -> Node {
    let store = NatsStore::open(&cluster.stream("DOCS")).await.unwrap();
    Node::new(Config::server("member"), store).unwrap()
}

fn text(doc: &Doc) -> String {
    doc.loro().get_text("text").to_string()
}

fn entries(doc: &Doc) -> Vec<String> {
    let value = doc.loro().get_list("entries").get_deep_value();
    let value = serde_json::to_value(value).unwrap();
    let entries = value.as_array().unwrap().iter();
    entries
        .map(|entry| entry.as_str().unwrap().to_owned())
        .collect()
}

/// Waits until a condition holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, waiting)
        .await
        .unwrap_or_else(|_| panic!("{what}"));
}

async fn push(doc: &Doc, entry: &str) {
    doc.loro().get_list("entries").push(entry).unwrap();
    doc.kept().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_stores_all_others_have() {
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let nodes = [
        node(&cluster).await,
        node(&cluster).await,
        node(&cluster).await,
    ];
    let mut docs = Vec::new();
    for node in &nodes {
        docs.push(node.open("notes").await.unwrap());
    }
    for round in 0..10 {
        for (number, doc) in docs.iter().enumerate() {
            push(doc, &format!("{number}.{round}")).await;
        }
    }
    // A change larger than a message of NATS.
    docs[1]
        .loro()
        .get_text("text")
        .insert(0, &"long ".repeat(PAYLOAD))
        .unwrap();
    docs[1].kept().await.unwrap();
    let same = || {
        let first = entries(&docs[0]);
        let all = docs
            .iter()
            .all(|doc| entries(doc) == first && text(doc) == text(&docs[1]));
        first.len() == 30 && all
    };
    until("all have the same", same).await;
    let late = node(&cluster).await;
    let doc = late.open("notes").await.unwrap();
    assert_eq!(
        (entries(&doc), text(&doc)),
        (entries(&docs[0]), text(&docs[0]))
    );
    // A node also knows the new version of a document that it has not opened.
    docs[0].loro().get_text("text").insert(0, "x").unwrap();
    let version = docs[0].kept().await.unwrap();
    let knows = |node: &Node| {
        let documents = node.documents();
        documents
            .iter()
            .any(|(doc, head)| &**doc == "notes" && head.version == version)
    };
    until("all know it", || nodes.iter().chain([&late]).all(knows)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_write_the_same_document_at_once_lose_nothing() {
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let nodes = [node(&cluster).await, node(&cluster).await];
    let writing: Vec<_> = nodes
        .iter()
        .enumerate()
        .map(|(number, node)| {
            let node = node.clone();
            tokio::spawn(async move {
                let doc = node.open("d").await.unwrap();
                for round in 0..40 {
                    let entry = format!("{number}.{round} {}", "z".repeat(round * 100));
                    push(&doc, &entry).await;
                }
                doc
            })
        })
        .collect();
    let mut docs = Vec::new();
    for writing in writing {
        docs.push(writing.await.unwrap());
    }
    until("both have all", || {
        docs.iter().all(|doc| entries(doc).len() == 80)
    })
    .await;
    assert_eq!(entries(&docs[0]), entries(&docs[1]));
    let late = node(&cluster).await.open("d").await.unwrap();
    assert_eq!(entries(&late), entries(&docs[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_compacted_and_the_stream_stays_small() {
    // JET-6
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let (one, two) = (node(&cluster).await, node(&cluster).await);
    let (doc, other) = (one.open("d").await.unwrap(), two.open("d").await.unwrap());
    let total = 600;
    for number in 0..total {
        let text = doc.loro().get_text("text");
        // Each change replaces the text, so that there are many updates of a small document.
        text.update(
            &format!("{number} {}", "x".repeat(1000)),
            Default::default(),
        )
        .unwrap();
        text.insert(0, &format!("{number},")).unwrap();
        doc.kept().await.unwrap();
    }
    until("the other one has it", || text(&other) == text(&doc)).await;
    let client = async_nats::connect(cluster.servers()).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let stream = context.get_stream("DOCS").await.unwrap();
    let state = stream.get_info().await.unwrap().state;
    assert!(state.last_sequence >= total, "{state:?}");
    assert!(state.messages < total / 2, "{state:?}");
    let late = node(&cluster).await.open("d").await.unwrap();
    assert_eq!(text(&late), text(&doc));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_document_is_deleted_everywhere_and_may_begin_anew() {
    // JET-7
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let (one, two) = (node(&cluster).await, node(&cluster).await);
    let doc = two.open("d").await.unwrap();
    push(&doc, "before").await;
    until("one knows it", || {
        one.documents().iter().any(|(_, head)| head.size > 0)
    })
    .await;
    assert!(one.delete("d").await);
    until("two has lost it", || entries(&doc).is_empty()).await;
    push(&doc, "after").await;
    let other = one.open("d").await.unwrap();
    until("one has the new one", || entries(&other) == ["after"]).await;
    // A node that starts later has the new document, too.
    let late = node(&cluster).await.open("d").await.unwrap();
    assert_eq!(entries(&late), ["after"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nats_is_away_documents_are_read_and_changes_wait() {
    let mut cluster = NatsCluster::start(1, PAYLOAD).await;
    let member = node(&cluster).await;
    let doc = member.open("d").await.unwrap();
    push(&doc, "one").await;
    cluster.kill(0);
    let writing = {
        let doc = doc.clone();
        tokio::spawn(async move { push(&doc, "two").await })
    };
    assert_eq!(entries(&member.open("d").await.unwrap())[0], "one");
    assert!(!writing.is_finished());
    cluster.restart(0).await;
    timeout(PATIENCE, writing).await.unwrap().unwrap();
    let late = node(&cluster).await.open("d").await.unwrap();
    assert_eq!(entries(&late), ["one", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stored_beside_something_that_failed_is_told() {
    // JET-8
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let mut store = NatsStore::open(&cluster.stream("DOCS")).await.unwrap();
    let (told, hears) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let tell = move |doc: &DocId| drop(told.lock().unwrap().send(doc.clone()));
    let append = |doc: &str| Write::Append {
        doc: doc.into(),
        data: vec![0; 10].into(),
        head: Head {
            version: [(1, 1)].into_iter().collect(),
            size: 10,
        },
    };
    // The second name is too long for a NATS subject, so that its write fails.
    let writes = [append("small"), append(&"long".repeat(1000))];
    let committing = tokio::task::spawn_blocking(move || {
        store.on_others(std::sync::Arc::new(tell));
        store.commit(&writes).unwrap_err();
        let stored = store.documents().unwrap();
        drop(store);
        stored
    });
    let stored = committing.await.unwrap();
    assert!(stored.iter().any(|(doc, _)| &**doc == "small"));
    let told: Vec<_> = hears.try_iter().collect();
    assert!(told.iter().any(|doc| &**doc == "small"), "{told:?}");
}

#[tokio::test]
async fn a_stream_of_something_else_is_refused() {
    let cluster = NatsCluster::start(1, PAYLOAD).await;
    let client = async_nats::connect(cluster.servers()).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let stream = |name: &str, subject: &str| async_nats::jetstream::stream::Config {
        name: name.to_owned(),
        subjects: vec![subject.to_owned()],
        ..Default::default()
    };
    context
        .create_stream(stream("OTHER", "other.>"))
        .await
        .unwrap();
    context
        .create_stream(stream("LOSSY", "LOSSY.>"))
        .await
        .unwrap();
    for (name, reason) in [
        ("OTHER", "it does not have the subject OTHER.>"),
        ("LOSSY", "it deletes what is old"),
    ] {
        let error = NatsStore::open(&cluster.stream(name)).await.unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    let store = NatsStore::open(&cluster.stream("DOCS")).await.unwrap();
    assert_eq!(store.documents(), Ok(Vec::new()));
}
