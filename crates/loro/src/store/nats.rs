//! A store that several nodes share: a stream of NATS JetStream with a topic for each document.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use breakbulk_link::lock;
use breakbulk_net::nats::journal::{
    AppendError, Journal, JournalOptions, News, Record, Tail, WhenFull,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::shared::{self, SharedDocuments};
use super::{Kept, OnOthers, Others, Store, StoreError, StoreReader, Write};
use crate::machine::{DocId, Head};

/// How long a commit waits for servers that are away; peers get no responses meanwhile. After that documents
/// can be read, and changes are refused until the servers are back.
const OUTAGE: Duration = Duration::from_secs(30);

/// The largest record: no node stores a larger document ([`Limits::document_bytes`](crate::Limits)).
const LARGEST: usize = u32::MAX as usize;

/// How many documents of one commit are stored at a time.
const AT_ONCE: usize = 32;

/// Documents on NATS JetStream that several nodes share.
///
/// What one node stores all others get, and pass on to their peers; a change counts as stored when most of
/// the stream's replicas have it. Every node keeps all documents in memory, as they are stored.
///
/// The node that changes a document also compacts it: a snapshot takes the place of the updates before it,
/// if it contains all of them.
#[derive(Debug)]
pub struct NatsStore {
    inner: Arc<Inner>,
    runtime: Handle,
    reading: AbortHandle,
}

struct Inner {
    journal: Journal,
    name: String,
    documents: Mutex<SharedDocuments>,
    /// Counts the records that were read.
    read: watch::Sender<u64>,
    notify: Mutex<Option<OnOthers>>,
    /// Why the stream can never be used again.
    lost: Mutex<Option<String>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = f.debug_struct("Inner");
        text.field("name", &self.name).finish_non_exhaustive()
    }
}

impl NatsStore {
    /// Opens the store at `nats://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…]/STREAM[?replicas=3][&creds=FILE]`,
    /// and reads all documents. The stream is created if there is none; one that is there stays as it is.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn open(address: &str) -> Result<Self, StoreError> {
        let failed = |reason: String| StoreError::Shared {
            store: "on NATS".to_owned(),
            reason,
        };
        let mut options =
            JournalOptions::parse(address).map_err(|error| failed(error.to_string()))?;
        options.when_full = WhenFull::RefuseNew;
        options.outage = OUTAGE;
        options.max_record = LARGEST;
        let opened = Journal::open(&options).await;
        let (journal, mut tail) = opened.map_err(|error| failed(error.to_string()))?;
        let inner = Arc::new(Inner {
            name: journal.name(),
            journal,
            documents: Mutex::default(),
            read: watch::Sender::new(0),
            notify: Mutex::default(),
            lost: Mutex::default(),
        });
        loop {
            match tail.next().await {
                Some(News::Record(record)) => inner.take(&record).map_err(failed)?,
                Some(News::CaughtUp { .. }) => break,
                Some(News::Lost { reason }) => return Err(failed(reason)),
                None => return Err(failed("it cannot be read".to_owned())),
            }
        }
        let reading = tokio::spawn(inner.clone().follow(tail));
        Ok(Self {
            inner,
            runtime: Handle::current(),
            reading: reading.abort_handle(),
        })
    }
}

impl Drop for NatsStore {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Inner {
    fn documents(&self) -> MutexGuard<'_, SharedDocuments> {
        lock(&self.documents)
    }

    /// Reads what all nodes store, until the stream is lost.
    async fn follow(self: Arc<Self>, mut tail: Tail) {
        let lost = loop {
            match tail.next().await {
                Some(News::Record(record)) => {
                    if let Err(reason) = self.take(&record) {
                        break reason;
                    }
                }
                Some(News::CaughtUp { .. }) => {}
                Some(News::Lost { reason }) => break reason,
                None => break "it cannot be read any more".to_owned(),
            }
        };
        tracing::error!(
            store = self.name,
            reason = lost,
            "the shared document store cannot be used any more; start this program again"
        );
        *lock(&self.lost) = Some(lost);
        self.read.send_modify(|read| *read += 1);
    }

    fn take(self: &Arc<Self>, record: &Record) -> Result<(), String> {
        let read = shared::read(&record.bytes);
        let (doc, changes) =
            read.map_err(|reason| format!("message {}: {reason}", record.place))?;
        let (notify, useless) = {
            let mut documents = self.documents();
            let notify = documents.read(&doc, record.place, &changes, record.own);
            (notify, documents.hold(&doc, &record.messages, &changes))
        };
        self.read.send_modify(|read| *read += 1);
        if notify {
            self.notify(&doc);
        }
        // The writer of a snapshot or a deletion deletes the messages that it makes useless. If that node is
        // killed before, they stay until a node that was started later compacts the document.
        if record.own && !useless.is_empty() {
            tokio::spawn(self.clone().forget(doc, useless));
        }
        Ok(())
    }

