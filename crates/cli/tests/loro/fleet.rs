//! Three servers that share documents on three NATS servers, while any of the six is killed: all end with the
//! same documents, and nothing that was acknowledged is missing.
//!
//! `BREAKBULK_FLEET_SECONDS` says for how long (20), `BREAKBULK_FLEET_KILL_SECONDS` how often something is
//! killed (4). `cargo xtask long fleet` runs ten minutes. `BREAKBULK_FLEET_LOGS=DIR` keeps the logs of all.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use breakbulk::loro::store::MemoryStore;
use breakbulk::loro::{Backoff, Config, Dial, Doc, Node};
use breakbulk_testkit::nats::NatsCluster;
use tokio::time::{sleep, timeout};

use super::common::Server;

const MEMBERS: usize = 3;
const WRITERS: usize = 6;
const DOCUMENTS: usize = 2;
/// Messages of NATS, so that larger changes are in pieces.
const MAX_PAYLOAD: usize = 8 << 10;
/// How long a server may take to acknowledge before a writer goes to another one.
const ACKNOWLEDGED: Duration = Duration::from_secs(20);
/// How long all may take to have everything at the end.
const SETTLED: Duration = Duration::from_secs(120);

#[derive(Default)]
struct Fleet {
    addresses: Vec<String>,
    acknowledged: Mutex<BTreeSet<String>>,
    ends: AtomicBool,
}

impl Fleet {
    fn dial(&self, number: usize) -> Dial {
        let mut dial = Dial::new(format!("ws://{}/ws", self.addresses[number % MEMBERS]));
        dial.backoff = Backoff {
            tries: u32::MAX,
            base: Duration::from_millis(100),
            cap: Duration::from_secs(1),
        };
        dial
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_share_documents_lose_nothing_whichever_is_killed() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap())
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("BREAKBULK_FLEET_SEED", now.as_millis() as u64);
    let seconds = number("BREAKBULK_FLEET_SECONDS", 20);
    let every = number("BREAKBULK_FLEET_KILL_SECONDS", 4);
    println!(
        "BREAKBULK_FLEET_SEED={seed} BREAKBULK_FLEET_SECONDS={seconds} BREAKBULK_FLEET_KILL_SECONDS={every}"
    );
    let mut cluster = NatsCluster::start(3, MAX_PAYLOAD).await;
    let stream = cluster.stream("DOCS");
    let start = |address: &str| Server::sharing(address, &stream);
    let mut members: Vec<Server> = (0..MEMBERS).map(|_| start("127.0.0.1:0")).collect();
    let fleet = Arc::new(Fleet {
        addresses: members.iter().map(|it| it.address().to_owned()).collect(),
        ..Fleet::default()
    });
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| tokio::spawn(write(fleet.clone(), number)))
        .collect();
    let (begun, mut random) = (Instant::now(), seed);
    let mut kills = 0;
    while begun.elapsed() < Duration::from_secs(seconds) {
        sleep(Duration::from_secs(every)).await;
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let victim = (random >> 33) as usize % MEMBERS;
        kills += 1;
        let kind = if kills % 2 == 0 { "member" } else { "server" };
        println!("{} {kind} {victim} is killed", clock());
        if kills % 2 == 0 {
            let old = members.remove(victim);
            let address = old.address().to_owned();
            old.kill();
            members.insert(victim, start(&address));
        } else {
            cluster.kill(victim);
            sleep(Duration::from_millis((random >> 40) % 1_500)).await;
            cluster.restart(victim).await;
        }
    }
    fleet.ends.store(true, Ordering::Relaxed);
    for writer in writers {
        timeout(SETTLED, writer)
            .await
            .expect("a writer hangs")
            .unwrap();
    }
    let known = fleet.acknowledged.lock().unwrap().clone();
    let mut contents = Vec::new();
    for number in 0..MEMBERS {
        contents.push(everything(&fleet, number, &known).await);
    }
    for kept in &contents {
        assert_eq!(kept, &contents[0], "BREAKBULK_FLEET_SEED={seed}");
        let all: BTreeSet<String> = kept.iter().flatten().cloned().collect();
        let lost: Vec<_> = known.difference(&all).collect();
        assert!(lost.is_empty(), "{lost:?} of {} are lost", known.len());
    }
    println!(
        "{} acknowledged changes, {kills} kills: all are there, and all servers have the same",
        known.len()
    );
    assert!(known.len() > WRITERS && kills > 0);
}

/// Adds one entry after the other, each once the one before was acknowledged, at whichever member answers.
async fn write(fleet: Arc<Fleet>, number: usize) {
    let node = Node::new(Config::client("writer"), MemoryStore::new()).unwrap();
    let doc = node
        .open(&format!("doc {}", number % DOCUMENTS))
        .await
        .unwrap();
    let mut member = number;
    let mut remote = node.dial(fleet.dial(member));
    let mut count = 0;
    while !fleet.ends.load(Ordering::Relaxed) {
        let size = if count % 40 == 7 {
            3 * MAX_PAYLOAD
        } else {
            count % 50
        };
        let entry = format!("{number}.{count}.{}", "e".repeat(size));
        doc.loro().get_list("entries").push(entry.as_str()).unwrap();
        count += 1;
        loop {
            match timeout(ACKNOWLEDGED, doc.sync()).await {
                Ok(Ok(())) => break,
                failed => {
                    let (at, state) = (clock(), doc.watch().borrow().clone());
                    println!(
                        "{at} writer {number}, change {count} at member {}: {failed:?}; {state:?}, {:?}",
                        member % MEMBERS,
                        remote.status().borrow()
                    );
                    member += 1;
                    drop(remote);
                    remote = node.dial(fleet.dial(member));
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
        fleet.acknowledged.lock().unwrap().insert(entry);
    }
}

/// The time of day, as in the logs of members and servers.
fn clock() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seconds = now.as_secs() % 86_400;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!(
        "{hours:02}:{minutes:02}:{seconds:02}.{:03}",
        now.subsec_millis()
    )
}

fn entries(doc: &Doc) -> Vec<String> {
    let value = doc.loro().get_list("entries").get_deep_value();
    let value = serde_json::to_value(value).unwrap();
    let entries = value.as_array().unwrap().iter();
    entries
        .map(|entry| entry.as_str().unwrap().to_owned())
        .collect()
}

/// The entries of all documents at a member, once it has all that was acknowledged by any.
async fn everything(fleet: &Fleet, number: usize, known: &BTreeSet<String>) -> Vec<Vec<String>> {
    let settled = async {
        loop {
            let node = Node::new(Config::client("reader"), MemoryStore::new()).unwrap();
            let _remote = node.dial(fleet.dial(number));
            let mut all = Vec::new();
            for document in 0..DOCUMENTS {
                let doc = node.open(&format!("doc {document}")).await.unwrap();
                if let Ok(Ok(())) = timeout(ACKNOWLEDGED, doc.sync()).await {
                    all.push(entries(&doc));
                }
            }
            let found: BTreeSet<&String> = all.iter().flatten().collect();
            if known.iter().all(|entry| found.contains(entry)) {
                return all;
            }
            sleep(Duration::from_millis(200)).await;
        }
    };
    let settled = timeout(SETTLED, settled).await;
    settled.unwrap_or_else(|_| panic!("server {number} lacks acknowledged changes"))
}
