//! The committer thread: writes to the store, then reports the tasks as finished.
//!
//! If a write fails (the disk is full), its documents in memory are ahead of the store and no peer may see
//! that: their tasks fail until the worker has loaded them again. All further changes are refused until
//! the store has recovered, which is tried again and again; reading goes on.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use breakbulk_link::{Charge, lock};

use super::condition::Condition;
use super::{OnFinished, OnStatus};
use crate::machine::{DocId, Finished, Head, Outcome, TaskId, WorkError};
use crate::store::{Store, StoreError, StoreStatus, Write};

/// The bytes of one commit, so that a task does not wait for a flood of later ones.
const COMMIT_BYTES: usize = 32 << 20;

/// Why a task of a document fails when an earlier one could not be stored.
const BEHIND: &str = "an earlier change of this document could not be stored";

/// The waits between attempts to recover the store: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The writes and the result of a task.
pub(super) struct Batch {
    pub(super) writes: Vec<Write>,
    pub(super) task: Option<(TaskId, Finished)>,
    /// The task took over what other nodes stored in this document, with this many deletions by them.
    pub(super) of_others: Option<(DocId, u64)>,
    /// Decremented when the writes are done.
    pub(super) pending: Arc<PendingCommits>,
    /// The memory of the written bytes, charged until the machine is told that they are stored.
    pub(super) _charge: Option<Arc<Charge>>,
}

