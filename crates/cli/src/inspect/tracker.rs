//! Tracks what a link does not report about transfers: gaps, duplicates and the overhead of frames.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use breakbulk::link::{FaultKind, Key, Numbering, Opening};

use super::rows::{Problem, Section, State, TransferRow};

/// Transfers that are tracked at once: more than the link holds, since some have no opening frame.
const LIVE: usize = 4096;

/// Keys of ended transfers that are remembered, to recognize late frames.
const OVER: usize = 1 << 16;

/// Runs of received indices that are stored per transfer; with more, its gaps are not exact.
const RUNS: usize = 1024;

/// Ranges of missing indices that are reported per transfer.
const GAPS: usize = 16;

/// Tracks all transfers of a capture.
#[derive(Debug)]
pub(crate) struct Tracker {
    numbering: Numbering,
    live: BTreeMap<Key, Transfer>,
    /// Those of `live` that cannot complete any more, the oldest first: they are evicted first.
    evictable: VecDeque<Key>,
    over: BTreeSet<Key>,
    pub(crate) done: Section<TransferRow>,
    pub(crate) complete: u64,
    pub(crate) unfinished: u64,
    pub(crate) failed: u64,
}

/// A frame of a transfer: its number and its size in the capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) frame: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug)]
struct Transfer {
    row: TransferRow,
    /// The number of the opening frame, from which the pieces' numbers go on.
    opened: Option<u64>,
    /// The number of the closing frame.
    closed: Option<u64>,
    accepted: bool,
    has_digest: bool,
    headless: bool,
    failed: Option<Problem>,
    /// The pieces that are in the capture.
    runs: Runs,
}

impl Tracker {
    pub(crate) fn new(numbering: Numbering, limit: usize) -> Self {
        Self {
            numbering,
            live: BTreeMap::new(),
            evictable: VecDeque::new(),
            over: BTreeSet::new(),
            done: Section::new(limit),
            complete: 0,
            unfinished: 0,
            failed: 0,
        }
    }

    /// The number of pieces of the transfer, if pieces are numbered by their index.
    pub(crate) fn total(&self, key: &Key) -> Option<u64> {
        let from_zero = self.numbering == Numbering::FromZero;
        self.live.get(key)?.row.want.filter(|_| from_zero)
    }

    /// Whether a transfer with this key is under way.
    pub(crate) fn is_live(&self, key: &Key) -> bool {
        let live = self.live.get(key);
        live.is_some_and(|live| !live.headless && live.failed.is_none())
    }

    pub(crate) fn is_failed(&self, key: &Key) -> bool {
        self.live.get(key).is_some_and(|live| live.failed.is_some())
    }

    /// Whether a transfer with this key has ended.
    pub(crate) fn is_over(&self, key: &Key) -> bool {
        self.over.contains(key)
    }

    /// Records an accepted opening frame.
    pub(crate) fn open(&mut self, at: At, name: Arc<str>, opening: &Opening) {
        if !self.is_live(&opening.key) {
            self.end(&opening.key, None);
        }
        if let Some(transfer) = self.track(at, name, &opening.key) {
            transfer.row.want = Some(opening.count);
            transfer.row.declared = Some(opening.bytes);
            transfer.row.carried += at.bytes;
            transfer.opened = Some(opening.seq);
            transfer.has_digest = opening.digest.is_some();
        }
    }

    /// Records an accepted piece.
    pub(crate) fn piece(&mut self, at: At, name: Arc<str>, piece: &PieceOf<'_>) {
        if self.is_failed(piece.key) {
            self.end(piece.key, None);
        }
        if let Some(transfer) = self.track(at, name, piece.key) {
            transfer.row.carried += at.bytes;
            if transfer.record(piece) {
                transfer.row.have += 1;
                transfer.row.bytes += piece.data;
            }
        }
    }

    /// Records a piece that was refused or late. It is in the capture, so it is not a gap.
    pub(crate) fn refused(&mut self, at: At, name: Arc<str>, piece: &PieceOf<'_>) {
        if let Some(transfer) = self.track(at, name, piece.key) {
            transfer.record(piece);
        }
    }

    /// Records a piece whose opening frame is not in the capture.
    pub(crate) fn headless(&mut self, at: At, name: Arc<str>, piece: &PieceOf<'_>) {
        self.piece(at, name, piece);
        if let Some(transfer) = self.live.get_mut(piece.key)
            && !std::mem::replace(&mut transfer.headless, true)
        {
            self.add_evictable(piece.key);
        }
    }

    /// Records another frame of a transfer, without a piece.
    pub(crate) fn other(&mut self, at: At, key: &Key) {
        if let Some(transfer) = self.live.get_mut(key) {
            transfer.row.last_frame = at.frame;
            transfer.row.carried += at.bytes;
        }
    }

    pub(crate) fn closing(&mut self, at: At, key: &Key, seq: u64) {
        self.other(at, key);
        if let Some(transfer) = self.live.get_mut(key) {
            transfer.closed = Some(seq);
        }
    }

