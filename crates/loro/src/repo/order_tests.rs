//! Tests of which waiting task a worker does first, and which it does together.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};

use breakbulk_message::loro::Transmission;
use bytes::Bytes;
use loro::{EventTriggerKind, ExportMode, LoroDoc};

use super::{Job, Repo, Request, Slot, Told, joined};
use crate::limits::Limits;
use crate::machine::{DocId, Finished, Head, Outcome, TaskId, Work, WorkError};
use crate::store::{MemoryStore, Store, Write};

const DOC: &str = "doc";

/// A worker that does nothing until it is released, with a document that the application has open.
struct Held {
    repo: Repo,
    slot: Arc<Slot>,
    finished: Receiver<(TaskId, Finished)>,
    release: mpsc::Sender<()>,
    tasks: u64,
}

impl Held {
    fn new() -> Self {
        let (to_finished, finished) = mpsc::channel();
        let to_finished = Mutex::new(to_finished);
        let told = Told {
            finished: Arc::new(move |tasks| {
                for task in tasks {
                    let _ = to_finished.lock().unwrap().send(task);
                }
            }),
            status: Arc::new(|_| {}),
            edit: Arc::new(|_| {}),
            others: Arc::new(|_| {}),
        };
        let repo = Repo::start(Box::new(MemoryStore::new()), &Limits::default(), 1, told).unwrap();
        let (to_slot, slot) = mpsc::channel();
        let reply = Box::new(move |opened: Result<_, _>| {
            let _ = to_slot.send(opened.unwrap());
        });
        repo.ask(Request::Open(DOC.into(), reply));
        let slot = slot.recv().unwrap();
        let (release, released) = mpsc::channel::<()>();
        let gate = Box::new(move |_| {
            let _ = released.recv();
        });
        repo.ask(Request::Open("gate".into(), gate));
        Self {
            repo,
            slot,
            finished,
            release,
            tasks: 0,
        }
    }

    fn ask(&mut self, work: Work) -> TaskId {
        self.ask_unless(work, Arc::new(AtomicBool::new(false)))
    }

    fn ask_unless(&mut self, work: Work, cancelled: Arc<AtomicBool>) -> TaskId {
        self.tasks += 1;
        let id = TaskId(self.tasks);
        let doc: DocId = DOC.into();
        self.repo.ask(Request::Task(Job {
            id,
            doc,
            work,
            cancelled,
            charge: None,
        }));
        id
    }

    /// Releases the worker; returns the finished tasks in their order.
    fn finish(self) -> Vec<(TaskId, Finished)> {
        self.release.send(()).unwrap();
        let finished = self.finished.iter().take(self.tasks as usize);
        finished.collect()
    }

    /// Counts how often `loro` imports something into the open document.
    fn count_imports(&self) -> Arc<AtomicUsize> {
        let imports: Arc<AtomicUsize> = Arc::default();
        let counted = imports.clone();
        let subscription = self.slot.get().subscribe_root(Arc::new(move |event| {
            let imported = event.triggered_by == EventTriggerKind::Import;
            counted.fetch_add(usize::from(imported), Ordering::Relaxed);
        }));
        subscription.detach();
        imports
    }
}

/// This many changes of one peer, each exported without the earlier ones.
fn changes(peer: u64, count: usize) -> Vec<Bytes> {
    let doc = LoroDoc::new();
    doc.set_peer_id(peer).unwrap();
    let change = |number| {
        let before = doc.oplog_vv();
        doc.get_list("list")
            .push(format!("{peer}.{number}"))
            .unwrap();
        doc.commit();
        doc.export(ExportMode::updates(&before)).unwrap().into()
    };
    (0..count).map(change).collect()
}

fn import(data: &Bytes) -> Work {
    Work::Import {
        data: data.clone(),
        snapshot: false,
    }
}

fn edit(slot: &Slot, entry: &str) {
    let doc = slot.get();
    doc.get_list("mine").push(entry).unwrap();
    doc.commit();
}

fn length(slot: &Slot, list: &str) -> usize {
    slot.get().get_list(list).len()
}

