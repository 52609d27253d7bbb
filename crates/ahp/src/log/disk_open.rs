//! Opens a log on disk: locks its file, and checks its format and its contents.

use std::fs::{OpenOptions, TryLockError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use redb::backends::FileBackend;
use redb::{
    Builder, Database, ReadableDatabase, ReadableTableMetadata, StorageBackend, TableHandle,
};

use super::disk::{FLOOR_ROW, FORMAT, FORMAT_ROW, INDEX, LAST_ROW, META, PARAMS, from_redb, parts};
use super::window::Window;
use super::{LogError, cost};

/// What redb may keep in memory; its own default is 1 GiB.
const CACHE: usize = 16 << 20;

/// Bytes of redb's mark at the beginning of a file.
const MARK: usize = 9;

/// Bytes of its header, which has a page of its own.
const HEADER: u64 = 4096;

/// redb uses the map of its free pages before it checks it, and panics if the map is damaged (in 40 of
/// 60,000 randomly damaged files). The panic becomes [`LogError::Corrupt`], as any other damage.
pub(super) fn guarded<T>(
    log: &str,
    open: impl FnOnce() -> Result<T, LogError>,
) -> Result<T, LogError> {
    catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|_| {
        Err(LogError::Corrupt {
            log: log.to_string(),
            detail: "its pages do not fit together".into(),
        })
    })
}

/// Opens or creates the file, locks it and checks it.
pub(super) fn file(path: &Path, log: &str) -> Result<(Database, Window), LogError> {
    let io = |source: std::io::Error| LogError::Storage {
        log: log.to_string(),
        doing: "opening its file",
        source: Box::new(source),
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // It contains what people said to their agents, so other users may not read it.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path).map_err(io)?;
    let storage = FileBackend::new(file.try_clone().map_err(io)?);
    let storage = storage.map_err(|e| from_redb(log, "opening its file", e.into()))?;
    if is_half_created(&storage).map_err(io)? {
        // Under the lock that redb takes too: another process may be creating it right now.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(LogError::InUse {
                log: log.to_string(),
            });
        }
        if is_half_created(&storage).map_err(io)? {
            file.set_len(0).map_err(io)?;
        }
        // Fails where files cannot be locked at all.
        let _ = file.unlock();
    }
    drop(storage);
    let db = Builder::new()
        .set_cache_size(CACHE)
        .create_file(file)
        .map_err(|e| from_redb(log, "opening its file", e.into()))?;
    // A new file survives a power cut only once its directory is on the disk as well.
    #[cfg(unix)]
    {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let directory = std::fs::File::open(parent).map_err(io)?;
        directory.sync_all().map_err(io)?;
    }
    check(db, log)
}

/// Opens or creates a database in another storage, and checks it.
pub(super) fn backend(
    backend: impl StorageBackend,
    log: &str,
) -> Result<(Database, Window), LogError> {
    let io = |source: std::io::Error| from_redb(log, "opening its storage", source.into());
    if is_half_created(&backend).map_err(io)? {
        backend.set_len(0).map_err(io)?;
    }
    let db = Builder::new()
        .set_cache_size(CACHE)
        .create_with_backend(backend)
        .map_err(|e| from_redb(log, "opening its storage", e.into()))?;
    check(db, log)
}

/// Whether the power failed while the file was being created: redb writes the mark at its beginning last,
/// and refuses a file without it. If there is no mark, and only zeros after the header, the file never
/// had an action in it.
fn is_half_created(storage: &dyn StorageBackend) -> std::io::Result<bool> {
    let len = storage.len()?;
    let mut buffer = vec![0; MARK];
    let mut at = 0;
    while at < len {
        buffer.truncate(usize::try_from(len - at).unwrap_or(usize::MAX));
        storage.read(at, &mut buffer)?;
        if buffer.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at = (at + buffer.len() as u64).max(HEADER);
        buffer.resize(64 << 10, 0);
    }
    Ok(len > 0)
}