    pub(crate) fn accepted(&mut self, at: At, key: &Key) {
        self.other(at, key);
        if let Some(transfer) = self.live.get_mut(key) {
            transfer.accepted = true;
        }
    }

    pub(crate) fn complete(&mut self, key: &Key) {
        if let Some(transfer) = self.live.get_mut(key) {
            transfer.row.digest = transfer.has_digest.then_some(true);
        }
        self.end(key, Some(State::Complete));
    }

    /// Records a failed transfer, even if it was not known before. It is tracked further, to see which
    /// of its pieces are in the capture.
    pub(crate) fn fail(
        &mut self,
        at: At,
        name: Arc<str>,
        key: &Key,
        kind: &FaultKind,
        why: Problem,
    ) {
        let Some(transfer) = self.track(at, name, key) else {
            return;
        };
        if *kind == FaultKind::DigestMismatch {
            transfer.row.digest = Some(false);
        }
        if transfer.failed.is_none() {
            transfer.failed = Some(why);
            self.add_evictable(key);
        }
    }

    /// Fails all transfers that are under way; returns their keys.
    pub(crate) fn fail_all(&mut self, why: &Problem) -> Vec<Key> {
        let mut keys = Vec::new();
        for (key, transfer) in &mut self.live {
            if transfer.failed.is_none() {
                transfer.failed = Some(why.clone());
                keys.push(key.clone());
            }
        }
        for key in &keys {
            self.add_evictable(key);
        }
        keys
    }

    /// Ends all transfers at the end of the capture.
    pub(crate) fn finish(&mut self) {
        let left = self.live.iter();
        let mut left: Vec<(u64, Key)> = left
            .map(|(key, live)| (live.row.first_frame, key.clone()))
            .collect();
        left.sort();
        for (_, key) in left {
            self.end(&key, None);
        }
        self.done.rows.sort_by_key(|row| row.first_frame);
        self.done.beyond.sort_by_key(|row| row.first_frame);
    }

    /// The transfer of this frame, added if it is new. `None` if too many are tracked.
    fn track(&mut self, at: At, name: Arc<str>, key: &Key) -> Option<&mut Transfer> {
        if !self.live.contains_key(key) {
            while self.live.len() >= LIVE {
                let Some(oldest) = self.evictable.pop_front() else {
                    self.done.left_out += 1;
                    return None;
                };
                if !self.is_live(&oldest) {
                    self.end(&oldest, None);
                }
            }
        }
        let transfer = self.live.entry(key.clone()).or_insert_with(|| Transfer {
            row: TransferRow {
                key: name,
                first_frame: at.frame,
                last_frame: at.frame,
                have: 0,
                want: None,
                bytes: 0,
                declared: None,
                carried: 0,
                gaps: Vec::new(),
                more_gaps: false,
                duplicates: 0,
                digest: None,
                state: State::Unfinished,
            },
            opened: None,
            closed: None,
            accepted: false,
            has_digest: false,
            headless: false,
            failed: None,
            runs: Runs::default(),
        });
        transfer.row.last_frame = at.frame;
        Some(transfer)
    }

    fn add_evictable(&mut self, key: &Key) {
        // Remove those that have ended meanwhile, so that the queue stays bounded.
        if self.evictable.len() >= 2 * LIVE {
            let live = &self.live;
            self.evictable.retain(|key| live.contains_key(key));
        }
        self.evictable.push_back(key.clone());
    }

    /// Ends a transfer, in this state or in its current one.
    fn end(&mut self, key: &Key, state: Option<State>) {
        let Some(mut transfer) = self.live.remove(key) else {
            return;
        };
        let state = match (state, transfer.failed.take()) {
            (Some(state), _) => state,
            (None, Some(why)) => State::Failed(Box::new(why)),
            (None, None) if transfer.headless => State::Headless,
            (None, None) => State::Unfinished,
        };
        match state {
            State::Complete => self.complete += 1,
            State::Unfinished | State::Headless => self.unfinished += 1,
            State::Failed(_) => self.failed += 1,
        }
        if state != State::Complete
            && let Some(want) = transfer.row.want
        {
            let first = transfer.first(self.numbering, want);
            (transfer.row.gaps, transfer.row.more_gaps) = transfer.runs.gaps(first, want);
        }
        let matters = state != State::Complete;
        transfer.row.state = state;
        self.done.push(transfer.row, matters);
        if self.over.len() < OVER {
            self.over.insert(key.clone());
        }
    }
}

/// What the tracker needs of a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceOf<'a> {
    pub(crate) key: &'a Key,
    pub(crate) seq: u64,
    pub(crate) count: Option<u64>,
    pub(crate) bytes: Option<u64>,
    /// Bytes of its data.
    pub(crate) data: u64,
}

impl Transfer {
    /// Records a piece; false if it is a duplicate.
    fn record(&mut self, piece: &PieceOf<'_>) -> bool {
        self.row.want = self.row.want.or(piece.count);
        self.row.declared = self.row.declared.or(piece.bytes);
        let new = self.runs.insert(piece.seq);
        self.row.duplicates += u64::from(!new);
        new
    }

