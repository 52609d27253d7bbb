//! A server that is killed under load has everything that it acknowledged.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use breakbulk::loro::store::MemoryStore;
use breakbulk::loro::{Config, Dial, Node};
use tokio::sync::mpsc;

use super::common::Server;

/// Writers at a time, of all ways but data channels.
const WRITERS: usize = 6;

/// Two documents, so that commits have something to collect.
const DOCUMENTS: usize = 2;

/// Kills are few here; `BREAKBULK_KILLS` asks for more.
fn kills() -> usize {
    let asked = std::env::var("BREAKBULK_KILLS").ok();
    asked.map_or(3, |kills| {
        kills.parse().expect("BREAKBULK_KILLS is a number")
    })
}

type Acknowledged = Arc<Mutex<BTreeSet<String>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_there_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let acknowledged = Acknowledged::default();
    let mut server = Server::start(Some(folder.path()));
    for round in 0..kills() {
        let (tell, mut told) = mpsc::unbounded_channel();
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let url = server.ways()[number % 3].clone();
                let (known, tell) = (acknowledged.clone(), tell.clone());
                tokio::spawn(write(url, round, number, known, tell))
            })
            .collect();
        // Kill the server in the middle of the writes: after this many acknowledgements.
        let wanted = 40 + 17 * round;
        for _ in 0..wanted {
            let one = tokio::time::timeout(Duration::from_secs(60), told.recv());
            one.await
                .expect("nothing is acknowledged any more")
                .unwrap();
        }
        server.kill();
        for writer in writers {
            writer.abort();
            // It was aborted.
            let _ = writer.await;
        }
        server = Server::start(Some(folder.path()));
        let kept = everything(&server.ways()[0]).await;
        let known = acknowledged.lock().unwrap().clone();
        let lost: Vec<_> = known.difference(&kept).collect();
        assert!(
            lost.is_empty(),
            "round {round}: {lost:?} of {} are lost",
            known.len()
        );
        println!(
            "kill {round}: {} acknowledged, {} kept, none lost",
            known.len(),
            kept.len()
        );
    }
}

/// Adds one entry after the other, each once the one before was acknowledged.
async fn write(
    url: String,
    round: usize,
    number: usize,
    known: Acknowledged,
    tell: mpsc::UnboundedSender<()>,
) {
    let node = Node::new(Config::client("writer"), MemoryStore::new()).unwrap();
    let _remote = node.dial(Dial::new(url));
    let doc = node
        .open(&format!("doc {}", number % DOCUMENTS))
        .await
        .unwrap();
    for entry in 0.. {
        let entry = format!("{round}.{number}.{entry}");
        doc.loro().get_list("entries").push(entry.as_str()).unwrap();
        doc.sync().await.unwrap();
        known.lock().unwrap().insert(entry);
        if tell.send(()).is_err() {
            return;
        }
    }
}

/// All entries that the server has.
async fn everything(url: &str) -> BTreeSet<String> {
    let node = Node::new(Config::client("reader"), MemoryStore::new()).unwrap();
    let _remote = node.dial(Dial::new(url));
    let mut all = BTreeSet::new();
    for number in 0..DOCUMENTS {
        let doc = node.open(&format!("doc {number}")).await.unwrap();
        let synced = tokio::time::timeout(Duration::from_secs(60), doc.sync());
        synced.await.expect("the server does not answer").unwrap();
        let entries =
            serde_json::to_value(doc.loro().get_list("entries").get_deep_value()).unwrap();
        let entries = entries.as_array().unwrap().iter();
        all.extend(entries.map(|entry| entry.as_str().unwrap().to_owned()));
    }
    all
}
