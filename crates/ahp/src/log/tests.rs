//! Tests that every kind of replay log must pass.
//!
//! `BREAKBULK_SEED=n` replays one run of the model test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{ENTRY_CHARGE, Entry, Limits, LogError, MemoryLog, Replay, ReplayLog, ReplayReader};

/// An action whose bytes tell its number.
pub(super) fn action(seq: i64, channel: &str, size: usize) -> Entry {
    let params: Vec<u8> = (0..size).map(|at| (seq as usize + at) as u8).collect();
    Entry::new(seq, channel, params)
}

/// Every kind of log, empty.
fn logs(limits: Limits) -> Vec<(&'static str, Box<dyn ReplayLog>)> {
    vec![
        ("memory", Box::new(MemoryLog::new(limits))),
        #[cfg(feature = "redb")]
        ("disk", {
            let backend = redb::backends::InMemoryBackend::new();
            Box::new(super::DiskLog::with_backend(backend, limits).unwrap())
        }),
    ]
}

/// `1:a:10 2:b:0` as actions: number, channel, bytes.
fn parse(text: &str) -> Vec<Entry> {
    let entry = |word: &str| {
        let parts: Vec<&str> = word.split(':').collect();
        action(
            parts[0].parse().unwrap(),
            parts[1],
            parts[2].parse().unwrap(),
        )
    };
    text.split_whitespace().map(entry).collect()
}

/// The inverse of `parse`; fails if the bytes are not the action's own.
fn print(entries: &[Entry]) -> String {
    let word = |entry: &Entry| {
        assert_eq!(
            *entry,
            action(entry.seq, &entry.channel, entry.params.len())
        );
        format!("{}:{}:{}", entry.seq, entry.channel, entry.params.len())
    };
    entries.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn print_replay(replay: &Replay) -> String {
    match replay {
        Replay::Actions(actions) => print(actions),
        Replay::Gone { from, last } => format!("gone, has {from}..={last}"),
        Replay::TooLarge { size, limit } => format!("too large, {size} of {limit}"),
    }
}

/// Runs `append <actions>` or `since <seq> [upto <seq>] [on <channel>] [max <bytes>]`.
fn run(log: &mut dyn ReplayLog, command: &str) -> String {
    let (verb, rest) = command.split_once(' ').unwrap();
    if verb == "append" {
        return match log.append(&parse(rest)) {
            Ok(()) => format!("last {}", log.last()),
            Err(LogError::OutOfOrder { last, got }) => {
                format!("{got} after {last}, last {}", log.last())
            }
            Err(other) => other.to_string(),
        };
    }
    let words: Vec<&str> = rest.split_whitespace().collect();
    let option = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        Some(words[at + 1])
    };
    let upto = option("upto").map_or(i64::MAX, |n| n.parse().unwrap());
    let max = option("max").map_or(usize::MAX, |n| n.parse().unwrap());
    let wants = |channel: &str| option("on").is_none_or(|only| only == channel);
    print_replay(
        &log.since(words[0].parse().unwrap(), upto, &wants, max)
            .unwrap(),
    )
}

/// Commands, and what each must return.
type Steps = &'static [(&'static str, &'static str)];

/// Limits with room for this many actions of 10 bytes on a channel with a one-letter name.
fn tens(count: u64) -> Limits {
    Limits {
        bytes: count * (ENTRY_CHARGE + 11),
        count: 1000,
    }
}

fn at_most(count: usize) -> Limits {
    Limits {
        bytes: 1 << 30,
        count,
    }
}

