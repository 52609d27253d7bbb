//! Documents on the crate `loro`, worked on by threads of their own.
//!
//! A document belongs to one of a few threads, which does its tasks in order; so a large or hostile
//! import holds up neither a connection nor the documents of other threads. What the tasks changed goes
//! to one more thread that writes: it takes all that waits, makes one commit of it, and only then are
//! the tasks told to be done.

mod commit;
pub(crate) mod crdt;
mod loaded;
mod shelf;

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use loro::LoroDoc;

use super::limits::Limits;
use super::machine::{DocId, Finished, Head, TaskId, Work, WorkError};
use super::store::{Store, StoreError};
use commit::Committer;
pub(crate) use loaded::Slot;
use shelf::Shelf;

/// Tells that tasks are done.
pub(crate) type Tell = Arc<dyn Fn(Vec<(TaskId, Finished)>) + Send + Sync>;
/// Tells that a document was edited by whoever holds it open.
pub(crate) type Edited = Arc<dyn Fn(&DocId) + Send + Sync>;

/// The threads. They end when this is dropped and their work is done.
pub(crate) struct Repo {
    shards: Vec<Sender<Request>>,
    kept: Mutex<VecDeque<(DocId, Head)>>,
}

/// What a thread is asked.
pub(crate) enum Request {
    Task(TaskId, DocId, Work),
    Open(DocId, OpenReply),
    Close(DocId),
}

/// Where a document that was opened goes.
pub(crate) type OpenReply = Box<dyn FnOnce(Result<Arc<Slot>, WorkError>) + Send>;

impl Repo {
    pub(crate) fn start(
        store: Box<dyn Store>,
        limits: &Limits,
        threads: usize,
        tell: Tell,
        edited: Edited,
    ) -> Result<Self, StoreError> {
        let kept = store.documents()?.into();
        let reader = store.reader();
        let (to_committer, batches) = mpsc::channel();
        let committer = Committer::new(store, tell);
        spawn("loro-commit", move || committer.run(&batches));
        let threads = threads.max(1);
        let shards = (0..threads).map(|number| {
            let (to_shard, requests) = mpsc::channel();
            let shelf = Shelf::new(reader.clone(), limits.clone(), threads, edited.clone());
            let to_committer = to_committer.clone();
            spawn(&format!("loro-docs-{number}"), move || {
                shelf.run(&requests, &to_committer);
            });
            to_shard
        });
        Ok(Self {
            shards: shards.collect(),
            kept: Mutex::new(kept),
        })
    }

    /// The documents that were there at the start; once.
    pub(crate) fn kept(&self) -> VecDeque<(DocId, Head)> {
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Never waits. A thread is gone only with this.
    pub(crate) fn ask(&self, request: Request) {
        let doc = match &request {
            Request::Task(_, doc, _) | Request::Open(doc, _) | Request::Close(doc) => doc,
        };
        let mut hasher = DefaultHasher::new();
        doc.hash(&mut hasher);
        let shard = hasher.finish() as usize % self.shards.len();
        let _ = self.shards[shard].send(request);
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(work);
    if let Err(error) = spawned {
        tracing::error!(%error, name, "a thread for documents cannot be started");
    }
}

/// A document without content.
pub(crate) fn blank() -> LoroDoc {
    LoroDoc::new()
}
