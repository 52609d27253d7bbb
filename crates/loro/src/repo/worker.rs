//! One worker thread: runs the tasks of its documents in the order of its queue, loads them on demand and
//! unloads the least recently used.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use breakbulk_message::loro::{Transmission, VersionVector};
use bytes::Bytes;

use super::commit::{Batch, PendingCommits};
use super::condition::Condition;
use super::crdt::{self, CrdtError, from_wire, to_wire};
use super::expansion::{self, Oversized};
use super::loaded::Loaded;
use super::queue::{Next, Queue};
use super::room::Room;
use super::together::Together;
use super::{Job, OnEdit, Request};
use crate::limits::Limits;
use crate::machine::{DocId, Finished, Head, Outcome, Work, WorkError, covers, is_nothing};
use crate::store::{StoreReader, Write};

/// Bytes of changes that `loro` may hold for a document until earlier ones come; no other limit counts
/// them.
const GAP_BYTES: usize = 4 << 20;

/// How soon documents that could not be unloaded are looked at again.
const AGAIN: Duration = Duration::from_millis(100);

/// How many requests are put into the queue at a time.
const AT_ONCE: usize = 1024;

pub(super) struct Worker {
    pub(super) reader: Arc<dyn StoreReader>,
    pub(super) condition: Arc<Condition>,
    pub(super) limits: Limits,
    pub(super) on_edit: OnEdit,
    pub(super) docs: HashMap<DocId, Loaded>,
    /// The document whose changes by other nodes this task took over, and how often they deleted it.
    pub(super) taken: Option<(DocId, u64)>,
    room: Arc<Room>,
    /// The bytes of this worker's loaded documents as counted in `room`.
    counted: u64,
    clock: u64,
}

/// Edits of the application that were flushed before the task, and the task's result.
pub(super) type Ran = (Option<Transmission>, Result<Outcome, WorkError>);

impl Worker {
    pub(super) fn new(
        reader: Arc<dyn StoreReader>,
        condition: Arc<Condition>,
        limits: Limits,
        room: Arc<Room>,
        on_edit: OnEdit,
    ) -> Self {
        Self {
            reader,
            condition,
            limits,
            on_edit,
            docs: HashMap::new(),
            taken: None,
            room,
            counted: 0,
            clock: 0,
        }
    }

