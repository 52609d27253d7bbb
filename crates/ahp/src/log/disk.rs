//! A log that survives the process and the machine: one redb file.
//!
//! Three tables. `meta` says which run of numbers is kept, `index` has a small row for each action
//! (its channel and its size), `params` the JSON in parts. They are apart so that a replay of one
//! channel reads nothing of the others, and so that trimming learns sizes without reading.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use redb::{
    Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable,
    StorageBackend, Table, TableDefinition,
};

use super::window::{Admission, Window};
use super::{Entry, Limits, LogError, Replay, ReplayLog, ReplayReader, cost, disk_open};

/// The version of the tables; a file with another one is not opened.
pub(super) const FORMAT: i64 = 1;
/// The rows of [`META`].
pub(super) const FORMAT_ROW: &str = "format";
pub(super) const FLOOR_ROW: &str = "floor";
pub(super) const LAST_ROW: &str = "last";

pub(super) const META: TableDefinition<'static, &str, i64> =
    TableDefinition::new("breakbulk.replay.meta");
/// Number to channel and bytes of params.
pub(super) const INDEX: TableDefinition<'static, i64, (&str, u64)> =
    TableDefinition::new("breakbulk.replay.index");
/// Number and part to the bytes of that part; an action without params has no part.
pub(super) const PARAMS: TableDefinition<'static, (i64, u32), &[u8]> =
    TableDefinition::new("breakbulk.replay.params");

/// The size of a part: it fills 16 pages except for the header. A row takes a power of two of pages: 24 MB
/// in one row were measured to take 32 MB, to be written twice, and to leave a file of four times the
/// limit.
const PART: usize = (64 << 10) - 64;

/// A replay log on disk: an append returns when the batch is on the disk, with one transaction and one
/// sync.
///
/// A file belongs to one host: it stays locked until the log is dropped. Trimming is part of the append
/// that made it necessary. Freed pages are used again, so the file settles at a small multiple of
/// [`Limits::bytes`] and does not shrink.
#[derive(Debug)]
pub struct DiskLog {
    store: Store,
    limits: Limits,
    window: Window,
    /// An append failed, and the disk may or may not have its batch.
    failed: bool,
    blocks: bool,
}

/// The database, and its name in errors.
#[derive(Debug)]
struct Store {
    db: Arc<Database>,
    log: Arc<str>,
}

/// Reads the database, but does not keep its file open and locked.
struct Reader {
    db: Weak<Database>,
    log: Arc<str>,
}

impl DiskLog {
    /// Opens the log in this file, or creates it. All of the file is read once and checked. Smaller limits
    /// than before take effect with the next append.
    pub fn open(path: impl AsRef<Path>, limits: Limits) -> Result<Self, LogError> {
        let path = path.as_ref();
        let log = path.display().to_string();
        let opened = disk_open::guarded(&log, || disk_open::file(path, &log));
        Ok(Self::with(opened?, log, limits, true))
    }

    /// Opens the log in another storage, which is assumed to be memory: see [`DiskLog::inline`] if it is
    /// not.
    pub fn with_backend(backend: impl StorageBackend, limits: Limits) -> Result<Self, LogError> {
        let log = "in its own storage".to_string();
        let opened = disk_open::guarded(&log, || disk_open::backend(backend, &log));
        Ok(Self::with(opened?, log, limits, false))
    }

    fn with(opened: (Database, Window), log: String, limits: Limits, blocks: bool) -> Self {
        let (db, window) = opened;
        Self {
            store: Store {
                db: Arc::new(db),
                log: log.into(),
            },
            limits,
            window,
            failed: false,
            blocks,
        }
    }

    /// Sets whether appends run on the caller's async thread, whatever the storage is: true makes
    /// [`ReplayLog::blocks`] false. With a fast disk, in a program with little else to do, that saves the
    /// change of threads.
    #[must_use]
    pub fn inline(mut self, inline: bool) -> Self {
        self.blocks = !inline;
        self
    }
}

impl ReplayLog for DiskLog {
    fn last(&self) -> i64 {
        self.window.last
    }

    fn append(&mut self, batch: &[Entry]) -> Result<(), LogError> {
        if self.failed {
            return Err(LogError::Failed {
                log: self.store.log.to_string(),
            });
        }
        let admission = self.window.admit(batch, self.limits)?;
        if batch.is_empty() {
            return Ok(());
        }
        // Unless the write succeeds, it is unknown which number comes next.
        self.failed = true;
        let written = self
            .store
            .write(self.window, &admission, batch, self.limits);
        self.window = written.map_err(|e| from_redb(&self.store.log, "appending", e))?;
        self.failed = false;
        Ok(())
    }

    fn reader(&self) -> Arc<dyn ReplayReader> {
        Arc::new(Reader {
            db: Arc::downgrade(&self.store.db),
            log: self.store.log.clone(),
        })
    }

    fn blocks(&self) -> bool {
        self.blocks
    }
}

impl Store {
    /// Trims, inserts, and updates the numbers, in one transaction.
    fn write(
        &self,
        window: Window,
        admission: &Admission,
        batch: &[Entry],
        limits: Limits,
    ) -> Result<Window, redb::Error> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let next = {
            let mut meta = transaction.open_table(META)?;
            let mut index = transaction.open_table(INDEX)?;
            let mut params = transaction.open_table(PARAMS)?;
            let costs = index.range::<i64>(..)?.map(|row| {
                row.map(|(_, value)| {
                    let (channel, size) = value.value();
                    cost(channel.len(), size)
                })
            });
            let next = window.after(admission, batch, limits, costs)?;
            let new = batch.get(admission.keep_from..).unwrap_or_default();
            trim(&mut index, &mut params, &window, &next)?;
            insert(&mut index, &mut params, new)?;
            meta.insert(FLOOR_ROW, next.floor)?;
            meta.insert(LAST_ROW, next.last)?;
            next
        };
        transaction.commit()?;
        Ok(next)
    }
}

