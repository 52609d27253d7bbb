//! A store on disk that survives crashes and power cuts: one redb file.
//!
//! Three tables. `heads` has each document's version and range of rows, `index` a small row per snapshot
//! or update, `parts` the bytes. A commit is one transaction and one fsync, however many documents it
//! touches.

mod open;

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use breakbulk_message::loro::VersionVector;
use bytes::Bytes;
use redb::{
    Builder, Database, Durability, ReadableDatabase, ReadableTable, StorageBackend, Table,
    TableDefinition, WriteTransaction,
};

use super::{Kept, Store, StoreError, StoreReader, Write};
use crate::machine::{DocId, Head};
use open::{Lease, Open};

/// The version of the tables; a file with another number is refused.
const FORMAT: u64 = 1;
const FORMAT_ROW: &str = "format";

const META: TableDefinition<'static, &str, u64> = TableDefinition::new("breakbulk.loro.meta");
/// Document name to its version, stored bytes, first row and the row after the last.
const HEADS: TableDefinition<'static, &str, (&[u8], u64, u64, u64)> =
    TableDefinition::new("breakbulk.loro.heads");
/// Document name and row to the number of bytes, and whether they are a snapshot.
const INDEX: TableDefinition<'static, (&str, u64), (u64, bool)> =
    TableDefinition::new("breakbulk.loro.index");
/// Document name, row and part to the bytes of that part.
const PARTS: TableDefinition<'static, (&str, u64, u32), &[u8]> =
    TableDefinition::new("breakbulk.loro.parts");

/// The size of a part: with redb's header it fills whole pages; redb writes much larger rows twice.
const PART: usize = (64 << 10) - 128;

/// redb's page cache; its own default is 1 GiB.
const CACHE: usize = 16 << 20;

/// How long to wait until no thread reads from a failed database any more.
const READERS_WITHIN: Duration = Duration::from_secs(5);

/// Documents on disk. The file stays locked until the store is dropped, and does not shrink.
pub struct DiskStore {
    open: Arc<Open>,
    name: Arc<str>,
    /// The file; `None`: other storage.
    path: Option<PathBuf>,
    reopen: Box<dyn Fn() -> Result<Database, redb::DatabaseError> + Send>,
    /// A commit failed; whether the disk has it is unknown.
    failed: bool,
    /// The bytes of the largest commit, which there must be room for after a failure.
    largest: usize,
    /// How long to wait for readers before a database that failed is opened again.
    pub(super) readers_within: Duration,
}

/// Reads documents; does not keep the file open.
struct Reader {
    open: Weak<Open>,
    name: Arc<str>,
}

impl fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("DiskStore");
        text.field("name", &self.name).finish_non_exhaustive()
    }
}