    pub(super) fn run(mut self, requests: &Receiver<Request>, committer: &Sender<Batch>) {
        let mut exceeded = false;
        let mut queue = Queue::default();
        loop {
            if queue.is_empty() {
                // If documents could not be unloaded because they are not stored yet, tries again soon.
                let wait = if exceeded {
                    AGAIN
                } else {
                    Duration::from_secs(3600)
                };
                match requests.recv_timeout(wait) {
                    Ok(request) => queue.push(request),
                    Err(RecvTimeoutError::Timeout) => {
                        exceeded = self.make_room();
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            // Newer requests may go before those that wait.
            for request in requests.try_iter().take(AT_ONCE) {
                queue.push(request);
            }
            // Frees memory before more is loaded.
            self.make_room();
            match queue.next() {
                Some(Next::Edits(jobs)) => self.store_edits(jobs, committer),
                Some(Next::Imports(jobs)) => self.import_first(jobs, &mut queue, committer),
                Some(Next::Other(request)) => self.serve(request, committer),
                None => {}
            }
            exceeded = self.make_room();
        }
    }

    fn serve(&mut self, request: Request, committer: &Sender<Batch>) {
        match request {
            Request::Task(job) => self.run_task(job, committer),
            Request::Open(doc, reply) => {
                let on_edit = self.on_edit.clone();
                reply(self.load(&doc).map(|loaded| loaded.open(&on_edit)));
            }
            Request::Close(doc) => {
                if let Some(loaded) = self.docs.get_mut(&doc) {
                    loaded.release();
                }
            }
        }
    }

    fn run_task(&mut self, mut job: Job, committer: &Sender<Batch>) {
        let mut writes = Vec::new();
        let finished = match job.is_cancelled() {
            true => cancelled(),
            false => {
                let work = std::mem::replace(&mut job.work, Work::Local);
                self.work(&job.doc, work, &mut writes)
            }
        };
        self.report(job, writes, finished, committer);
    }

    /// Passes on the result of a task, to be reported once it is stored.
    fn report(
        &mut self,
        job: Job,
        writes: Vec<Write>,
        finished: Finished,
        committer: &Sender<Batch>,
    ) {
        let pending = match &finished.result {
            Err(WorkError::Cancelled) => Arc::default(),
            _ => self.pending(&job.doc),
        };
        pending.start();
        let _ = committer.send(Batch {
            writes,
            task: Some((job.id, finished)),
            of_others: self.taken.take(),
            pending,
            _charge: job.charge,
        });
    }

    fn pending(&self, doc: &DocId) -> Arc<PendingCommits> {
        let loaded = self.docs.get(doc);
        loaded.map_or_else(Arc::default, |loaded| loaded.pending.clone())
    }

    /// Stores the edits of a document for all tasks that ask for it.
    fn store_edits(&mut self, jobs: Vec<Job>, committer: &Sender<Batch>) {
        let mut jobs = jobs.into_iter();
        let Some(first) = jobs.next() else {
            return;
        };
        let mut writes = Vec::new();
        let finished = self.work(&first.doc, Work::Local, &mut writes);
        let same = Finished {
            local: None,
            ..finished.clone()
        };
        self.report(first, writes, finished, committer);
        for job in jobs {
            self.report(job, Vec::new(), same.clone(), committer);
        }
    }

    /// Imports changes into one document: together, or the first one alone. The others have another turn, so
    /// that no edit waits for more than one import.
    fn import_first(&mut self, mut jobs: Vec<Job>, queue: &mut Queue, committer: &Sender<Batch>) {
        let Some(doc) = jobs.first().map(|job| job.doc.clone()) else {
            return;
        };
        let mut alone = 0;
        match self.import_together(&doc, &jobs) {
            Together::Imported(imported) => {
                let done = jobs.drain(..imported.len());
                for (job, (writes, finished)) in done.zip(imported) {
                    self.report(job, writes, finished, committer);
                }
            }
            Together::OneByOne(count) => {
                alone = count - 1;
                self.run_task(jobs.remove(0), committer);
            }
        }
        queue.put_back(jobs, alone);
    }

    fn work(&mut self, doc: &DocId, work: Work, writes: &mut Vec<Write>) -> Finished {
        let (local, result) = match self.attempt(doc, work, writes) {
            Ok(ran) => ran,
            Err(error) => (None, Err(error)),
        };
        Finished {
            head: self.docs.get(doc).map_or_else(Head::default, Loaded::head),
            local,
            result,
        }
    }

    fn attempt(
        &mut self,
        doc: &DocId,
        work: Work,
        writes: &mut Vec<Write>,
    ) -> Result<Ran, WorkError> {
        let limit = self.limits.document_bytes;
        if let Work::Others { since } = &work {
            return self.take_others(doc, since, writes);
        }
        if let Work::Import { data, .. } = &work {
            self.check_import(doc, data)?;
        }
        let refusing = self.condition.refusing();
        let loaded = match (self.load(doc), &work) {
            (Err(WorkError::Damaged { .. }), Work::Delete) => {
                writes.push(Write::Delete { doc: doc.clone() });
                return Ok((None, Ok(Outcome::Deleted(true))));
            }
            (loaded, _) => loaded?,
        };
        let flushed = match &refusing {
            None => loaded.flush(writes),
            Some(_) => Ok(None),
        };
        let (local, failed) = match flushed {
            Ok(local) => (local, None),
            Err(error) => (None, Some(error)),
        };
        // No peer may see edits that are not stored.
        if let Some(reason) = refusing
            && loaded.has_edits()
        {
            return Ok((None, Err(WorkError::Store { reason })));
        }
        let outcome = match (failed, work) {
            (Some(error), _) => Err(error),
            (None, Work::Import { data, snapshot }) => {
                if let Some(error) = too_large(doc, loaded, data.len(), limit, writes) {
                    return Ok((local, Err(error)));
                }
                import(loaded, data, snapshot, writes)
            }
            (None, Work::Answer { since }) => answer(loaded, &since).map(Outcome::Answer),
            (None, Work::Local | Work::Others { .. }) => Ok(Outcome::Local),
            (None, Work::Delete) => {
                let was = loaded.size() > 0;
                let on_edit = self.on_edit.clone();
                let Some(loaded) = self.docs.get_mut(doc) else {
                    return Ok((local, Ok(Outcome::Deleted(false))));
                };
                loaded.clear(&on_edit);
                writes.clear();
                writes.push(Write::Delete { doc: doc.clone() });
                return Ok((None, Ok(Outcome::Deleted(was))));
            }
        };
        match outcome {
            Ok(outcome) => {
                let local = self.compact_or_reload(doc, local, writes);
                Ok((local, Ok(outcome)))
            }
            Err(error) => {
                if let CrdtError::Panicked = error {
                    self.reload(doc, writes)?;
                }
                Ok((local, Err(garbage(doc, &error))))
            }
        }
    }

    /// Refuses changes that cannot be stored or that would become too large, before anything is loaded or
    /// decompressed for them.
    fn check_import(&self, doc: &DocId, data: &Bytes) -> Result<(), WorkError> {
        if let Some(reason) = self.condition.refusal(data.len()) {
            return Err(WorkError::Store { reason });
        }
        let limit = self.limits.expanded_bytes;
        let name = || doc.to_string();
        match expansion::check(data, limit) {
            Ok(()) => {}
            Err(Oversized::Expands(limit)) => {
                return Err(WorkError::Expands { doc: name(), limit });
            }
            Err(refused) => {
                let reason = match refused {
                    Oversized::Slow => {
                        "its texts are in so many pieces that reading them takes too long; send updates instead of a snapshot"
                    }
                    _ => "loro does not write such bytes",
                };
                return Err(WorkError::Garbage {
                    doc: name(),
                    reason: reason.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Compacts the document if it is time; reloads it if it holds too many changes with a gap.
    pub(super) fn compact_or_reload(
        &mut self,
        doc: &DocId,
        local: Option<Transmission>,
        writes: &mut Vec<Write>,
    ) -> Option<Transmission> {
        let loaded = self.docs.get_mut(doc)?;
        if loaded.gaps > GAP_BYTES {
            if let Err(error) = self.reload(doc, writes) {
                tracing::warn!(%error, doc = &**doc, "a document could not be reloaded from the store");
            }
            return local;
        }
        if loaded.wants_compaction()
            && self.condition.refusing().is_none()
            && let Err(error) = loaded.compact(writes)
        {
            tracing::warn!(
                %error,
                doc = &**doc,
                "a document could not be compacted; its updates stay as they are"
            );
        }
        local
    }

    /// Loads a document that may be corrupted again from the store.
    pub(super) fn reload(&mut self, doc: &DocId, writes: &mut [Write]) -> Result<(), WorkError> {
        let Some(mut corrupted) = self.docs.remove(doc) else {
            return Ok(());
        };
        // Wait for its earlier commits; this task's own writes are imported below.
        corrupted.pending.wait();
        let on_edit = self.on_edit.clone();
        let fresh = self.load(doc)?;
        for write in writes.iter() {
            if let Write::Append { data, .. } = write {
                let _ = crdt::import(&fresh.doc, data);
                fresh.update_bytes += data.len() as u64;
            }
        }
        if let Ok(now) = crdt::version(&fresh.doc) {
            fresh.recorded = now;
        }
        fresh.adopt_holders(&mut corrupted, &on_edit);
        Ok(())
    }

    /// Makes a document whose changes could not be stored agree with the store again. Edits of the
    /// application stay, to be stored later.
    fn restore(&mut self, doc: &DocId) -> Result<(), WorkError> {
        let Some(mut ahead) = self.docs.remove(doc) else {
            return Ok(());
        };
        ahead.pending.wait();
        if ahead.holders > 0 && ahead.roll_back() {
            self.docs.insert(doc.clone(), ahead);
            return Ok(());
        }
        let on_edit = self.on_edit.clone();
        match self.load(doc) {
            Ok(fresh) if ahead.holders > 0 => fresh.adopt_holders(&mut ahead, &on_edit),
            Ok(_) => {}
            Err(error) => {
                // The holders wait for the document to be readable again.
                if ahead.holders > 0 {
                    self.docs.insert(doc.clone(), ahead);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) fn load(&mut self, doc: &DocId) -> Result<&mut Loaded, WorkError> {
        self.clock += 1;
        if self
            .docs
            .get(doc)
            .is_some_and(|loaded| loaded.pending.has_failed())
        {
            self.restore(doc)?;
        }
        if !self.docs.contains_key(doc) {
            let kept = self.reader.load(doc).map_err(|error| WorkError::Store {
                reason: error.to_string(),
            })?;
            let loaded = Loaded::from_kept(doc, &kept).map_err(|reason| {
                let doc = doc.to_string();
                WorkError::Damaged { doc, reason }
            })?;
            self.docs.insert(doc.clone(), loaded);
        }
        let clock = self.clock;
        match self.docs.get_mut(doc) {
            Some(loaded) => {
                loaded.used = clock;
                Ok(loaded)
            }
            None => Err(WorkError::Damaged {
                doc: doc.to_string(),
                reason: "it is not there".to_owned(),
            }),
        }
    }

    /// Unloads the least recently used idle documents while the limits are exceeded. True: they still
    /// are, because of documents that are not stored yet or that the application has open.
    fn make_room(&mut self) -> bool {
        loop {
            let bytes: u64 = self.docs.values().map(Loaded::memory).sum();
            self.room.count(self.counted, bytes);
            self.counted = bytes;
            if !self.room.is_exceeded(self.docs.len(), bytes) {
                return false;
            }
            let idle = self.docs.iter().filter(|(_, loaded)| loaded.is_idle());
            let oldest = idle.min_by_key(|(_, loaded)| loaded.used);
            let Some(doc) = oldest.map(|(doc, _)| doc.clone()) else {
                return self.docs.values().any(|loaded| loaded.holders == 0);
            };
            self.docs.remove(&doc);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.room.count(self.counted, 0);
    }
}

/// Why a peer's changes are refused.
pub(super) fn garbage(doc: &DocId, error: &CrdtError) -> WorkError {
    WorkError::Garbage {
        doc: doc.to_string(),
        reason: error.to_string(),
    }
}

/// The result of a task that nobody waits for any more.
fn cancelled() -> Finished {
    Finished {
        head: Head::default(),
        local: None,
        result: Err(WorkError::Cancelled),
    }
}

/// Checks the size limit; compacts the document first if that may help.
fn too_large(
    doc: &DocId,
    loaded: &mut Loaded,
    more: usize,
    limit: u64,
    writes: &mut Vec<Write>,
) -> Option<WorkError> {
    let size = |loaded: &Loaded| loaded.size().saturating_add(more as u64);
    if size(loaded) > limit && (more as u64) <= limit && loaded.update_bytes > 0 {
        let _ = loaded.compact(writes);
    }
    let size = size(loaded);
    (size > limit).then(|| WorkError::TooLarge {
        doc: doc.to_string(),
        size,
        limit,
    })
}

fn import(
    loaded: &mut Loaded,
    data: Bytes,
    snapshot: bool,
    writes: &mut Vec<Write>,
) -> Result<Outcome, CrdtError> {
    let before = loaded.recorded.clone();
    let status = crdt::import(&loaded.doc, &data)?;
    loaded.record(&status);
    let gap = status.pending.is_some();
    // These changes may complete held ones, which were never stored.
    let unlocked = loaded.gaps > 0;
    if gap {
        loaded.hold(data.len(), &status);
    }
    loaded.release_held();
    if loaded.recorded == before {
        return Ok(if gap {
            Outcome::Gap
        } else {
            Outcome::Imported(None)
        });
    }
    let version = to_wire(&loaded.recorded);
    let first = before.is_empty();
    if gap || unlocked || (snapshot && !first) {
        // More or less than `data` is new: store and send exactly what is.
        let data = crdt::since(&loaded.doc, &before)?;
        loaded.append(data.clone(), writes);
        let news = Transmission::Update { data, version };
        return Ok(Outcome::Imported(Some(news)));
    }
    if snapshot {
        let head_data = data.clone();
        loaded.replace(head_data, writes);
        let news = Transmission::Snapshot { data, version };
        return Ok(Outcome::Imported(Some(news)));
    }
    loaded.append(data.clone(), writes);
    let news = Transmission::Update { data, version };
    Ok(Outcome::Imported(Some(news)))
}

/// What a peer with version `since` lacks.
fn answer(loaded: &mut Loaded, since: &VersionVector) -> Result<Transmission, CrdtError> {
    let version = to_wire(&loaded.recorded);
    // As in the original, a peer that has nothing gets a snapshot, even of an empty document.
    if is_nothing(since) {
        let data = loaded.snapshot()?;
        return Ok(Transmission::Snapshot { data, version });
    }
    if covers(since, &version) {
        return Ok(Transmission::UpToDate { version });
    }
    let data = crdt::since(&loaded.doc, &from_wire(since))?;
    Ok(Transmission::Update { data, version })
}
