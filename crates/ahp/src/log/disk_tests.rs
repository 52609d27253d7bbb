//! Tests of logs in real files.

use std::fs;
use std::path::Path;

use redb::{Database, TableDefinition};

use super::disk::{FORMAT_ROW, META};
use super::tests::action;
use breakbulk_testkit::crash_disk::CrashDisk;

use super::{DiskLog, Entry, Limits, LogError, Replay, ReplayLog};

const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    count: 50,
};

fn all_from(log: &DiskLog, seq: i64) -> Vec<Entry> {
    match log.since(seq, i64::MAX, &|_| true, usize::MAX).unwrap() {
        Replay::Actions(actions) => actions,
        other => panic!("{other:?}"),
    }
}

/// The error's text, with the file called FILE.
fn refusal(path: &Path) -> String {
    let error = DiskLog::open(path, LIMITS).unwrap_err().to_string();
    error.replace(&path.display().to_string(), "FILE")
}

#[test]
fn a_file_goes_on_where_it_ended() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("replay.redb");
    let mut all = Vec::new();
    for round in 0..4 {
        let mut log = DiskLog::open(&path, LIMITS).unwrap();
        assert_eq!(log.last(), round * 3);
        assert_eq!(all_from(&log, 0), all);
        for _ in 0..3 {
            let next = action(log.last() + 1, "ahp-root://", 100_000 * round as usize);
            log.append(std::slice::from_ref(&next)).unwrap();
            all.push(next);
            if round == 3 {
                break;
            }
        }
    }
    // Trimmed actions stay trimmed.
    let mut log = DiskLog::open(&path, LIMITS).unwrap();
    assert_eq!(log.last(), 10);
    log.append(&[action(11, "b", 900_000)]).unwrap();
    drop(log);
    let log = DiskLog::open(&path, LIMITS).unwrap();
    assert_eq!(all_from(&log, 10), [action(11, "b", 900_000)]);
    assert_eq!(
        log.since(9, 11, &|_| true, 0).unwrap(),
        Replay::Gone { from: 10, last: 11 }
    );
}

#[test]
fn smaller_limits_take_effect_with_the_next_append() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("replay.redb");
    let mut log = DiskLog::open(&path, LIMITS).unwrap();
    let batch: Vec<Entry> = (1..=40).map(|n| action(n, "a", 10)).collect();
    log.append(&batch).unwrap();
    drop(log);
    let fewer = LIMITS.with(|limits| limits.count = 2);
    let mut log = DiskLog::open(&path, fewer).unwrap();
    assert_eq!(all_from(&log, 0), batch);
    log.append(&[action(41, "a", 10)]).unwrap();
    assert_eq!(
        all_from(&log, 39),
        [action(40, "a", 10), action(41, "a", 10)]
    );
}

#[test]
fn a_file_is_one_hosts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("replay.redb");
    let mut log = DiskLog::open(&path, LIMITS).unwrap();
    assert_eq!(
        refusal(&path),
        "the replay log FILE is open already, in another process or in this one: stop that one, or give each host a file of its own"
    );
    // The refused second open did the first no harm, and a reader alone does not keep the file locked.
    log.append(&[action(1, "a", 1)]).unwrap();
    let reader = log.reader();
    drop(log);
    let error = reader.since(0, 1, &|_| true, 9).unwrap_err();
    assert!(matches!(error, LogError::Closed { .. }), "{error}");
    assert_eq!(DiskLog::open(&path, LIMITS).unwrap().last(), 1);
}

#[test]
fn files_that_are_no_log_of_ours_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let database = |fill: &dyn Fn(&redb::WriteTransaction)| {
        let _ = fs::remove_file(&path);
        let db = Database::create(&path).unwrap();
        let transaction = db.begin_write().unwrap();
        fill(&transaction);
        transaction.commit().unwrap();
    };

    fs::write(&path, "a letter to a friend\n".repeat(1000)).unwrap();
    assert_eq!(
        refusal(&path),
        "the replay log FILE is damaged (Not a redb database: magic number mismatch): move the file away and start with an empty log, numbered above what clients have seen (they then get snapshots)"
    );
    let letter = fs::read(&path).unwrap();
    assert_eq!(letter, "a letter to a friend\n".repeat(1000).as_bytes());

    database(&|transaction| {
        let foreign: TableDefinition<'_, u8, u8> = TableDefinition::new("recipes");
        transaction
            .open_table(foreign)
            .unwrap()
            .insert(1, 2)
            .unwrap();
    });
    assert_eq!(
        refusal(&path),
        "FILE is a database of something else (it has no table breakbulk.replay.meta): choose another file for the replay log"
    );

    database(&|transaction| {
        let mut meta = transaction.open_table(META).unwrap();
        meta.insert(FORMAT_ROW, 2).unwrap();
    });
    assert_eq!(
        refusal(&path),
        "the replay log FILE has format 2, and this version reads 1: use the version that wrote it, or move the file away and start with an empty log (clients then get snapshots)"
    );

    database(&|transaction| {
        let mut meta = transaction.open_table(META).unwrap();
        meta.insert(FORMAT_ROW, 1).unwrap();
    });
    assert_eq!(
        refusal(&path),
        "the replay log FILE is damaged (it does not say which actions it keeps): move the file away and start with an empty log, numbered above what clients have seen (they then get snapshots)"
    );

    let nowhere = directory.path().join("missing").join("replay.redb");
    let error = DiskLog::open(&nowhere, LIMITS).unwrap_err();
    assert!(matches!(error, LogError::Storage { .. }), "{error}");
}