impl DiskStore {
    /// Opens the store in this file; creates it if there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let name: Arc<str> = path.display().to_string().into();
        if !path.exists() {
            make(path, &name)?;
        }
        let path = path.to_owned();
        let file = path.clone();
        let reopen = move || Builder::new().set_cache_size(CACHE).open(&file);
        Self::start(name, Some(path), Box::new(reopen))
    }

    /// Opens the store in other storage than a file. It is cloned whenever the store is opened again.
    pub fn with_backend(backend: impl StorageBackend + Clone) -> Result<Self, StoreError> {
        let name: Arc<str> = "in its own storage".into();
        let reopen = move || {
            Builder::new()
                .set_cache_size(CACHE)
                .create_with_backend(backend.clone())
        };
        Self::start(name, None, Box::new(reopen))
    }

    fn start(
        name: Arc<str>,
        path: Option<PathBuf>,
        reopen: Box<dyn Fn() -> Result<Database, redb::DatabaseError> + Send>,
    ) -> Result<Self, StoreError> {
        let db = reopen().map_err(|error| failed(&name, "opening", error))?;
        if path.is_none() {
            prepare(&db, &name)?;
        }
        check(&db, &name)?;
        Ok(Self {
            open: Arc::new(Open::new(db)),
            name,
            path,
            reopen,
            failed: false,
            largest: 0,
            readers_within: READERS_WITHIN,
        })
    }

    /// Opens the database that failed again.
    fn open_again(&self) -> Result<(), StoreError> {
        let reopen = || {
            let db = (self.reopen)().map_err(|error| failed(&self.name, "opening", error))?;
            check(&db, &self.name)?;
            Ok(db)
        };
        self.open.again(&self.name, self.readers_within, reopen)
    }

    /// Checks that a file beside the store could take another commit.
    fn check_room(&self) -> Result<(), StoreError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let mut probe = path.as_os_str().to_owned();
        probe.push(format!(".{}.room", std::process::id()));
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::File::create(&probe)?;
            let block = [0; 64 << 10];
            for _ in 0..=self.largest / block.len() {
                file.write_all(&block)?;
            }
            file.sync_all()
        };
        let written = write();
        let _ = std::fs::remove_file(&probe);
        written.map_err(|error| StoreError::Disk {
            store: self.name.to_string(),
            doing: "checking for free space",
            reason: error.to_string(),
        })
    }

    pub(super) fn database(&self) -> Result<Lease, StoreError> {
        Open::lease(&self.open, &self.name)
    }

    fn write(db: &Database, writes: &[Write]) -> Result<(), redb::Error> {
        let mut transaction = db.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut tables = Tables::open(&transaction)?;
            for write in writes {
                tables.apply(write)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

impl Store for DiskStore {
    fn documents(&self) -> Result<Vec<(DocId, Head)>, StoreError> {
        heads(&*self.database()?)
            .map_err(|error| failed(&self.name, "reading its documents", error))
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        if self.failed {
            return Err(StoreError::Failed {
                store: self.name.to_string(),
            });
        }
        if writes.is_empty() {
            return Ok(());
        }
        self.failed = true;
        let bytes = writes.iter().map(|write| match write {
            Write::Append { data, .. } | Write::Replace { data, .. } => data.len(),
            Write::Delete { .. } => 0,
        });
        self.largest = self.largest.max(bytes.sum());
        let db = self.database()?;
        Self::write(&db, writes).map_err(|error| failed(&self.name, "writing", error))?;
        self.failed = false;
        Ok(())
    }

    fn recover(&mut self) -> Result<(), StoreError> {
        if self.failed {
            self.open_again()?;
            self.check_room()?;
            self.failed = false;
        }
        Ok(())
    }

    fn reader(&self) -> Arc<dyn StoreReader> {
        Arc::new(Reader {
            open: Arc::downgrade(&self.open),
            name: self.name.clone(),
        })
    }
}

impl StoreReader for Reader {
    fn load(&self, doc: &str) -> Result<Kept, StoreError> {
        let Some(open) = self.open.upgrade() else {
            return Err(StoreError::Failed {
                store: self.name.to_string(),
            });
        };
        let db = Open::lease(&open, &self.name)?;
        load(&db, doc).map_err(|error| failed(&self.name, "reading a document", error))
    }
}

/// Whether the database has this store's tables.
fn check(db: &Database, name: &Arc<str>) -> Result<(), StoreError> {
    let reading = db.begin_read().map_err(|e| failed(name, "opening", e))?;
    let wrong = |reason: String| StoreError::NotAStore {
        store: name.to_string(),
        expected: FORMAT,
        reason,
    };
    let meta = reading.open_table(META).map_err(|e| wrong(e.to_string()))?;
    let format = meta.get(FORMAT_ROW).map_err(|e| wrong(e.to_string()))?;
    match format.map(|row| row.value()) {
        Some(FORMAT) => Ok(()),
        Some(other) => Err(wrong(format!("it is of format {other}"))),
        None => Err(wrong("it has no format".to_owned())),
    }
}

fn heads(db: &Database) -> Result<Vec<(DocId, Head)>, redb::Error> {
    let reading = db.begin_read()?;
    let heads = reading.open_table(HEADS)?;
    let mut documents = Vec::new();
    for row in heads.iter()? {
        let (doc, head) = row?;
        let (version, size, ..) = head.value();
        let version = VersionVector::decode(version)
            .map_err(|error| redb::Error::Corrupted(error.to_string()))?;
        documents.push((doc.value().into(), Head { version, size }));
    }
    Ok(documents)
}

fn load(db: &Database, doc: &str) -> Result<Kept, redb::Error> {
    let reading = db.begin_read()?;
    let heads = reading.open_table(HEADS)?;
    let Some(head) = heads.get(doc)? else {
        return Ok(Kept::default());
    };
    let (_, _, first, end) = head.value();
    let (index, parts) = (reading.open_table(INDEX)?, reading.open_table(PARTS)?);
    let mut kept = Kept::default();
    for row in index.range((doc, first)..(doc, end))? {
        let (key, value) = row?;
        let ((_, row), (len, snapshot)) = (key.value(), value.value());
        let mut data = Vec::new();
        for part in parts.range((doc, row, 0)..=(doc, row, u32::MAX))? {
            data.extend_from_slice(part?.1.value());
        }
        if data.len() as u64 != len {
            let text = format!("a row of {len} bytes has {}", data.len());
            return Err(redb::Error::Corrupted(text));
        }
        if snapshot {
            kept.snapshot = Some(data.into());
        } else {
            kept.updates.push(Bytes::from(data));
        }
    }
    Ok(kept)
}

struct Tables<'a> {
    heads: Table<'a, &'static str, (&'static [u8], u64, u64, u64)>,
    index: Table<'a, (&'static str, u64), (u64, bool)>,
    parts: Table<'a, (&'static str, u64, u32), &'static [u8]>,
}