#[test]
fn all_logs_keep_trim_and_answer_alike() {
    let nothing = Limits { bytes: 0, count: 9 };
    let cases: &[(&str, Limits, Steps)] = &[
        (
            "an empty log knows nothing and misses nothing",
            tens(3),
            &[
                ("since 0", ""),
                ("since 1", "gone, has 0..=0"),
                ("since -1", "gone, has 0..=0"),
                ("append ", "last 0"),
            ],
        ),
        (
            "what came after a number, oldest first",
            tens(9),
            &[
                ("append 1:a:10 2:b:0", "last 2"),
                ("append 3:a:1", "last 3"),
                ("since 0", "1:a:10 2:b:0 3:a:1"),
                ("since 1", "2:b:0 3:a:1"),
                ("since 3", ""),
                ("since 4", "gone, has 0..=3"),
                ("since 9223372036854775807", "gone, has 0..=3"),
                ("since -9223372036854775808", "gone, has 0..=3"),
            ],
        ),
        (
            "up to a number, inclusive",
            tens(9),
            &[
                ("append 1:a:1 2:a:2 3:a:3", "last 3"),
                ("since 0 upto 2", "1:a:1 2:a:2"),
                ("since 1 upto 2", "2:a:2"),
                ("since 2 upto 2", ""),
                ("since 2 upto 1", ""),
                ("since 2 upto -9223372036854775808", ""),
                ("since 0 upto 99", "1:a:1 2:a:2 3:a:3"),
            ],
        ),
        (
            "on some channels only, and only they count for the size",
            tens(9),
            &[
                ("append 1:a:10 2:b:20 3:a:30 4:c:0", "last 4"),
                ("since 0 on a", "1:a:10 3:a:30"),
                ("since 0 on a max 40", "1:a:10 3:a:30"),
                ("since 0 on a max 39", "too large, 40 of 39"),
                ("since 0 on c max 0", "4:c:0"),
                ("since 0 on d", ""),
            ],
        ),
        (
            "too large is said at the first action past the limit",
            tens(9),
            &[
                ("append 1:a:10 2:a:0 3:a:1 4:a:700", "last 4"),
                ("since 0 max 11 upto 3", "1:a:10 2:a:0 3:a:1"),
                ("since 0 max 10", "too large, 11 of 10"),
                ("since 0 max 0", "too large, 10 of 0"),
                ("since 3 max 700", "4:a:700"),
                ("since 3 max 699", "too large, 700 of 699"),
            ],
        ),
        (
            "the count trims the oldest",
            at_most(2),
            &[
                ("append 1:a:0", "last 1"),
                ("append 2:a:0", "last 2"),
                ("since 0", "1:a:0 2:a:0"),
                ("append 3:a:0", "last 3"),
                ("since 0", "gone, has 1..=3"),
                ("since 0 on b", "gone, has 1..=3"),
                ("since 1", "2:a:0 3:a:0"),
                ("append 4:a:0 5:a:0 6:a:0 7:a:0", "last 7"),
                ("since 5", "6:a:0 7:a:0"),
                ("since 4", "gone, has 5..=7"),
            ],
        ),
        (
            "the bytes trim the oldest, to the byte",
            tens(3),
            &[
                ("append 1:a:10 2:a:10 3:a:10", "last 3"),
                ("since 0", "1:a:10 2:a:10 3:a:10"),
                ("append 4:a:10", "last 4"),
                ("since 1", "2:a:10 3:a:10 4:a:10"),
                ("append 5:a:11", "last 5"),
                ("since 3", "4:a:10 5:a:11"),
                ("since 2", "gone, has 3..=5"),
            ],
        ),
        (
            "empty and one-byte actions cost more than their bytes",
            tens(3),
            &[
                ("append 1:a:0 2:a:1 3:a:0 4:a:1", "last 4"),
                ("since 0", "gone, has 1..=4"),
                ("since 1", "2:a:1 3:a:0 4:a:1"),
            ],
        ),
        (
            "the name of a channel counts",
            tens(2),
            &[
                ("append 1:aa:10 2:a:10", "last 2"),
                ("since 0", "gone, has 1..=2"),
                ("since 1", "2:a:10"),
            ],
        ),
        (
            "the largest action that fits pushes all others out",
            tens(3),
            &[
                ("append 1:a:0 2:a:0", "last 2"),
                ("append 3:a:416", "last 3"),
                ("since 2", "3:a:416"),
                ("since 1", "gone, has 2..=3"),
            ],
        ),
        (
            "an action larger than the log is numbered, and all before it is gone",
            tens(3),
            &[
                ("append 1:a:0", "last 1"),
                ("append 2:a:418", "last 2"),
                ("since 2", ""),
                ("since 1", "gone, has 2..=2"),
                ("append 3:a:0 4:a:100000 5:a:0", "last 5"),
                ("since 4", "5:a:0"),
                ("since 3", "gone, has 4..=5"),
                ("append 6:a:0", "last 6"),
                ("since 4", "5:a:0 6:a:0"),
            ],
        ),
        (
            "a log without room numbers and forgets",
            at_most(0),
            &[
                ("append 1:a:0 2:a:0", "last 2"),
                ("since 2", ""),
                ("since 1", "gone, has 2..=2"),
                ("append 3:a:0", "last 3"),
                ("since 3", ""),
            ],
        ),
        (
            "no bytes is no room either",
            nothing,
            &[("append 1:a:0", "last 1"), ("since 0", "gone, has 1..=1")],
        ),
        (
            "numbers that do not follow are refused and change nothing",
            tens(9),
            &[
                ("append 0:a:1", "0 after 0, last 0"),
                ("append -1:a:1", "-1 after 0, last 0"),
                ("append 1:a:1 3:a:1", "3 after 1, last 0"),
                ("append 1:a:1 1:a:1", "1 after 1, last 0"),
                ("append 1:a:1 2:a:1", "last 2"),
                ("append 2:a:1", "2 after 2, last 2"),
                ("append 1:a:1", "1 after 2, last 2"),
                ("append 3:a:1 2:a:1", "2 after 3, last 2"),
                ("since 0", "1:a:1 2:a:1"),
                ("append 3:a:1", "last 3"),
            ],
        ),
        (
            "a log may begin anywhere, and numbers left out are gone with all before them",
            tens(9),
            &[
                ("append 500:a:1 501:a:2", "last 501"),
                ("since 499", "500:a:1 501:a:2"),
                ("since 498", "gone, has 499..=501"),
                ("since 0", "gone, has 499..=501"),
                ("append 503:a:3", "last 503"),
                ("since 502", "503:a:3"),
                ("since 501", "gone, has 502..=503"),
            ],
        ),
        (
            "the last number there is",
            tens(9),
            &[
                ("append 9223372036854775806:a:1", "last 9223372036854775806"),
                ("append 9223372036854775807:a:1", "last 9223372036854775807"),
                ("since 9223372036854775806", "9223372036854775807:a:1"),
                ("since 9223372036854775807", ""),
                (
                    "append 1:a:1",
                    "1 after 9223372036854775807, last 9223372036854775807",
                ),
            ],
        ),
        (
            "large actions come back whole",
            at_most(9),
            &[
                ("append 1:a:65471 2:a:65472 3:a:65473 4:a:1000000", "last 4"),
                ("since 0", "1:a:65471 2:a:65472 3:a:65473 4:a:1000000"),
                ("append 5:a:1", "last 5"),
                ("since 3", "4:a:1000000 5:a:1"),
            ],
        ),
    ];
    for (name, limits, steps) in cases {
        for (kind, mut log) in logs(*limits) {
            for (command, expected) in *steps {
                let got = run(&mut *log, command);
                assert_eq!(got, *expected, "{kind}: {name}: {command}");
            }
        }
    }
}