    /// The number of the first piece. In CEP-22 a number after the opening may be left free for `accept`;
    /// nothing announces it, so it is inferred from the numbers of the other frames.
    fn first(&self, numbering: Numbering, want: u64) -> u64 {
        let (Numbering::AfterOpening { .. }, Some(opened)) = (numbering, self.opened) else {
            return 0;
        };
        let direct = opened.saturating_add(1);
        let last = self.runs.last().unwrap_or(0);
        let slot = match self.closed {
            Some(closed) => closed.checked_sub(want) == Some(direct.saturating_add(1)),
            None if self.runs.contains(direct) => false,
            None => self.accepted || last == opened.saturating_add(want).saturating_add(1),
        };
        direct.saturating_add(u64::from(slot))
    }
}

/// A bounded set of indices, stored as runs.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// The first index of each run to its last.
    runs: BTreeMap<u64, u64>,
    /// Some runs were not stored.
    full: bool,
}

impl Runs {
    /// Adds an index; false if it was there.
    pub(crate) fn insert(&mut self, index: u64) -> bool {
        let mut first = index;
        if let Some((&start, &last)) = self.runs.range(..=index).next_back() {
            if index <= last {
                return false;
            }
            if last.checked_add(1) == Some(index) {
                first = start;
            }
        }
        let mut last = index;
        if let Some(next) = index.checked_add(1)
            && let Some(end) = self.runs.remove(&next)
        {
            last = end;
        }
        if self.runs.len() >= RUNS && !self.runs.contains_key(&first) {
            self.full = true;
        } else {
            self.runs.insert(first, last);
        }
        true
    }

    fn contains(&self, index: u64) -> bool {
        let run = self.runs.range(..=index).next_back();
        run.is_some_and(|(_, &last)| index <= last)
    }

    pub(crate) fn last(&self) -> Option<u64> {
        self.runs.values().next_back().copied()
    }

    /// The missing ranges among `count` indices from `first` on, relative to `first`.
    fn gaps(&self, first: u64, count: u64) -> (Vec<(u64, u64)>, bool) {
        let mut gaps = Vec::new();
        let mut due = 0;
        for (&start, &last) in &self.runs {
            let (start, last) = (start.saturating_sub(first), last.saturating_sub(first));
            if start >= count {
                break;
            }
            if start > due {
                gaps.push((due, start - 1));
            }
            due = due.max(last.saturating_add(1));
            if gaps.len() > GAPS {
                break;
            }
        }
        if due < count {
            gaps.push((due, count - 1));
        }
        let more = self.full || gaps.len() > GAPS;
        gaps.truncate(GAPS);
        (gaps, more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_transfers_make_room_for_others() {
        let mut tracker = Tracker::new(Numbering::FromZero, 10);
        let key = |number: usize| Key::new(&number.to_be_bytes());
        let piece = |key| PieceOf {
            key,
            seq: 0,
            count: Some(1),
            bytes: None,
            data: 1,
        };
        for number in 0..3 * LIVE {
            let at = At {
                frame: number as u64,
                bytes: 1,
            };
            let why = Problem {
                code: "x",
                text: "".into(),
            };
            let key = key(number);
            tracker.fail(at, "k".into(), &key, &FaultKind::Nested, why);
        }
        let at = At { frame: 1, bytes: 1 };
        tracker.piece(at, "k".into(), &piece(&key(usize::MAX)));
        tracker.complete(&key(usize::MAX));
        tracker.finish();
        assert_eq!((tracker.complete, tracker.failed), (1, 3 * LIVE as u64));
        assert_eq!(tracker.done.count(), 3 * LIVE as u64 + 1);
        assert!(tracker.evictable.len() <= 2 * LIVE);
    }

    #[test]
    fn gaps_are_ranges() {
        for (indices, first, count, expected) in [
            (&[][..], 0, 3, &[(0, 2)][..]),
            (&[0, 1, 2], 0, 3, &[]),
            (&[2, 0], 0, 4, &[(1, 1), (3, 3)]),
            (&[3, 5, 4, 9], 3, 8, &[(3, 5), (7, 7)]),
            (&[u64::MAX, 0], 0, u64::MAX, &[(1, u64::MAX - 1)]),
            (&[7], 0, 0, &[]),
        ] {
            let mut runs = Runs::default();
            for &index in indices {
                assert!(runs.insert(index));
                assert!(!runs.insert(index));
            }
            assert_eq!(
                runs.gaps(first, count),
                (expected.to_vec(), false),
                "{indices:?}"
            );
        }
    }

    #[test]
    fn runs_are_bounded() {
        let mut runs = Runs::default();
        for index in 0..100_000 {
            runs.insert(index * 2);
        }
        assert_eq!(runs.runs.len(), RUNS);
        let (gaps, more) = runs.gaps(0, 200_000);
        assert_eq!((gaps.len(), more), (GAPS, true));
    }
}
