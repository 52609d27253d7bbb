//! Tests of what a log on disk holds after a power failure, at every point where one can happen.

use super::tests::{Oracle, Random, action, seeds};
use breakbulk_testkit::crash_disk::CrashDisk;

use super::{DiskLog, Entry, Limits, LogError, Replay, ReplayLog};

const LIMITS: Limits = Limits {
    bytes: 60_000,
    count: 20,
};

/// All actions of a log.
fn contents(log: &DiskLog) -> Replay {
    let Ok(Replay::Gone { from, last }) = log.since(-1, 0, &|_| true, 0) else {
        panic!("no log has actions before number 0");
    };
    log.since(from, last, &|_| true, usize::MAX).unwrap()
}

fn expected(oracle: &Oracle) -> Replay {
    let Replay::Gone { from, last } = oracle.since(LIMITS, -1, 0, &|_| true, 0) else {
        panic!("no log has actions before number 0");
    };
    oracle.since(LIMITS, from, last, &|_| true, usize::MAX)
}

/// Opens a log on the disk and appends until something fails. Returns what was confirmed, and the same
/// with the batch that was tried last.
fn work(disk: &CrashDisk, batches: &[Vec<Entry>]) -> (Oracle, Oracle) {
    let mut confirmed = Oracle::default();
    let Ok(mut log) = DiskLog::with_backend(disk.clone(), LIMITS) else {
        return (confirmed.clone(), confirmed);
    };
    for batch in batches {
        let mut tried = confirmed.clone();
        tried.0.extend_from_slice(batch);
        if log.append(batch).is_err() {
            assert_eq!(log.last(), confirmed.last());
            return (confirmed, tried);
        }
        confirmed = tried;
    }
    (confirmed.clone(), confirmed)
}

/// Checks that every confirmed batch is in the log, and an unconfirmed one completely or not at all.
fn check(told: &str, disk: CrashDisk, confirmed: &Oracle, tried: &Oracle) {
    let mut log = DiskLog::with_backend(disk.clone(), LIMITS)
        .unwrap_or_else(|e| panic!("{told}: does not open: {e}"));
    let outcome = if log.last() == confirmed.last() {
        confirmed
    } else {
        assert_eq!(log.last(), tried.last(), "{told}");
        tried
    };
    assert!(contents(&log) == expected(outcome), "{told}");
    // The log also takes further actions, and still has them after a clean restart.
    let mut further = outcome.clone();
    further.0.push(action(outcome.last() + 1, "a", 70_000));
    further.0.push(action(outcome.last() + 2, "a", 7));
    log.append(&further.0[outcome.0.len()..])
        .unwrap_or_else(|e| panic!("{told}: {e}"));
    drop(log);
    let log = DiskLog::with_backend(disk, LIMITS).unwrap();
    assert!(contents(&log) == expected(&further), "{told}: after that");
}

#[test]
fn what_was_appended_survives_a_crash_at_every_operation() {
    for seed in seeds(2) {
        let mut random = Random(seed);
        let mut batches = Vec::<Vec<Entry>>::new();
        let mut last = 0;
        for _ in 0..12 {
            let batch = random.batch(last);
            last = batch.last().map_or(last, |entry| entry.seq);
            batches.push(batch);
        }
        let whole = CrashDisk::new();
        let (confirmed, _) = work(&whole, &batches);
        assert_eq!(confirmed.last(), last);
        let operations = whole.counts().operations;
        assert!(operations > 80, "the disk was hardly used: {operations}");
        println!("seed {seed}: {operations} points");
        for point in 0..=operations {
            let disk = CrashDisk::new();
            disk.fail_after(Some(point));
            let (confirmed, tried) = work(&disk, &batches);
            let told = |how: &str| format!("{how} at {point}: BREAKBULK_SEED={seed}");
            check(&told("crash"), disk.crash(), &confirmed, &tried);
            check(&told("kill"), disk.kill(), &confirmed, &tried);
            for torn in 0..2 {
                let left = disk.crash_torn(point * 2 + torn);
                check(&told("torn crash"), left, &confirmed, &tried);
            }
        }
    }
}

#[test]
fn a_batch_is_on_the_disk_when_append_returns_with_one_sync() {
    let disk = CrashDisk::new();
    let mut log = DiskLog::with_backend(disk.clone(), LIMITS).unwrap();
    let mut oracle = Oracle::default();
    for round in 0..50 {
        let first = 1 + round * 5;
        let batch: Vec<Entry> = (first..first + 5).map(|n| action(n, "a", 200)).collect();
        let before = disk.counts().syncs;
        log.append(&batch).unwrap();
        assert_eq!(disk.counts().syncs - before, 1, "round {round}");
        oracle.0.extend(batch);
        let left = DiskLog::with_backend(disk.crash(), LIMITS).unwrap();
        assert_eq!(left.last(), first + 4);
        assert!(contents(&left) == expected(&oracle), "round {round}");
    }
    let before = disk.counts();
    log.append(&[]).unwrap();
    assert_eq!(disk.counts(), before, "nothing to append is nothing to do");
}

#[test]
fn a_log_whose_disk_failed_takes_nothing_until_it_is_opened_again() {
    let disk = CrashDisk::new();
    let mut log = DiskLog::with_backend(disk.clone(), LIMITS).unwrap();
    log.append(&[action(1, "a", 1)]).unwrap();
    disk.fail_after(Some(0));
    let error = log.append(&[action(2, "a", 1)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the replay log in its own storage failed while appending (I/O error: the test made this disk fail): see to the disk (space, rights, health), then open the log again"
    );
    disk.fail_after(None);
    let error = log.append(&[action(2, "a", 1)]).unwrap_err();
    assert!(matches!(error, LogError::Failed { .. }), "{error}");
    assert_eq!(log.last(), 1);
    drop(log);
    let mut log = DiskLog::with_backend(disk.crash(), LIMITS).unwrap();
    assert_eq!(log.last(), 1);
    log.append(&[action(2, "a", 1)]).unwrap();
}

/// A log with a flipped bit is refused, or still replays exactly the actions that were stored.
#[test]
fn a_flipped_bit_is_never_replayed() {
    let disk = CrashDisk::new();
    let mut log = DiskLog::with_backend(disk.clone(), LIMITS).unwrap();
    for round in 0..20 {
        let first = 1 + round * 3;
        let batch: Vec<Entry> = (first..first + 3).map(|n| action(n, "a", 900)).collect();
        log.append(&batch).unwrap();
    }
    let whole = contents(&log);
    drop(log);
    for seed in seeds(1) {
        let mut random = Random(seed);
        let (mut refused, mut unharmed) = (0, 0);
        for round in 0..600 {
            let damaged = disk.kill();
            // Every other bit is flipped in the header and the pages after it, where the structure is.
            let end = [disk.size(), 65_536][round % 2];
            let (at, bit) = (random.below(end as u64), random.below(8));
            damaged.flip(at as usize, 1 << bit);
            match DiskLog::with_backend(damaged, LIMITS) {
                Ok(log) => {
                    assert!(contents(&log) == whole, "byte {at}: BREAKBULK_SEED={seed}");
                    unharmed += 1;
                }
                Err(LogError::Corrupt { .. } | LogError::NotALog { .. }) => refused += 1,
                Err(other) => panic!("byte {at}: BREAKBULK_SEED={seed}: {other}"),
            }
        }
        assert!(refused > 20 && unharmed > 20, "{refused}, {unharmed}");
    }
}