// LORO-37
#[test]
fn an_edit_leaves_before_the_imports_that_wait() {
    let mut held = Held::new();
    for data in changes(1, 50) {
        held.ask(import(&data));
    }
    edit(&held.slot, "edit");
    let local = held.ask(Work::Local);
    let again = held.ask(Work::Local);
    let slot = held.slot.clone();
    let finished = held.finish();
    let order: Vec<TaskId> = finished.iter().map(|(id, _)| *id).collect();
    assert_eq!(order[..2], [local, again], "of {order:?}");
    assert!(matches!(
        finished[0].1.local,
        Some(Transmission::Update { .. })
    ));
    assert_eq!(finished[1].1.local, None, "sent once");
    assert_eq!((length(&slot, "mine"), length(&slot, "list")), (1, 50));
}

// LORO-37
#[test]
fn changes_that_wait_are_imported_together_and_reported_one_by_one() {
    let mut held = Held::new();
    let imports = held.count_imports();
    let (one, other) = (changes(1, 40), changes(2, 40));
    for (one, other) in one.iter().zip(&other) {
        held.ask(import(one));
        held.ask(import(other));
    }
    let slot = held.slot.clone();
    let finished = held.finish();
    let imports = imports.load(Ordering::Relaxed);
    assert!(
        (1..=3).contains(&imports),
        "{imports} imports of 80 changes"
    );
    for (number, (id, finished)) in finished.iter().enumerate() {
        assert_eq!(id.0 as usize, number + 1);
        let data = [&one, &other][number % 2][number / 2].clone();
        // What each change brought, and the version after it: subscribers get the changes one by one.
        let each = [number / 2 + 1, number.div_ceil(2)];
        let version = [(1, each[0] as i32), (2, each[1] as i32)];
        let version: breakbulk_message::loro::VersionVector =
            version.into_iter().filter(|(_, to)| *to > 0).collect();
        assert_eq!(finished.head.version, version);
        let news = Transmission::Update { data, version };
        assert_eq!(finished.result, Ok(Outcome::Imported(Some(news))));
    }
    assert_eq!(length(&slot, "list"), 80);
}

// LORO-37
#[test]
fn what_is_wrong_with_one_change_is_not_blamed_on_those_beside_it() {
    let mut held = Held::new();
    let imports = held.count_imports();
    let good = changes(1, 20);
    let late = changes(2, 2);
    let mut broken = changes(3, 1)[0].to_vec();
    *broken.last_mut().unwrap() ^= 1;
    let gone = Arc::new(AtomicBool::new(true));
    for data in &good[..10] {
        held.ask(import(data));
    }
    let garbage = held.ask(import(&broken.into()));
    let gap = held.ask(import(&late[1]));
    let cancelled = held.ask_unless(import(&changes(4, 1)[0]), gone);
    let known = held.ask(import(&good[3]));
    for data in &good[10..] {
        held.ask(import(data));
    }
    let slot = held.slot.clone();
    for (id, finished) in held.finish() {
        let result = finished.result;
        match id {
            id if id == garbage => assert!(matches!(result, Err(WorkError::Garbage { .. }))),
            id if id == gap => assert_eq!(result, Ok(Outcome::Gap)),
            id if id == cancelled => assert_eq!(result, Err(WorkError::Cancelled)),
            id if id == known => assert_eq!(result, Ok(Outcome::Imported(None))),
            _ => assert!(matches!(result, Ok(Outcome::Imported(Some(_)))), "{id:?}"),
        }
    }
    assert_eq!(length(&slot, "list"), 20);
    assert!(imports.load(Ordering::Relaxed) < 20);
}

// LORO-4
#[test]
fn a_change_that_came_before_what_it_depends_on_is_stored_with_it() {
    let mut held = Held::new();
    let [first, second] = <[Bytes; 2]>::try_from(changes(1, 2)).unwrap();
    held.ask(import(&second));
    held.ask(import(&first));
    held.ask(Work::Answer {
        since: Default::default(),
    });
    let finished = held.finish();
    assert_eq!(finished[0].1.result, Ok(Outcome::Gap));
    let Ok(Outcome::Imported(Some(Transmission::Update { data, .. }))) = &finished[1].1.result
    else {
        panic!("{:?}", finished[1].1.result);
    };
    // Both changes are stored and sent to others.
    let other = LoroDoc::new();
    other.import(data).unwrap();
    assert_eq!(other.get_list("list").len(), 2);
}

