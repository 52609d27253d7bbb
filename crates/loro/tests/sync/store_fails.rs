//! Tests of a store that accepts no changes for a while, or is slow.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use breakbulk_link::Budget;
use breakbulk_loro::machine::{DocId, Head};
use breakbulk_loro::store::{MemoryStore, Store, StoreError, StoreReader, StoreStatus, Write};
use breakbulk_loro::{Backoff, Node};
use breakbulk_message::loro::{ChannelMsg, Transmission, VersionVector};

use super::common::{
    Raw, client_config, dial_in_memory, insert, node, server_config, text, until_text, within,
};

/// A store in memory that is full, or waits, when a test says so.
struct Moody {
    store: MemoryStore,
    full: Arc<AtomicBool>,
    gate: Gate,
}

/// Whether commits wait.
type Gate = Arc<(Mutex<bool>, Condvar)>;

impl Store for Moody {
    fn documents(&self) -> Result<Vec<(DocId, Head)>, StoreError> {
        self.store.documents()
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let (shut, changed) = &*self.gate;
        let open = changed.wait_while(shut.lock().unwrap(), |shut| *shut);
        drop(open.unwrap());
        self.recover()?;
        self.store.commit(writes)
    }

    fn recover(&mut self) -> Result<(), StoreError> {
        if self.full.load(Ordering::Relaxed) {
            return Err(StoreError::Disk {
                store: "of this test".into(),
                doing: "writing",
                reason: "no space left on device".into(),
            });
        }
        Ok(())
    }

    fn reader(&self) -> Arc<dyn StoreReader> {
        self.store.reader()
    }
}

fn moody() -> (Moody, Arc<AtomicBool>, Gate) {
    let store = Moody {
        store: MemoryStore::new(),
        full: Arc::default(),
        gate: Arc::default(),
    };
    let (full, gate) = (store.full.clone(), store.gate.clone());
    (store, full, gate)
}

// LORO-15
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_store_is_read_and_takes_changes_again_by_itself() {
    let (store, full, _) = moody();
    let server = Node::new(server_config(), store).unwrap();
    let own = server.open("own").await.unwrap();
    insert(&own, 0, "stored");
    own.kept().await.unwrap();
    let client = node(client_config());
    let _call = dial_in_memory(&client, &server, Backoff::default());
    let doc = client.open("d").await.unwrap();
    insert(&doc, 0, "before");
    within("a first change", doc.sync()).await.unwrap();
    full.store(true, Ordering::Relaxed);
    let mut status = server.store_status();
    insert(&doc, 0, "not yet, ");
    let refused = status.wait_for(|status| matches!(status, StoreStatus::ReadOnly { .. }));
    within("a refusal", refused).await.unwrap();
    // A newcomer can read what is stored; nobody sees what is not.
    let other = node(client_config());
    let _call = dial_in_memory(&other, &server, Backoff::default());
    let copy = other.open("d").await.unwrap();
    within("a reader", copy.sync()).await.unwrap();
    assert_eq!(text(&copy), "before");
    assert_eq!(server.connections(), 2, "nobody is disconnected");
    insert(&own, 0, "not ");
    own.kept().await.unwrap_err();
    full.store(false, Ordering::Relaxed);
    let writable = status.wait_for(|status| *status == StoreStatus::Writable);
    within("the recovery", writable).await.unwrap();
    // Without any action of the client, the server asks for the changes that it refused.
    until_text(&copy, |text| text == "not yet, before").await;
    within("its own edits", own.kept()).await.unwrap();
    assert_eq!(text(&own), "not stored");
}

// LORO-13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_wait_are_charged_after_their_peer_has_gone() {
    let (store, _, gate) = moody();
    let mut config = server_config();
    config.budget = Budget::new(64 << 20);
    config.reserved = 0;
    let budget = config.budget.clone();
    let server = Node::new(config, store).unwrap();
    *gate.0.lock().unwrap() = true;
    let mut raw = Raw::established(&server, "7").await;
    let other = loro::LoroDoc::new();
    other
        .get_text("text")
        .insert(0, &"x".repeat(1 << 20))
        .unwrap();
    other.commit();
    let data = other.export(loro::ExportMode::all_updates()).unwrap();
    let size = data.len();
    assert!(size > 1 << 20);
    for number in 0..8 {
        let update = ChannelMsg::Update {
            doc_id: format!("d{number}"),
            transmission: Transmission::Update {
                data: data.clone().into(),
                version: VersionVector::new(),
            },
        };
        assert!(raw.say(&update).await);
    }
    // This request is answered after all the changes were taken.
    raw.say(&ChannelMsg::DirectoryRequest { doc_ids: None })
        .await;
    while !matches!(raw.hear().await, ChannelMsg::DirectoryResponse { .. }) {}
    drop(raw);
    within("the end", async {
        while server.connections() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert!(budget.used() >= 8 * size, "{} bytes", budget.used());
    *gate.0.lock().unwrap() = false;
    gate.1.notify_all();
    within("the work", async {
        while budget.used() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert_eq!(server.documents().len(), 8, "they are stored nevertheless");
}
