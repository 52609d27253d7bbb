//! The committer thread: writes to the store, then reports the tasks as finished.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::OnFinished;
use crate::machine::{Finished, TaskId, WorkError};
use crate::store::{Store, Write};
use breakbulk_link::lock;

/// The bytes of one commit, so that a task does not wait for a flood of later ones.
const COMMIT_BYTES: usize = 32 << 20;

/// The writes and the result of a task.
pub(super) struct Batch {
    pub(super) writes: Vec<Write>,
    pub(super) task: Option<(TaskId, Finished)>,
    /// Decremented when the writes are done.
    pub(super) pending: Arc<PendingCommits>,
}

/// Counts the commits of a document that are not done.
#[derive(Debug, Default)]
pub(super) struct PendingCommits {
    count: Mutex<usize>,
    changed: Condvar,
}

impl PendingCommits {
    pub(super) fn start(&self) {
        *lock(&self.count) += 1;
    }

    fn finish(&self) {
        *lock(&self.count) -= 1;
        self.changed.notify_all();
    }

    pub(super) fn is_idle(&self) -> bool {
        *lock(&self.count) == 0
    }

    /// Blocks until all commits are done.
    pub(super) fn wait(&self) {
        let count = lock(&self.count);
        let idle = self.changed.wait_while(count, |count| *count > 0);
        drop(idle.unwrap_or_else(PoisonError::into_inner));
    }
}

pub(super) struct Committer {
    store: Box<dyn Store>,
    on_finished: OnFinished,
    /// The error of a failed commit. From then on every task fails: documents in memory may be ahead of
    /// the store, and no peer may see that.
    failed: Option<String>,
}

impl Committer {
    pub(super) fn new(store: Box<dyn Store>, on_finished: OnFinished) -> Self {
        Self {
            store,
            on_finished,
            failed: None,
        }
    }

    pub(super) fn run(mut self, batches: &Receiver<Batch>) {
        while let Ok(first) = batches.recv() {
            let mut bytes = weight(&first);
            let mut waiting = vec![first];
            while bytes < COMMIT_BYTES
                && let Ok(next) = batches.try_recv()
            {
                bytes += weight(&next);
                waiting.push(next);
            }
            self.commit(waiting);
        }
    }

    fn commit(&mut self, mut waiting: Vec<Batch>) {
        let writes = waiting
            .iter_mut()
            .map(|batch| std::mem::take(&mut batch.writes));
        let writes: Vec<Write> = writes.flatten().collect();
        if self.failed.is_none()
            && !writes.is_empty()
            && let Err(error) = self.store.commit(&writes)
        {
            tracing::error!(%error, "the store failed: all further changes are refused until a restart");
            self.failed = Some(error.to_string());
        }
        let mut tasks = Vec::with_capacity(waiting.len());
        for batch in waiting {
            batch.pending.finish();
            let Some((id, mut finished)) = batch.task else {
                continue;
            };
            if let Some(reason) = self.failed.clone() {
                finished.result = Err(WorkError::Store { reason });
                finished.local = None;
            }
            tasks.push((id, finished));
        }
        if !tasks.is_empty() {
            (self.on_finished)(tasks);
        }
    }
}

fn weight(batch: &Batch) -> usize {
    let bytes = batch.writes.iter().map(|write| match write {
        Write::Append { data, .. } | Write::Replace { data, .. } => data.len(),
        Write::Delete { .. } => 0,
    });
    bytes.sum()
}
