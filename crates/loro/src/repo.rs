//! The worker threads that import, export and store documents with the crate `loro`.
//!
//! A document belongs to one of a few worker threads. Its tasks run in order, except that edits of the
//! application go before changes of peers that wait: so a large or hostile import delays neither connections
//! nor the documents of other workers, and an edit by no more than the import that is running. The workers
//! send their writes to one committer thread: it stores all that wait in one commit, and only then reports
//! their tasks as finished.

mod commit;
mod condition;
pub(crate) mod crdt;
mod expansion;
mod joined;
mod loaded;
mod others;
mod queue;
mod room;
mod together;
mod worker;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod order_tests;

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

use breakbulk_link::{Charge, lock};
use loro::LoroDoc;

use super::limits::Limits;
use super::machine::{DocId, Finished, Head, TaskId, Work, WorkError};
use super::store::{OnOthers, Store, StoreError, StoreStatus};
use commit::Committer;
use condition::Condition;
pub(crate) use loaded::Slot;
use room::Room;
use worker::Worker;

/// Called with finished tasks.
pub(crate) type OnFinished = Arc<dyn Fn(Vec<(TaskId, Finished)>) + Send + Sync>;
/// Called when the store stops or begins to take changes.
pub(crate) type OnStatus = Arc<dyn Fn(StoreStatus) + Send + Sync>;
/// Called when the application has edited a document.
pub(crate) type OnEdit = Arc<dyn Fn(&DocId) + Send + Sync>;

/// The functions that the threads call.
pub(crate) struct Told {
    pub(crate) finished: OnFinished,
    pub(crate) status: OnStatus,
    pub(crate) edit: OnEdit,
    /// Other nodes have changed a document of the store that they share.
    pub(crate) others: OnOthers,
}

/// Handles to the worker threads. They end when this is dropped and their queues are empty.
pub(crate) struct Repo {
    shards: Vec<Sender<Request>>,
    kept: Mutex<VecDeque<(DocId, Head)>>,
}

/// A request to a worker thread.
pub(crate) enum Request {
    Task(Job),
    Open(DocId, OpenReply),
    Close(DocId),
}

/// A task of the machine.
pub(crate) struct Job {
    pub(crate) id: TaskId,
    pub(crate) doc: DocId,
    pub(crate) work: Work,
    /// Set when nobody waits for the task any more.
    pub(crate) cancelled: Arc<AtomicBool>,
    /// The memory of the message it works on, charged until its changes are stored.
    pub(crate) charge: Option<Arc<Charge>>,
}

impl Request {
    fn doc(&self) -> &DocId {
        match self {
            Request::Task(Job { doc, .. }) | Request::Open(doc, _) | Request::Close(doc) => doc,
        }
    }
}

impl Job {
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// Called with the opened document.
pub(crate) type OpenReply = Box<dyn FnOnce(Result<Arc<Slot>, WorkError>) + Send>;

impl Repo {
    pub(crate) fn start(
        mut store: Box<dyn Store>,
        limits: &Limits,
        threads: usize,
        told: Told,
    ) -> Result<Self, StoreError> {
        let Told {
            finished,
            status,
            edit,
            others,
        } = told;
        // What other nodes store from now on is either among these documents or reported.
        store.on_others(others);
        let documents = store.documents()?;
        let bytes = documents.iter().map(|(_, head)| head.size).sum();
        let condition = Arc::new(Condition::new(bytes, limits.all_document_bytes));
        let reader = store.reader();
        let (to_committer, batches) = mpsc::channel();
        let committer = Committer::new(store, &documents, condition.clone(), finished, status);
        spawn("loro-commit", move || committer.run(&batches));
        let threads = threads.max(1);
        let room = Arc::new(Room::new(limits, threads));
        let shards = (0..threads).map(|number| {
            let (to_shard, requests) = mpsc::channel();
            let (reader, condition) = (reader.clone(), condition.clone());
            let (limits, room) = (limits.clone(), room.clone());
            let worker = Worker::new(reader, condition, limits, room, edit.clone());
            let to_committer = to_committer.clone();
            spawn(&format!("loro-docs-{number}"), move || {
                worker.run(&requests, &to_committer);
            });
            to_shard
        });
        Ok(Self {
            shards: shards.collect(),
            kept: Mutex::new(documents.into()),
        })
    }

    /// The documents that were stored at the start; empty on a second call.
    pub(crate) fn kept(&self) -> VecDeque<(DocId, Head)> {
        std::mem::take(&mut *lock(&self.kept))
    }

    /// Queues a request; never blocks. The threads live as long as this handle.
    pub(crate) fn ask(&self, request: Request) {
        let mut hasher = DefaultHasher::new();
        request.doc().hash(&mut hasher);
        let shard = hasher.finish() as usize % self.shards.len();
        let _ = self.shards[shard].send(request);
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(work);
    if let Err(error) = spawned {
        tracing::error!(%error, name, "a document thread cannot be started: raise the process's thread limit");
    }
}

/// An empty document.
pub(crate) fn blank() -> LoroDoc {
    LoroDoc::new()
}