// LORO-37
#[test]
fn a_change_in_a_hole_between_those_of_another_one_is_stored() {
    let mut held = Held::new();
    let all = changes(1, 3);
    // `loro` does not write such an update, but accepts it.
    held.ask(import(&joined::join(&[&all[0], &all[2]]).unwrap()));
    held.ask(import(&all[1]));
    held.ask(import(&all[1]));
    let slot = held.slot.clone();
    let finished = held.finish();
    assert_eq!(length(&slot, "list"), 3);
    // The changes that are stored and sent to others, in that order.
    let other = LoroDoc::new();
    for (_, finished) in &finished {
        match &finished.result {
            Ok(Outcome::Imported(Some(Transmission::Update { data, .. }))) => {
                other.import(data).unwrap();
            }
            result => assert_eq!(*result, Ok(Outcome::Imported(None))),
        }
    }
    assert_eq!(other.get_list("list").len(), 3);
    // The same change again brings nothing.
    assert_eq!(finished[2].1.result, Ok(Outcome::Imported(None)));
}

// LORO-37
#[test]
fn a_change_that_the_application_imported_by_itself_is_no_gap() {
    let mut held = Held::new();
    let (one, other) = (changes(1, 1), changes(2, 1));
    held.slot.get().import(&one[0]).unwrap();
    held.ask(import(&other[0]));
    held.ask(import(&one[0]));
    let finished = held.finish();
    for ((_, finished), data) in finished.iter().zip([&other[0], &one[0]]) {
        let Ok(Outcome::Imported(Some(Transmission::Update { data: stored, .. }))) =
            &finished.result
        else {
            panic!("{:?}", finished.result);
        };
        assert_eq!(stored, data);
    }
}

// LORO-37
#[test]
fn other_content_under_the_name_of_a_change_beside_it_is_refused() {
    // As of a peer id that two writers share.
    let update = |entries: &[&str]| -> Bytes {
        let doc = LoroDoc::new();
        doc.set_peer_id(7).unwrap();
        for entry in entries {
            doc.get_list("list").push(*entry).unwrap();
        }
        doc.commit();
        doc.export(ExportMode::all_updates()).unwrap().into()
    };
    let first = update(&["a", "b", "c"]);
    let mut held = Held::new();
    held.ask(import(&first));
    held.ask(import(&update(&["x", "y", "z", "d", "e"])));
    held.ask(import(&changes(8, 1)[0]));
    let slot = held.slot.clone();
    let finished = held.finish();
    let results: Vec<_> = finished
        .iter()
        .map(|(_, finished)| &finished.result)
        .collect();
    assert!(matches!(results[0], Ok(Outcome::Imported(Some(_)))));
    assert!(matches!(results[1], Err(WorkError::Garbage { .. })));
    assert!(matches!(results[2], Ok(Outcome::Imported(Some(_)))));
    assert_eq!(length(&slot, "list"), 4);
}

// LORO-38
#[test]
fn a_document_that_cannot_be_loaded_can_be_deleted() {
    let doc: DocId = DOC.into();
    let mut store = MemoryStore::new();
    let head = Head::default();
    let data = Bytes::from_static(b"no document");
    let damaged = Write::Append { doc, data, head };
    store.commit(&[damaged]).unwrap();
    let (to_finished, finished) = mpsc::channel();
    let to_finished = Mutex::new(to_finished);
    let told = Told {
        finished: Arc::new(move |tasks| {
            for (_, task) in tasks {
                let _ = to_finished.lock().unwrap().send(task.result);
            }
        }),
        status: Arc::new(|_| {}),
        edit: Arc::new(|_| {}),
        others: Arc::new(|_| {}),
    };
    let repo = Repo::start(Box::new(store), &Limits::default(), 1, told).unwrap();
    let read = || Work::Answer {
        since: Default::default(),
    };
    for (number, work) in [read(), Work::Delete, read()].into_iter().enumerate() {
        repo.ask(Request::Task(Job {
            id: TaskId(number as u64),
            doc: DOC.into(),
            work,
            cancelled: Arc::default(),
            charge: None,
        }));
    }
    let results: Vec<_> = finished.iter().take(3).collect();
    assert!(matches!(results[0], Err(WorkError::Damaged { .. })));
    assert_eq!(results[1], Ok(Outcome::Deleted(true)));
    assert!(matches!(results[2], Ok(Outcome::Answer(_))));
}
