//! The one thread that writes, and tells what is kept.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::Tell;
use crate::machine::{Finished, TaskId, WorkError};
use crate::store::{Store, Write};

/// No more bytes are put into one commit, so that no task waits for a flood behind it.
const COMMIT_BYTES: usize = 32 << 20;

/// What a task leaves behind.
pub(super) struct Batch {
    pub(super) writes: Vec<Write>,
    pub(super) task: Option<(TaskId, Finished)>,
    /// Given back when the writes are done.
    pub(super) flight: Arc<Flight>,
}

/// How many commits a document waits for.
#[derive(Debug, Default)]
pub(super) struct Flight {
    count: Mutex<usize>,
    landed: Condvar,
}

impl Flight {
    pub(super) fn start(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    fn land(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.landed.notify_all();
    }

    pub(super) fn is_idle(&self) -> bool {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) == 0
    }

    /// Waits until the store has all that was given to it.
    pub(super) fn wait(&self) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = self.landed.wait_while(count, |count| *count > 0);
        drop(idle.unwrap_or_else(PoisonError::into_inner));
    }
}

pub(super) struct Committer {
    store: Box<dyn Store>,
    tell: Tell,
    /// Why nothing is kept any more: documents in memory may be ahead of the store, and no answer may
    /// speak of them.
    failed: Option<String>,
}

impl Committer {
    pub(super) fn new(store: Box<dyn Store>, tell: Tell) -> Self {
        Self {
            store,
            tell,
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
            tracing::error!(%error, "documents cannot be kept");
            self.failed = Some(error.to_string());
        }
        let mut tasks = Vec::with_capacity(waiting.len());
        for batch in waiting {
            batch.flight.land();
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
            (self.tell)(tasks);
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