#[test]
fn the_error_says_how_to_number() {
    let mut log = MemoryLog::default();
    let error = log.append(&[action(0, "a", 1)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "action 0 cannot come after action 0 in the replay log: number the actions of a batch one by one, from 0 + 1 or above"
    );
}

#[test]
fn the_usual_limits() {
    let limits = Limits::default();
    assert_eq!((limits.bytes, limits.count), (67_108_864, 100_000));
}

#[test]
fn memory_shares_the_bytes_it_was_given() {
    let mut log = MemoryLog::default();
    let given = action(1, "a", 100);
    log.append(std::slice::from_ref(&given)).unwrap();
    let Replay::Actions(got) = log.since(0, 1, &|_| true, 100).unwrap() else {
        panic!("no replay");
    };
    assert_eq!(got[0].params.as_ptr(), given.params.as_ptr());
    assert!(Arc::ptr_eq(&got[0].channel, &given.channel));
}

/// A naive log to compare with: keeps every action, and computes each time what a log would still have.
#[derive(Clone, Default)]
pub(super) struct Oracle(pub(super) Vec<Entry>);

impl Oracle {
    pub(super) fn last(&self) -> i64 {
        self.0.last().map_or(0, |entry| entry.seq)
    }

    fn kept(&self, limits: Limits) -> &[Entry] {
        let mut from = self.0.len();
        let (mut bytes, mut next) = (0, None);
        for entry in self.0.iter().rev() {
            bytes += (entry.params.len() + entry.channel.len()) as u64 + ENTRY_CHARGE;
            let follows = next.is_none_or(|next| entry.seq + 1 == next);
            if bytes > limits.bytes || self.0.len() - from == limits.count || !follows {
                break;
            }
            next = Some(entry.seq);
            from -= 1;
        }
        &self.0[from..]
    }

    pub(super) fn since(
        &self,
        limits: Limits,
        seq: i64,
        upto: i64,
        wants: &dyn Fn(&str) -> bool,
        max_bytes: usize,
    ) -> Replay {
        let kept = self.kept(limits);
        let last = self.last();
        let from = kept.first().map_or(last, |entry| entry.seq - 1);
        if seq < from || seq > last {
            return Replay::Gone { from, last };
        }
        let missed = kept.iter().filter(|e| e.seq > seq && e.seq <= upto);
        let missed: Vec<Entry> = missed.filter(|e| wants(&e.channel)).cloned().collect();
        let mut size = 0;
        for entry in &missed {
            size += entry.params.len();
            if size > max_bytes {
                let limit = max_bytes;
                return Replay::TooLarge { size, limit };
            }
        }
        Replay::Actions(missed)
    }
}

/// splitmix64
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// A batch that follows `last`, sometimes after a jump; sizes from nothing to too much.
    pub(super) fn batch(&mut self, last: i64) -> Vec<Entry> {
        let first = last
            + match self.below(20) {
                0 => 1 + self.below(9) as i64,
                _ => 1,
            };
        let count = self.below(6) as i64;
        let batch = (first..first + count).map(|seq| {
            let size = match self.below(12) {
                0..4 => self.below(3),
                4..10 => self.below(400),
                10 => self.below(5_000),
                _ => self.below(140_000),
            };
            let channel = ["a", "b", "ahp-session:/c"][self.below(3) as usize];
            action(seq, channel, size as usize)
        });
        batch.collect()
    }
}