impl<'a> Tables<'a> {
    fn open(transaction: &'a WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            heads: transaction.open_table(HEADS)?,
            index: transaction.open_table(INDEX)?,
            parts: transaction.open_table(PARTS)?,
        })
    }

    fn apply(&mut self, write: &Write) -> Result<(), redb::Error> {
        match write {
            Write::Append { doc, data, head } => {
                let (first, end) = self.rows(doc)?;
                self.insert(doc, end, data, false)?;
                self.put_head(doc, head, first, end + 1)
            }
            Write::Replace { doc, data, head } => {
                let (first, end) = self.rows(doc)?;
                self.remove(doc, first, end)?;
                self.insert(doc, end, data, true)?;
                self.put_head(doc, head, end, end + 1)
            }
            Write::Delete { doc } => {
                let (first, end) = self.rows(doc)?;
                self.remove(doc, first, end)?;
                self.heads.remove(&**doc)?;
                Ok(())
            }
        }
    }

    fn rows(&self, doc: &str) -> Result<(u64, u64), redb::Error> {
        let head = self.heads.get(doc)?;
        Ok(head.map_or((0, 0), |head| {
            let (_, _, first, end) = head.value();
            (first, end)
        }))
    }

    fn put_head(
        &mut self,
        doc: &str,
        head: &Head,
        first: u64,
        end: u64,
    ) -> Result<(), redb::Error> {
        let version = head.version.encode();
        self.heads
            .insert(doc, (version.as_slice(), head.size, first, end))?;
        Ok(())
    }

    fn insert(
        &mut self,
        doc: &str,
        row: u64,
        data: &Bytes,
        snapshot: bool,
    ) -> Result<(), redb::Error> {
        self.index
            .insert((doc, row), (data.len() as u64, snapshot))?;
        for (part, bytes) in data.chunks(PART).enumerate() {
            self.parts.insert((doc, row, part as u32), bytes)?;
        }
        Ok(())
    }

    fn remove(&mut self, doc: &str, first: u64, end: u64) -> Result<(), redb::Error> {
        for row in first..end {
            let Some(len) = self.index.remove((doc, row))?.map(|len| len.value().0) else {
                continue;
            };
            for part in 0..len.div_ceil(PART as u64) {
                self.parts.remove((doc, row, part as u32))?;
            }
        }
        Ok(())
    }
}

/// Creates the file under a temporary name and links it to its own: a crash leaves no file or a valid
/// one.
fn make(path: &Path, name: &Arc<str>) -> Result<(), StoreError> {
    let io = |error: std::io::Error| StoreError::Disk {
        store: name.to_string(),
        doing: "making its file",
        reason: error.to_string(),
    };
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.new", std::process::id()));
    let temporary = Path::new(&temporary);
    let _ = std::fs::remove_file(temporary);
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create_new(true);
    // Documents are private: only the owner may read the file.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(temporary).map_err(io)?;
    let db = Builder::new()
        .create_file(file)
        .map_err(|error| failed(name, "making its file", error))?;
    prepare(&db, name)?;
    drop(db);
    match std::fs::hard_link(temporary, path) {
        // Another process created the file first: use that one.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made.map_err(io)?,
    }
    std::fs::remove_file(temporary).map_err(io)?;
    // A new file survives a power cut only once its directory is synced as well.
    #[cfg(unix)]
    {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let directory = std::fs::File::open(parent.unwrap_or(Path::new("."))).map_err(io)?;
        directory.sync_all().map_err(io)?;
    }
    Ok(())
}

/// Creates the tables that do not exist.
fn prepare(db: &Database, name: &Arc<str>) -> Result<(), StoreError> {
    let make = || -> Result<(), redb::Error> {
        let transaction = db.begin_write()?;
        {
            let mut meta = transaction.open_table(META)?;
            if meta.get(FORMAT_ROW)?.is_none() {
                meta.insert(FORMAT_ROW, FORMAT)?;
            }
            Tables::open(&transaction)?;
        }
        transaction.commit()?;
        Ok(())
    };
    make().map_err(|error| failed(name, "making its tables", error))
}

fn failed(name: &Arc<str>, doing: &'static str, error: impl Into<redb::Error>) -> StoreError {
    let store = name.to_string();
    match error.into() {
        redb::Error::DatabaseAlreadyOpen => StoreError::InUse { store },
        error => StoreError::Disk {
            store,
            doing,
            reason: error.to_string(),
        },
    }
}