/// Checks that all kept actions are there; creates the tables in an empty database.
fn check(mut db: Database, log: &str) -> Result<(Database, Window), LogError> {
    let failed = |e: redb::Error| from_redb(log, "opening", e);
    let sound = db.check_integrity().map_err(|e| failed(e.into()))?;
    if !sound {
        return Err(LogError::Corrupt {
            log: log.to_string(),
            detail: "its checksums do not match its pages".into(),
        });
    }
    if is_empty(&db).map_err(failed)? {
        create(&db).map_err(failed)?;
    }
    match format(&db).map_err(failed)? {
        Some(FORMAT) => {}
        Some(found) => {
            return Err(LogError::UnknownFormat {
                log: log.to_string(),
                found,
                known: FORMAT,
            });
        }
        None => {
            return Err(LogError::NotALog {
                log: log.to_string(),
                detail: format!("it has no table {}", META.name()),
            });
        }
    }
    match kept(&db).map_err(failed)? {
        Ok(window) => Ok((db, window)),
        Err(detail) => Err(LogError::Corrupt {
            log: log.to_string(),
            detail,
        }),
    }
}

fn is_empty(db: &Database) -> Result<bool, redb::Error> {
    let transaction = db.begin_read()?;
    let tables = transaction.list_tables()?.count();
    let multimaps = transaction.list_multimap_tables()?.count();
    Ok(tables + multimaps == 0)
}

fn create(db: &Database) -> Result<(), redb::Error> {
    let transaction = db.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert(FORMAT_ROW, FORMAT)?;
        meta.insert(FLOOR_ROW, 0)?;
        meta.insert(LAST_ROW, 0)?;
        transaction.open_table(INDEX)?;
        transaction.open_table(PARAMS)?;
    }
    transaction.commit()?;
    Ok(())
}

/// The format, or `None` without the table that names it. To be called before the other tables are opened:
/// another format may have other tables.
fn format(db: &Database) -> Result<Option<i64>, redb::Error> {
    let transaction = db.begin_read()?;
    let mut tables = transaction.list_tables()?;
    if !tables.any(|table| table.name() == META.name()) {
        return Ok(None);
    }
    let found = transaction.open_table(META)?.get(FORMAT_ROW)?;
    Ok(Some(found.map_or(0, |value| value.value())))
}

/// The window, or what contradicts it.
fn kept(db: &Database) -> Result<Result<Window, String>, redb::Error> {
    let transaction = db.begin_read()?;
    let meta = transaction.open_table(META)?;
    let number = |row: &str| Ok::<_, redb::Error>(meta.get(row)?.map(|v| v.value()));
    let (Some(floor), Some(last)) = (number(FLOOR_ROW)?, number(LAST_ROW)?) else {
        return Ok(Err("it does not say which actions it keeps".into()));
    };
    if floor < 0 || last < floor {
        return Ok(Err(format!("it says it keeps actions {floor} to {last}")));
    }
    let mut window = Window {
        floor,
        last,
        bytes: 0,
    };
    let mut expected = floor;
    let mut expected_parts = 0u64;
    for row in transaction.open_table(INDEX)?.range::<i64>(..)? {
        let (seq, value) = row?;
        let (channel, size) = value.value();
        expected = expected.saturating_add(1);
        if seq.value() != expected {
            return Ok(Err(format!("action {expected} is missing")));
        }
        window.bytes = window.bytes.saturating_add(cost(channel.len(), size));
        expected_parts = expected_parts.saturating_add(parts(size));
    }
    if expected != last {
        return Ok(Err(format!(
            "it ends at action {expected} instead of {last}"
        )));
    }
    let parts = transaction.open_table(PARAMS)?.len()?;
    if parts != expected_parts {
        return Ok(Err(format!(
            "the params of its actions are in {parts} parts instead of {expected_parts}"
        )));
    }
    Ok(Ok(window))
}