#[test]
fn rows_that_are_missing_are_noticed() {
    use super::disk::{INDEX, LAST_ROW, PARAMS};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("replay.redb");
    let damaged = |damage: &dyn Fn(&redb::WriteTransaction)| {
        let _ = fs::remove_file(&path);
        let mut log = DiskLog::open(&path, LIMITS).unwrap();
        let batch: Vec<Entry> = (1..=5).map(|n| action(n, "a", 100_000)).collect();
        log.append(&batch).unwrap();
        drop(log);
        let db = Database::open(&path).unwrap();
        let transaction = db.begin_write().unwrap();
        damage(&transaction);
        transaction.commit().unwrap();
        drop(db);
        match DiskLog::open(&path, LIMITS) {
            Err(LogError::Corrupt { detail, .. }) => detail,
            other => panic!("{other:?}"),
        }
    };
    let without_index = |t: &redb::WriteTransaction| {
        t.open_table(INDEX).unwrap().remove(3).unwrap();
    };
    assert_eq!(damaged(&without_index), "action 3 is missing");
    let without_part = |t: &redb::WriteTransaction| {
        t.open_table(PARAMS).unwrap().remove((3, 1)).unwrap();
    };
    assert_eq!(
        damaged(&without_part),
        "the params of its actions are in 9 parts instead of 10"
    );
    let number_back = |t: &redb::WriteTransaction| {
        t.open_table(META).unwrap().insert(LAST_ROW, 6).unwrap();
    };
    assert_eq!(damaged(&number_back), "it ends at action 5 instead of 6");
}

/// A host whose machine lost power at its first start must be able to start again.
#[test]
fn a_file_that_was_never_finished_is_begun_again_and_a_beheaded_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("replay.redb");
    let mut unfinished = vec![0; 100_000];
    unfinished[9..4096].fill(7);
    for bytes in [&unfinished[..], &[0; 5], &[0; 9], &[0; 4096], &[]] {
        fs::write(&path, bytes).unwrap();
        let mut log = DiskLog::open(&path, LIMITS).unwrap();
        assert_eq!(log.last(), 0);
        log.append(&[action(1, "a", 1)]).unwrap();
    }
    let mut beheaded = fs::read(&path).unwrap();
    beheaded[..4096].fill(0);
    fs::write(&path, &beheaded).unwrap();
    assert!(refusal(&path).starts_with("the replay log FILE is damaged"));
    assert!(fs::read(&path).unwrap() == beheaded);
}

#[cfg(unix)]
#[test]
fn a_new_file_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("replay.redb");
    let _log = DiskLog::open(&path, LIMITS).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn only_files_block_unless_told_otherwise() {
    let directory = tempfile::tempdir().unwrap();
    let log = DiskLog::open(directory.path().join("replay.redb"), LIMITS).unwrap();
    assert!(log.blocks());
    assert!(!log.inline(true).blocks());
    let log = DiskLog::with_backend(CrashDisk::new(), LIMITS).unwrap();
    assert!(!log.blocks());
    assert!(log.inline(false).blocks());
}

#[test]
fn the_disk_stays_bounded_whatever_the_sizes() {
    // Sizes that a host may publish, each far more often than the limit holds.
    for sizes in [
        &[0][..],
        &[1],
        &[200],
        &[70_000],
        &[900_000],
        &[0, 300_000, 5, 65_000],
    ] {
        let disk = CrashDisk::new();
        let limits = Limits {
            bytes: 1 << 20,
            count: 2_000,
        };
        let mut log = DiskLog::with_backend(disk.clone(), limits).unwrap();
        let mut published = 0u64;
        while published < 12 << 20 && log.last() < 20_000 {
            let first = log.last() + 1;
            let batch: Vec<Entry> = (first..first + 40)
                .map(|n| action(n, "ahp-session:/a", sizes[n as usize % sizes.len()]))
                .collect();
            published += batch.iter().map(Entry::cost).sum::<u64>();
            for one in batch.chunks(if sizes[0] > 1_000 { 1 } else { 40 }) {
                log.append(one).unwrap();
            }
        }
        let size = disk.size();
        assert!(
            size < 6 << 20,
            "{sizes:?}: {size} bytes for a limit of 1 MiB"
        );
    }
}