/// The commits of a loaded document.
#[derive(Debug, Default)]
pub(super) struct PendingCommits {
    state: Mutex<Commits>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Commits {
    /// How many commits are not done.
    count: usize,
    /// One has failed: the loaded document is ahead of the store.
    failed: bool,
    /// The document as it is stored.
    stored: Head,
}

impl PendingCommits {
    /// No commits yet of a document that is stored like this.
    pub(super) fn new(stored: Head) -> Self {
        let state = Commits {
            stored,
            ..Commits::default()
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    pub(super) fn start(&self) {
        lock(&self.state).count += 1;
    }

    fn finish(&self) {
        lock(&self.state).count -= 1;
        self.changed.notify_all();
    }

    pub(super) fn is_idle(&self) -> bool {
        lock(&self.state).count == 0
    }

    pub(super) fn has_failed(&self) -> bool {
        lock(&self.state).failed
    }

    /// The document as it is stored.
    pub(super) fn stored(&self) -> Head {
        lock(&self.state).stored.clone()
    }

    fn store(&self, head: &Head) {
        lock(&self.state).stored = head.clone();
    }

    fn fail(&self) {
        lock(&self.state).failed = true;
    }

    /// Blocks until all commits are done.
    pub(super) fn wait(&self) {
        let state = lock(&self.state);
        let idle = self.changed.wait_while(state, |state| state.count > 0);
        drop(idle.unwrap_or_else(PoisonError::into_inner));
    }
}

pub(super) struct Committer {
    store: Box<dyn Store>,
    on_finished: OnFinished,
    on_status: OnStatus,
    condition: Arc<Condition>,
    /// The stored bytes of each document.
    sizes: HashMap<DocId, u64>,
    /// When to try to recover the store, and how long to wait after that.
    retry: Option<(Instant, Duration)>,
}

impl Committer {
    pub(super) fn new(
        store: Box<dyn Store>,
        documents: &[(DocId, Head)],
        condition: Arc<Condition>,
        on_finished: OnFinished,
        on_status: OnStatus,
    ) -> Self {
        let sizes = documents.iter().map(|(doc, head)| (doc.clone(), head.size));
        Self {
            store,
            on_finished,
            on_status,
            condition,
            sizes: sizes.collect(),
            retry: None,
        }
    }

    pub(super) fn run(mut self, batches: &Receiver<Batch>) {
        loop {
            let wait = match self.retry {
                None => Duration::from_secs(3600),
                Some((at, _)) => at.saturating_duration_since(Instant::now()),
            };
            match batches.recv_timeout(wait) {
                Ok(first) => self.commit(collect(first, batches)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.retry.is_some_and(|(at, _)| at <= Instant::now()) {
                self.recover();
            }
        }
    }

    fn commit(&mut self, mut waiting: Vec<Batch>) {
        let mut writes = Vec::new();
        let mut after = Sizes {
            total: self.condition.bytes(),
            changed: HashMap::new(),
        };
        // Whether each batch wrote something, and why it was refused.
        let mut outcomes: Vec<(bool, Option<String>)> = Vec::with_capacity(waiting.len());
        for batch in &mut waiting {
            let own = std::mem::take(&mut batch.writes);
            let wrote = !own.is_empty();
            let refused = self.refusal(batch, &own, &mut after);
            if refused.is_none() {
                writes.extend(own);
            }
            outcomes.push((wrote, refused));
        }
        let committed = match writes.is_empty() {
            true => Ok(()),
            false => self.store.commit(&writes),
        };
        match &committed {
            Ok(()) => {
                self.condition.set_bytes(after.total);
                for (doc, size) in after.changed {
                    match size {
                        0 => self.sizes.remove(&doc),
                        size => self.sizes.insert(doc, size),
                    };
                }
            }
            Err(error) => self.failed(error),
        }
        drop(writes);
        let mut tasks = Vec::with_capacity(waiting.len());
        for (batch, (wrote, refused)) in waiting.iter_mut().zip(outcomes) {
            let failed = committed.as_ref().err().filter(|_| wrote);
            let reason = refused.or_else(|| failed.map(StoreError::to_string));
            // Its result may contain what one before it in this commit failed to store.
            let behind = || batch.pending.has_failed().then(|| BEHIND.to_owned());
            let reason = reason.or_else(behind);
            if let Some((id, mut finished)) = batch.task.take() {
                let of_others = batch.of_others.take();
                if let Some((doc, deletions)) = &of_others {
                    self.took_over(doc, *deletions, finished.head.size);
                }
                match reason {
                    Some(reason) => {
                        if wrote {
                            batch.pending.fail();
                        }
                        finished.result = Err(WorkError::Store { reason });
                        finished.local = None;
                    }
                    None if wrote || of_others.is_some() => batch.pending.store(&finished.head),
                    None => {}
                }
                tasks.push((id, finished));
            }
            batch.pending.finish();
        }
        if !tasks.is_empty() {
            (self.on_finished)(tasks);
        }
    }

    /// The loaded document has become what other nodes stored.
    fn took_over(&mut self, doc: &DocId, deletions: u64, size: u64) {
        self.store.absorb(doc, deletions);
        let before = match size {
            0 => self.sizes.remove(doc),
            size => self.sizes.insert(doc.clone(), size),
        };
        let total = self.condition.bytes();
        let total = total
            .saturating_sub(before.unwrap_or(0))
            .saturating_add(size);
        self.condition.set_bytes(total);
    }

    /// Why a batch cannot be stored, if it cannot; otherwise counts its bytes.
    fn refusal(&self, batch: &Batch, writes: &[Write], after: &mut Sizes) -> Option<String> {
        if batch.pending.has_failed() {
            return Some(BEHIND.to_owned());
        }
        if writes.is_empty() {
            return None;
        }
        if let Some(reason) = self.condition.refusing() {
            return Some(reason);
        }
        let mut changed = Vec::new();
        let mut total = after.total;
        for write in writes {
            let (doc, size) = match write {
                Write::Append { doc, head, .. } | Write::Replace { doc, head, .. } => {
                    (doc, head.size)
                }
                Write::Delete { doc } => (doc, 0),
            };
            let earlier = changed.iter().rev().find(|(known, _)| known == doc);
            let before = earlier.map(|(_, size)| *size);
            let before = before.or_else(|| after.changed.get(doc).copied());
            let before = before.or_else(|| self.sizes.get(doc).copied());
            total = total
                .saturating_sub(before.unwrap_or(0))
                .saturating_add(size);
            changed.push((doc.clone(), size));
        }
        // A store that is too large may still shrink.
        if total > after.total
            && let Some(reason) = self.condition.too_large(total)
        {
            return Some(reason);
        }
        after.total = total;
        after.changed.extend(changed);
        None
    }

    fn failed(&mut self, error: &StoreError) {
        tracing::error!(%error, "changes are refused until the store can be written again; documents can still be read");
        self.refuse(error.to_string());
        let wait = self.retry.map_or(RETRY.0, |(_, wait)| wait);
        self.retry = Some((Instant::now() + wait, wait));
        // Reading goes on at once; whether there is room to write is found out later.
        let _ = self.store.recover();
    }

    fn refuse(&self, reason: String) {
        self.condition.refuse(Some(reason.clone()));
        (self.on_status)(StoreStatus::ReadOnly { reason });
    }

    fn recover(&mut self) {
        let Some((_, wait)) = self.retry else {
            return;
        };
        match self.store.recover() {
            Ok(()) => {
                tracing::info!("changes are accepted again");
                self.retry = None;
                self.condition.refuse(None);
                (self.on_status)(StoreStatus::Writable);
            }
            Err(error @ (StoreError::NotAStore { .. } | StoreError::InUse { .. })) => {
                tracing::error!(%error, "the document store cannot be used any more: changes are refused until this program is started again");
                let reason = error.to_string();
                self.condition.refuse(Some(reason.clone()));
                self.retry = None;
                (self.on_status)(StoreStatus::Lost { reason });
            }
            Err(error) => {
                let wait = (wait * 2).min(RETRY.1);
                let seconds = wait.as_secs();
                tracing::warn!(%error, "changes are still refused; the next attempt is in {seconds} s");
                self.retry = Some((Instant::now() + wait, wait));
            }
        }
    }
}

/// The stored bytes after a commit.
struct Sizes {
    total: u64,
    /// The new sizes of the documents that the commit changes.
    changed: HashMap<DocId, u64>,
}

/// All batches that wait, up to the size of one commit. A batch that takes over a deletion by other nodes is
/// the last one of its commit: that deletion does not affect the batches after it.
fn collect(first: Batch, batches: &Receiver<Batch>) -> Vec<Batch> {
    let mut bytes = weight(&first);
    let mut waiting = vec![first];
    while bytes < COMMIT_BYTES
        && !waiting.last().is_some_and(takes_deletion)
        && let Ok(next) = batches.try_recv()
    {
        bytes += weight(&next);
        waiting.push(next);
    }
    waiting
}

fn takes_deletion(batch: &Batch) -> bool {
    let deleted =
        |(_, finished): &(TaskId, Finished)| matches!(finished.result, Ok(Outcome::Deleted(_)));
    batch.of_others.is_some() && batch.task.as_ref().is_some_and(deleted)
}

fn weight(batch: &Batch) -> usize {
    let bytes = batch.writes.iter().map(|write| match write {
        Write::Append { data, .. } | Write::Replace { data, .. } => data.len(),
        Write::Delete { .. } => 0,
    });
    bytes.sum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use std::sync::mpsc;

    use bytes::Bytes;

    use super::*;
    use crate::store::{MemoryStore, StoreReader};

    /// It can be read, and not written.
    struct Full;

    impl Store for Full {
        fn documents(&self) -> Result<Vec<(DocId, Head)>, StoreError> {
            Ok(Vec::new())
        }

        fn commit(&mut self, _: &[Write]) -> Result<(), StoreError> {
            Err(StoreError::Disk {
                store: "full".to_owned(),
                doing: "writing",
                reason: "no space".to_owned(),
            })
        }

        fn reader(&self) -> Arc<dyn StoreReader> {
            MemoryStore::new().reader()
        }
    }

    /// A task of a document, which writes something or only has a result.
    fn batch(number: u64, doc: &str, pending: &Arc<PendingCommits>, writes: bool) -> Batch {
        pending.start();
        let append = Write::Append {
            doc: doc.into(),
            data: Bytes::from_static(b"change"),
            head: Head::default(),
        };
        let finished = Finished {
            head: Head::default(),
            local: None,
            result: Ok(Outcome::Local),
        };
        Batch {
            writes: writes.then_some(append).into_iter().collect(),
            task: Some((TaskId(number), finished)),
            of_others: None,
            pending: pending.clone(),
            _charge: None,
        }
    }

    // LORO-3
    #[test]
    fn what_rests_on_a_change_that_could_not_be_stored_fails_with_it() {
        let (to_finished, finished) = mpsc::channel();
        let to_finished = Mutex::new(to_finished);
        let on_finished: OnFinished = Arc::new(move |tasks| {
            for (id, task) in tasks {
                let failed = matches!(task.result, Err(WorkError::Store { .. }));
                let _ = lock(&to_finished).send((id.0, failed));
            }
        });
        let condition = Arc::new(Condition::new(0, u64::MAX));
        let on_status: OnStatus = Arc::new(|_| {});
        let mut committer = Committer::new(Box::new(Full), &[], condition, on_finished, on_status);
        let (one, other) = (Arc::default(), Arc::default());
        committer.commit(vec![
            batch(1, "one", &one, false),
            batch(2, "one", &one, true),
            batch(3, "one", &one, false),
            batch(4, "other", &other, false),
        ]);
        let told: Vec<_> = finished.try_iter().collect();
        assert_eq!(told, [(1, false), (2, true), (3, true), (4, false)]);
    }
}
