//! Tests of what a store on disk holds after a power failure, at every point where one can happen.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::{DiskStore, Kept, MemoryStore, Store, Write};
use crate::machine::{DocId, Head};
use breakbulk_testkit::crash_disk::CrashDisk;

fn write(number: u64) -> Write {
    let doc: DocId = ["a", "b", "c"][(number % 3) as usize].into();
    let data = Bytes::from(vec![number as u8; (number as usize * 7919) % 150_000]);
    let head = Head {
        version: [(7, number as i32 + 1)].into_iter().collect(),
        size: data.len() as u64,
    };
    match number % 7 {
        5 => Write::Replace { doc, data, head },
        6 => Write::Delete { doc },
        _ => Write::Append { doc, data, head },
    }
}

type All = BTreeMap<DocId, (Head, Kept)>;

fn all(store: &dyn Store) -> All {
    let reader = store.reader();
    let documents = store.documents().unwrap().into_iter();
    documents
        .map(|(doc, head)| {
            let kept = reader.load(&doc).unwrap();
            (doc, (head, kept))
        })
        .collect()
}

fn batches() -> Vec<Vec<Write>> {
    (0..14)
        .map(|batch| (batch * 3..batch * 3 + 3).map(write).collect())
        .collect()
}

/// Commits until something fails. Returns what was confirmed, and the same with the batch tried last.
fn work(disk: &CrashDisk, store: Option<DiskStore>) -> (All, All) {
    let mut oracle = MemoryStore::new();
    let mut confirmed = All::new();
    let Some(mut store) = store.or_else(|| DiskStore::with_backend(disk.clone()).ok()) else {
        return (confirmed.clone(), confirmed);
    };
    for batch in batches() {
        oracle.commit(&batch).unwrap();
        let tried = all(&oracle);
        if store.commit(&batch).is_err() {
            let again = store.commit(&batch).unwrap_err().to_string();
            assert!(
                again.ends_with("failed before and takes nothing until it has recovered"),
                "{again}"
            );
            return (confirmed, tried);
        }
        confirmed = tried;
    }
    (confirmed.clone(), confirmed)
}

#[test]
fn what_was_committed_survives_a_crash_at_every_operation() {
    let whole = CrashDisk::new();
    let store = DiskStore::with_backend(whole.clone()).unwrap();
    let made = whole.counts().operations;
    let (confirmed, _) = work(&whole, Some(store));
    assert!(!confirmed.is_empty());
    let operations = whole.counts().operations - made;
    assert!(operations > 40, "the disk was hardly used: {operations}");
    println!("{operations} points");
    for point in 0..=operations {
        let disk = CrashDisk::new();
        let store = DiskStore::with_backend(disk.clone()).unwrap();
        disk.fail_after(Some(point));
        let (confirmed, tried) = work(&disk, Some(store));
        for (how, left) in [
            ("crash", disk.crash()),
            ("kill", disk.kill()),
            ("torn", disk.crash_torn(point)),
        ] {
            let store = DiskStore::with_backend(left)
                .unwrap_or_else(|error| panic!("{how} at {point}: does not open: {error}"));
            let found = all(&store);
            assert!(found == confirmed || found == tried, "{how} at {point}");
        }
    }
}

#[test]
fn a_store_whose_disk_was_full_recovers() {
    let disk = CrashDisk::new();
    let mut store = DiskStore::with_backend(disk.clone()).unwrap();
    let reader = store.reader();
    let [first, second, third, ..] = &batches()[..] else {
        panic!("there are three batches")
    };
    store.commit(first).unwrap();
    let before = all(&store);
    disk.fail_after(Some(0));
    store.commit(second).unwrap_err();
    store.commit(second).unwrap_err();
    // Stored documents can be read as soon as the disk accepts what opening the file writes.
    disk.fail_after(None);
    store.recover().unwrap();
    assert_eq!(all(&store), before);
    store.commit(second).unwrap();
    store.commit(third).unwrap();
    let mut oracle = MemoryStore::new();
    for batch in [first, second, third] {
        oracle.commit(batch).unwrap();
    }
    assert_eq!(all(&store), all(&oracle));
    // A reader made before the failure still works.
    assert_eq!(
        reader.load("a").unwrap(),
        oracle.reader().load("a").unwrap()
    );
}

#[test]
fn a_reader_that_hangs_delays_recovery_no_longer_than_its_deadline() {
    let disk = CrashDisk::new();
    let mut store = DiskStore::with_backend(disk.clone()).unwrap();
    let [first, second, ..] = &batches()[..] else {
        panic!("there are two batches")
    };
    store.commit(first).unwrap();
    let before = all(&store);
    disk.fail_after(Some(0));
    store.commit(second).unwrap_err();
    disk.fail_after(None);
    let hanging = store.database().unwrap();
    store.readers_within = Duration::from_millis(10);
    let error = store.recover().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("1 reads did not end within 0.01 s"), "{text}");
    // Nothing has changed: the store has still failed, and can still be read.
    store.commit(second).unwrap_err();
    drop(store.database().unwrap());
    // Recovery notices the end of the read; a reader that comes meanwhile gets the new database.
    store.readers_within = Duration::from_secs(3600);
    let reader = store.reader();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(hanging));
        store.recover().unwrap();
        scope.spawn(|| reader.load("a").unwrap());
    });
    assert_eq!(all(&store), before);
    store.commit(second).unwrap();
}

// LORO-3
#[test]
fn a_batch_costs_one_sync() {
    let disk = CrashDisk::new();
    let mut store = DiskStore::with_backend(disk.clone()).unwrap();
    let start = disk.counts().syncs;
    for batch in batches() {
        store.commit(&batch).unwrap();
    }
    // One sync more whenever the file grows, which happens a few times.
    let (syncs, least) = (disk.counts().syncs - start, batches().len() as u64);
    assert!((least..=least + 3).contains(&syncs), "{syncs} syncs");
    let before = disk.counts();
    store.commit(&[]).unwrap();
    assert_eq!(disk.counts(), before, "nothing to commit is nothing to do");
}

#[test]
fn a_file_is_one_stores_and_nothing_else_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("documents.redb");
    let store = DiskStore::open(&file).unwrap();
    let second = DiskStore::open(&file).unwrap_err().to_string();
    assert!(
        second.ends_with("is open in another process: stop that one first"),
        "{second}"
    );
    drop(store);
    DiskStore::open(&file).unwrap();
    let other = folder.path().join("other.redb");
    let db = redb::Database::create(&other).unwrap();
    drop(db);
    let error = DiskStore::open(&other).unwrap_err().to_string();
    assert!(
        error.contains("is no document store of format 1"),
        "{error}"
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        2,
        "nothing is left beside them"
    );
}