    async fn forget(self: Arc<Self>, doc: DocId, useless: Vec<u64>) {
        if let Err(error) = self.journal.forget(&useless).await {
            tracing::debug!(%error, doc = &*doc, "old updates stay until the next compaction");
            self.documents().hold_again(&doc, error.messages);
        }
    }

    fn notify(&self, doc: &DocId) {
        let notify = lock(&self.notify).clone();
        if let Some(notify) = notify {
            notify(doc);
        }
    }

    fn failed(&self, reason: impl Into<String>) -> StoreError {
        StoreError::Shared {
            store: self.name.clone(),
            reason: reason.into(),
        }
    }

    fn check_lost(&self) -> Result<(), StoreError> {
        match &*lock(&self.lost) {
            Some(reason) => Err(StoreError::NotAStore {
                store: self.name.clone(),
                expected: 1,
                reason: reason.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Stores the writes of one document.
    async fn commit(&self, doc: &DocId, writes: &[Write]) -> Result<(), StoreError> {
        let stored = self.store(doc, writes).await;
        if self.documents().end(doc, stored.is_err()) {
            self.notify(doc);
        }
        stored
    }

    /// Stores writes after whatever others stored.
    async fn store(&self, doc: &DocId, writes: &[Write]) -> Result<(), StoreError> {
        let topic = shared::topic(doc);
        let mut read = self.read.subscribe();
        loop {
            self.check_lost()?;
            read.mark_unchanged();
            let plan = self.documents().plan(doc, writes);
            if plan.changes.is_empty() {
                return Ok(());
            }
            let record = shared::write(doc, &plan.changes);
            self.documents().begin(doc, &plan.changes);
            match self.journal.append(&topic, plan.after, record).await {
                Ok(place) => {
                    self.documents().apply(doc, place, &plan.changes, true);
                    return Ok(());
                }
                Err(AppendError::Overtaken { .. }) => {
                    let news = async {
                        while self.documents().place(doc) <= plan.after
                            && read.changed().await.is_ok()
                        {
                            if lock(&self.lost).is_some() {
                                break;
                            }
                        }
                    };
                    if timeout(OUTAGE, news).await.is_err() {
                        return Err(self.failed("what other nodes stored cannot be read"));
                    }
                }
                Err(error) => return Err(self.failed(error.to_string())),
            }
        }
    }
}

impl Store for NatsStore {
    fn documents(&self) -> Result<Vec<(DocId, Head)>, StoreError> {
        Ok(self.inner.documents().heads())
    }

    /// A failed commit may be stored in part. Updates commute and can be stored twice, so a writer that sends
    /// them again does no harm; what was stored nevertheless is reported as if another node had stored it.
    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let mut by_doc: BTreeMap<DocId, Vec<Write>> = BTreeMap::new();
        for write in writes {
            let (Write::Append { doc, .. } | Write::Replace { doc, .. } | Write::Delete { doc }) =
                write;
            by_doc.entry(doc.clone()).or_default().push(write.clone());
        }
        let inner = self.inner.clone();
        self.runtime.block_on(async move {
            let mut committing = JoinSet::new();
            let mut outcome = Ok(());
            let docs: Vec<DocId> = by_doc.keys().cloned().collect();
            for (doc, writes) in by_doc {
                if committing.len() >= AT_ONCE {
                    outcome = outcome.and(joined(&inner, committing.join_next().await));
                }
                let inner = inner.clone();
                committing.spawn(async move { inner.commit(&doc, &writes).await });
            }
            while let Some(ended) = committing.join_next().await {
                outcome = outcome.and(joined(&inner, Some(ended)));
            }
            if outcome.is_err() && docs.len() > 1 {
                for doc in &docs {
                    if inner.documents().failed_beside(doc) {
                        inner.notify(doc);
                    }
                }
            }
            outcome
        })
    }

    fn recover(&mut self) -> Result<(), StoreError> {
        self.inner.check_lost()?;
        let checked = self.runtime.block_on(self.inner.journal.check());
        checked.map_err(|error| self.inner.failed(error.to_string()))
    }

    fn reader(&self) -> Arc<dyn StoreReader> {
        self.inner.clone()
    }

    fn on_others(&mut self, notify: OnOthers) {
        *lock(&self.inner.notify) = Some(notify);
        self.inner.documents().start();
    }

    fn absorb(&mut self, doc: &DocId, deletions: u64) {
        self.inner.documents().absorb(doc, deletions);
    }
}

fn joined(
    inner: &Inner,
    ended: Option<Result<Result<(), StoreError>, tokio::task::JoinError>>,
) -> Result<(), StoreError> {
    match ended {
        Some(Ok(outcome)) => outcome,
        Some(Err(error)) => Err(inner.failed(error.to_string())),
        None => Ok(()),
    }
}

impl StoreReader for Inner {
    fn load(&self, doc: &str) -> Result<Kept, StoreError> {
        Ok(self.documents().load(doc))
    }

    fn others(&self, doc: &str) -> Others {
        let (others, more) = self.documents().take(doc);
        if more {
            self.notify(&doc.into());
        }
        others
    }
}