pub(super) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let one = std::env::var("BREAKBULK_SEED").ok();
    match one.and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..usual,
    }
}

#[test]
fn every_log_agrees_with_a_naive_one() {
    for seed in seeds(60) {
        let mut random = Random(seed);
        let limits = Limits {
            bytes: [2_000, 10_000, 200_000][random.below(3) as usize],
            count: [3, 12, 1_000][random.below(3) as usize],
        };
        for (kind, mut log) in logs(limits) {
            let mut random = Random(seed + 1_000_000);
            let mut oracle = Oracle::default();
            for step in 0..120 {
                let told = format!("{kind}, step {step}: replay with BREAKBULK_SEED={seed}");
                let batch = random.batch(oracle.last());
                if random.below(10) == 0 && !batch.is_empty() {
                    let mut wrong = batch.clone();
                    let at = random.below(batch.len() as u64) as usize;
                    wrong[at].seq -= 1 + random.below(20) as i64;
                    // A first number may still be above the last after a jump.
                    if at > 0 || wrong[0].seq <= oracle.last() {
                        assert!(log.append(&wrong).is_err(), "{told}");
                    }
                }
                log.append(&batch).expect(&told);
                oracle.0.extend(batch);
                assert_eq!(log.last(), oracle.last(), "{told}");
                for _ in 0..3 {
                    let last = oracle.last();
                    let seq = last + 3 - random.below(last as u64 + 6) as i64;
                    let upto = last + 3 - random.below(last as u64 + 6) as i64;
                    let max = [0, 500, 5_000, usize::MAX][random.below(4) as usize];
                    let only = ["a", "b", "ahp-session:/c", ""][random.below(4) as usize];
                    let wants = |channel: &str| only.is_empty() || only == channel;
                    let got = log.since(seq, upto, &wants, max).expect(&told);
                    let expected = oracle.since(limits, seq, upto, &wants, max);
                    assert!(
                        got == expected,
                        "{told}: since {seq} upto {upto} on {only:?} max {max}: {} instead of {}",
                        print_replay(&got),
                        print_replay(&expected)
                    );
                }
            }
        }
    }
}

/// A reader on another thread gets actions without a gap, or is told that they are gone.
#[test]
fn a_reader_sees_no_holes_while_others_append() {
    for (kind, mut log) in logs(at_most(700)) {
        log.append(&[action(1, "a", 1)]).unwrap();
        let reader: Arc<dyn ReplayReader> = log.reader();
        let done = Arc::new(AtomicBool::new(false));
        let reading = std::thread::spawn({
            let done = done.clone();
            move || {
                let (mut seen, mut replays) = (0, 0);
                loop {
                    // Whether this read is the last one if it succeeds: nothing is appended any more.
                    let end = done.load(Ordering::Acquire);
                    match reader.since(seen, i64::MAX, &|_| true, usize::MAX).unwrap() {
                        Replay::Actions(actions) => {
                            for entry in &actions {
                                seen += 1;
                                assert_eq!(*entry, action(seen, "a", entry.params.len()));
                            }
                            replays += usize::from(!actions.is_empty());
                            if end {
                                return (seen, replays);
                            }
                        }
                        Replay::Gone { from, .. } => seen = from,
                        Replay::TooLarge { .. } => unreachable!("there is no limit"),
                    }
                }
            }
        });
        for round in 0..200 {
            let first = 2 + round * 10;
            let batch: Vec<Entry> = (first..first + 10).map(|n| action(n, "a", 50)).collect();
            log.append(&batch).unwrap();
        }
        done.store(true, Ordering::Release);
        let (seen, replays) = reading.join().unwrap();
        assert_eq!(seen, 2001, "{kind}");
        assert!(replays > 0, "{kind}");
    }
}
