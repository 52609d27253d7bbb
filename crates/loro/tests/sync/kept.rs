//! Tests that changes which were acknowledged survive `kill -9`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use breakbulk_loro::store::DiskStore;
use breakbulk_loro::{Backoff, Config, Node};

use super::common::{dial_in_memory, insert, node, server_config, within};

const FILE: &str = "BREAKBULK_LORO_FILE";

/// Not a test of its own, but the server that is killed. Clients push numbers to it, and print each once the
/// server has acknowledged it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_is_killed() {
    let Ok(file) = std::env::var(FILE) else {
        return;
    };
    let server = Node::new(server_config(), DiskStore::open(file).unwrap()).unwrap();
    let mut tasks = Vec::new();
    for name in ["a", "b", "c"] {
        let server = server.clone();
        tasks.push(tokio::spawn(async move {
            let client = node(Config::client(name));
            let _remote = dial_in_memory(&client, &server, Backoff::default());
            let doc = client.open(name).await.unwrap();
            doc.sync().await.unwrap();
            let done = doc.loro().get_list("words").len();
            for word in done.. {
                let loro = doc.loro();
                loro.get_list("words").push(word as i64).unwrap();
                // Now and then much at once, so that the store has something to compact.
                if word % 10 == 0 {
                    loro.get_map("m")
                        .insert("blob", "x".repeat(20_000 + word))
                        .unwrap();
                }
                loro.commit();
                doc.sync().await.unwrap();
                println!("\nacknowledged {name} {word}");
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

// LORO-3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("documents.redb");
    let rounds = std::env::var("BREAKBULK_KILLS").map_or(3, |n| n.parse().unwrap());
    let mut last = std::collections::BTreeMap::from([("a", -1), ("b", -1), ("c", -1)]);
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["kept::child_that_is_killed", "--exact", "--nocapture"])
            .env(FILE, &file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut told = 0;
        for line in stdout.lines() {
            let line = line.unwrap();
            let mut words = line.split(' ');
            if words.next() != Some("acknowledged") {
                continue;
            }
            let name = words.next().unwrap();
            let word: i64 = words.next().unwrap().parse().unwrap();
            *last.get_mut(name).unwrap() = word;
            told += 1;
            if told == 60 + round * 7 {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(told >= 60, "the child told {told} only");
        let server = Node::new(server_config(), DiskStore::open(&file).unwrap()).unwrap();
        for (name, word) in &last {
            let doc = server.open(name).await.unwrap();
            let words = doc.loro().get_list("words").len() as i64;
            assert!(
                words > *word,
                "round {round}: {name} has {words} words, {word} was acknowledged"
            );
        }
        server.shut_down(std::time::Duration::ZERO).await;
        drop(server);
        // The file is unlocked once the threads have ended.
        within("the file", async {
            while DiskStore::open(&file).is_err() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    println!("{last:?}");
}

#[tokio::test]
async fn documents_are_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("documents.redb");
    {
        let server = Node::new(server_config(), DiskStore::open(&file).unwrap()).unwrap();
        let doc = server.open("d").await.unwrap();
        insert(&doc, 0, "kept");
        doc.kept().await.unwrap();
        let gone = server.open("gone").await.unwrap();
        insert(&gone, 0, "gone");
        gone.kept().await.unwrap();
        drop(gone);
        assert!(within("the deletion", server.delete("gone")).await);
        server.shut_down(std::time::Duration::ZERO).await;
    }
    let mut store = DiskStore::open(&file);
    while store.is_err() {
        tokio::task::yield_now().await;
        store = DiskStore::open(&file);
    }
    let server = Node::new(server_config(), store.unwrap()).unwrap();
    let names: Vec<String> = server
        .documents()
        .iter()
        .map(|(doc, _)| doc.to_string())
        .collect();
    assert_eq!(names, ["d"]);
    let doc = server.open("d").await.unwrap();
    assert_eq!(doc.loro().get_text("text").to_string(), "kept");
}