/// Removes what is no longer in the window.
fn trim(
    index: &mut Table<'_, i64, (&'static str, u64)>,
    params: &mut Table<'_, (i64, u32), &'static [u8]>,
    now: &Window,
    next: &Window,
) -> Result<(), redb::StorageError> {
    for seq in now.floor..next.floor.min(now.last) {
        let seq = seq + 1;
        let Some(row) = index.remove(seq)? else {
            continue;
        };
        let (_, size) = row.value();
        for part in 0..parts(size) {
            params.remove((seq, part as u32))?;
        }
    }
    Ok(())
}

fn insert(
    index: &mut Table<'_, i64, (&'static str, u64)>,
    params: &mut Table<'_, (i64, u32), &'static [u8]>,
    new: &[Entry],
) -> Result<(), redb::StorageError> {
    for entry in new {
        let size = entry.params.len() as u64;
        index.insert(entry.seq, (&*entry.channel, size))?;
        for (part, bytes) in entry.params.chunks(PART).enumerate() {
            params.insert((entry.seq, part as u32), bytes)?;
        }
    }
    Ok(())
}

/// The number of parts for this many bytes of params.
pub(super) fn parts(size: u64) -> u64 {
    size.div_ceil(PART as u64)
}

impl ReplayReader for Reader {
    fn since(
        &self,
        seq: i64,
        upto: i64,
        wants: &dyn Fn(&str) -> bool,
        max_bytes: usize,
    ) -> Result<Replay, LogError> {
        let Some(db) = self.db.upgrade() else {
            return Err(LogError::Closed {
                log: self.log.to_string(),
            });
        };
        // A read transaction does not see what is appended and trimmed meanwhile.
        db.begin_read()
            .map_err(redb::Error::from)
            .and_then(|transaction| read(&transaction, seq, upto, wants, max_bytes))
            .map_err(|e| from_redb(&self.log, "reading a replay", e))
    }
}

fn read(
    transaction: &ReadTransaction,
    seq: i64,
    upto: i64,
    wants: &dyn Fn(&str) -> bool,
    max_bytes: usize,
) -> Result<Replay, redb::Error> {
    let meta = transaction.open_table(META)?;
    let number = |row: &str| Ok::<_, redb::Error>(meta.get(row)?.map_or(0, |v| v.value()));
    let window = Window {
        floor: number(FLOOR_ROW)?,
        last: number(LAST_ROW)?,
        bytes: 0,
    };
    if let Some(gone) = window.missing(seq) {
        return Ok(gone);
    }
    let mut actions = Vec::new();
    if upto <= seq {
        return Ok(Replay::Actions(actions));
    }
    let index = transaction.open_table(INDEX)?;
    let params = transaction.open_table(PARAMS)?;
    let mut names = BTreeSet::<Arc<str>>::new();
    let mut size = 0usize;
    for row in index.range::<i64>((Bound::Excluded(seq), Bound::Included(upto)))? {
        let (seq, value) = row?;
        let (channel, bytes) = value.value();
        if !wants(channel) {
            continue;
        }
        size = size.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
        if size > max_bytes {
            return Ok(Replay::TooLarge {
                size,
                limit: max_bytes,
            });
        }
        let channel = match names.get(channel) {
            Some(name) => name.clone(),
            None => {
                let name = Arc::<str>::from(channel);
                names.insert(name.clone());
                name
            }
        };
        actions.push(Entry {
            seq: seq.value(),
            channel,
            params: join(&params, seq.value(), bytes)?,
        });
    }
    Ok(Replay::Actions(actions))
}

/// The params of one action, in one buffer.
fn join(
    params: &ReadOnlyTable<(i64, u32), &'static [u8]>,
    seq: i64,
    size: u64,
) -> Result<Bytes, redb::Error> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let mut whole = Vec::new();
    for row in params.range((seq, 0)..=(seq, u32::MAX))? {
        let (_, part) = row?;
        // Reserved only when a part exists: a damaged index may claim any size.
        whole.reserve_exact(size.saturating_sub(whole.len()));
        whole.extend_from_slice(part.value());
    }
    if whole.len() != size {
        let found = whole.len();
        let detail = format!("action {seq} has {found} bytes of params instead of {size}");
        return Err(redb::Error::Corrupted(detail));
    }
    Ok(whole.into())
}

/// Sorts redb's errors by what a person has to do about them.
pub(super) fn from_redb(log: &str, doing: &'static str, error: redb::Error) -> LogError {
    let log = log.to_string();
    match error {
        redb::Error::DatabaseAlreadyOpen => LogError::InUse { log },
        redb::Error::Corrupted(detail) => LogError::Corrupt { log, detail },
        redb::Error::TableTypeMismatch { .. }
        | redb::Error::TableIsMultimap(_)
        | redb::Error::TypeDefinitionChanged { .. }
        | redb::Error::UpgradeRequired(_) => LogError::NotALog {
            log,
            detail: error.to_string(),
        },
        redb::Error::TableDoesNotExist(_) | redb::Error::RepairAborted => LogError::Corrupt {
            log,
            detail: error.to_string(),
        },
        redb::Error::Io(e)
            if matches!(
                e.kind(),
                std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof
            ) =>
        {
            LogError::Corrupt {
                log,
                detail: e.to_string(),
            }
        }
        error => LogError::Storage {
            log,
            doing,
            source: Box::new(error),
        },
    }
}
