//! A log that several hosts share: a stream of NATS JetStream.

use std::collections::VecDeque;
use std::sync::Arc;

use breakbulk_net::nats::journal::{
    AppendError, Journal, JournalOptions, News, Place, Record, Tail, WhenFull,
};
use tokio::runtime::Handle;

use super::shared_batch::{self, Names, SharedBatch};
use super::{Entry, Limits, LogError, MemoryLog, Others, ReplayLog, ReplayReader};

/// The topic of all actions.
const TOPIC: &str = "actions";

/// A stream keeps this many times the limit of the log: it also holds headers, and keeps whole batches only.
const STREAM: u64 = 4;

/// The least that a stream keeps, so that a batch is never half deleted before it is whole.
const STREAM_MIN: u64 = 256 << 20;

/// A replay log on NATS JetStream that several hosts share.
///
/// Each host appends its own actions and gets those of the others ([`ReplayLog::others`]), so that all have
/// the same actions under the same numbers, and a client that loses one host reconnects to any other. A
/// batch is visible once its last message is stored; the batch of a host that died in between is not.
///
/// Each host keeps what the log keeps in memory as well, within [`Limits`]: a client that reconnects is
/// answered from there, also while NATS is away. Appending then waits, for at most 5 minutes.
///
/// How safely actions are stored is up to the stream: with three replicas they survive the loss of one
/// server.
#[derive(Debug)]
pub struct NatsLog {
    journal: Journal,
    tail: Tail,
    kept: MemoryLog,
    names: Names,
    /// Batches of other hosts that were read and not taken yet.
    waiting: VecDeque<Record>,
    /// The place in the stream of the last batch that this host has.
    place: Place,
    log: String,
    runtime: Handle,
}

impl NatsLog {
    /// Opens the log at `nats://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…]/STREAM[?replicas=3][&creds=FILE]`, and
    /// reads what it has. The stream is created if there is none; one that is there stays as it is.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn open(address: &str, limits: Limits) -> Result<Self, LogError> {
        let failed = |error: &dyn std::error::Error| LogError::Address {
            reason: format!("the replay log cannot be opened: {error}"),
        };
        let mut options = JournalOptions::parse(address).map_err(|error| failed(&error))?;
        let max_bytes = limits.bytes.saturating_mul(STREAM).max(STREAM_MIN);
        options.when_full = WhenFull::DropOldest;
        options.max_bytes = Some(max_bytes);
        // A quarter of the stream: while a batch is written, what it pushes out is never a part of itself.
        options.max_record = usize::try_from(max_bytes / 4).unwrap_or(usize::MAX);
        let opened = Journal::open(&options).await;
        let (journal, tail) = opened.map_err(|error| failed(&error))?;
        let mut log = Self {
            log: journal.name(),
            journal,
            tail,
            kept: MemoryLog::new(limits),
            names: Names::default(),
            waiting: VecDeque::new(),
            place: 0,
            runtime: Handle::current(),
        };
        log.read_all().await?;
        Ok(log)
    }

    /// Reads what the stream has.
    async fn read_all(&mut self) -> Result<(), LogError> {
        loop {
            match self.news().await? {
                News::Record(record) => {
                    let batch = self.read(&record)?;
                    self.keep(record.place, &batch.entries)?;
                }
                News::CaughtUp { first, last } => {
                    if self.place == 0 && first > 1 {
                        let detail = format!(
                            "its {last} messages were deleted, and with them the number of the last action; \
                             delete the stream, and number actions above what clients have seen"
                        );
                        let log = self.log.clone();
                        return Err(LogError::Corrupt { log, detail });
                    }
                    return Ok(());
                }
                News::Lost { reason } => return Err(self.lost(reason)),
            }
        }
    }

    async fn news(&mut self) -> Result<News, LogError> {
        if let Some(record) = self.waiting.pop_front() {
            return Ok(News::Record(record));
        }
        let news = self.tail.next().await;
        news.ok_or_else(|| LogError::Failed {
            log: self.log.clone(),
        })
    }

    fn read(&mut self, record: &Record) -> Result<SharedBatch, LogError> {
        let read = shared_batch::read(&record.bytes, &mut self.names);
        read.map_err(|reason| LogError::Corrupt {
            log: self.log.clone(),
            detail: format!("message {}: {reason}", record.place),
        })
    }

    fn keep(&mut self, place: Place, entries: &[Entry]) -> Result<(), LogError> {
        self.kept.append(entries)?;
        self.place = place;
        Ok(())
    }

    /// The next batch of another host.
    async fn next_of_others(&mut self) -> Result<Vec<Entry>, LogError> {
        loop {
            match self.news().await? {
                News::Record(record) if record.place > self.place => {
                    let batch = self.read(&record)?;
                    let last = self.kept.last();
                    if batch.after != last {
                        return Err(LogError::Missed {
                            log: self.log.clone(),
                            last,
                            found: batch.after,
                        });
                    }
                    self.keep(record.place, &batch.entries)?;
                    return Ok(batch.entries);
                }
                // A batch of this host itself, which it has already.
                News::Record(_) | News::CaughtUp { .. } => {}
                News::Lost { reason } => return Err(self.lost(reason)),
            }
        }
    }

    /// Takes this host's own batches from the tail, up to the first of another host. True if there is one.
    fn skip_own(&mut self) -> Result<bool, LogError> {
        while self.waiting.is_empty()
            && let Some(news) = self.tail.try_next()
        {
            match news {
                News::Record(record) if record.place > self.place => self.waiting.push_back(record),
                News::Record(_) | News::CaughtUp { .. } => {}
                News::Lost { reason } => return Err(self.lost(reason)),
            }
        }
        Ok(!self.waiting.is_empty())
    }

    fn lost(&self, reason: String) -> LogError {
        LogError::Corrupt {
            log: self.log.clone(),
            detail: reason,
        }
    }

    fn storage(&self, error: AppendError) -> LogError {
        let log = self.log.clone();
        match error {
            AppendError::Overtaken { .. } => LogError::Overtaken { log },
            error => LogError::Storage {
                log,
                doing: "appending",
                source: Box::new(error),
            },
        }
    }
}

impl ReplayLog for NatsLog {
    fn last(&self) -> i64 {
        self.kept.last()
    }

    fn append(&mut self, batch: &[Entry]) -> Result<(), LogError> {
        let Some(first) = batch.first() else {
            return Ok(());
        };
        let last = self.kept.last();
        if first.seq <= last {
            return Err(LogError::OutOfOrder {
                last,
                got: first.seq,
            });
        }
        let rise = |pair: &[Entry]| pair[0].seq.checked_add(1) == Some(pair[1].seq);
        if let Some(wrong) = batch.windows(2).find(|pair| !rise(pair)) {
            return Err(LogError::OutOfOrder {
                last: wrong[0].seq,
                got: wrong[1].seq,
            });
        }
        if self.skip_own()? {
            let log = self.log.clone();
            return Err(LogError::Overtaken { log });
        }
        let record = shared_batch::write(last, batch);
        let appending = self.journal.append(TOPIC, self.place, record);
        let appended = self.runtime.block_on(appending);
        let place = appended.map_err(|error| self.storage(error))?;
        self.keep(place, batch)
    }

    fn others(&mut self) -> Others<'_> {
        Box::pin(self.next_of_others())
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn reader(&self) -> Arc<dyn ReplayReader> {
        self.kept.reader()
    }

    /// It waits for NATS.
    fn blocks(&self) -> bool {
        true
    }
}
