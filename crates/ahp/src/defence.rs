//! The receiver's defence against overtaking: from which number to `reconnect` so that no action is lost.
//!
//! A client reconnects from the largest number it has seen. If action 422 overtook a large action 421 and
//! the connection then drops, 421 would never be sent again. So when a group of segments begins, the
//! largest number at that time is remembered until the group is complete. A reconnect starts from the
//! smallest of these numbers, and actions that were applied already are removed from the replay. All of
//! this outlives the transport.

use std::collections::BTreeMap;

use breakbulk_link::Key;

/// The most runs of applied numbers that are kept: 1 MiB.
const RUNS: usize = 65_536;

/// Which actions one client has received.
#[derive(Clone, Debug, Default)]
pub struct Defence {
    /// The largest number that was received.
    last_seen: i64,
    /// The largest one that was received over this transport.
    newest: Option<i64>,
    /// For each incomplete group, the largest number when it began.
    open: BTreeMap<Key, i64>,
    /// The smallest such number of a group that failed.
    lost: Option<i64>,
    /// The actions that were received after the smallest of these numbers.
    applied: Runs,
}

/// While a group was incomplete, too many actions with gaps between their numbers were received to
/// remember them all. The connection must be closed; the next `reconnect` starts over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "while a group of segments was incomplete, the numbers of the actions received left more than {RUNS} gaps; reconnect"
)]
pub struct Overtaken;

impl Defence {
    /// The client starts over from this number, or from a snapshot of it. Actions that were received and
    /// groups that began over this transport before have overtaken the answer, so their numbers are
    /// larger.
    pub fn start(&mut self, seq: i64) {
        self.last_seen = self.newest.map_or(seq, |newest| newest.max(seq));
        self.lost = None;
        for seen in self.open.values_mut() {
            *seen = seq;
        }
        self.forget();
    }

    /// A group began.
    pub fn opened(&mut self, key: Key) {
        self.open.entry(key).or_insert(self.last_seen);
    }

    /// A group is complete.
    pub fn whole(&mut self, key: &Key) {
        self.open.remove(key);
        self.forget();
    }

    /// A group failed; it is unknown which action was in it.
    pub fn failed(&mut self, key: &Key) {
        if let Some(seen) = self.open.remove(key) {
            self.lost = Some(self.lost.map_or(seen, |lost| lost.min(seen)));
        }
    }

    /// The transport is gone, and with it all incomplete groups.
    pub fn disconnected(&mut self) {
        let smallest = self.floor();
        self.open.clear();
        self.lost = smallest;
        self.newest = None;
    }

    /// An action is delivered to the client.
    pub fn applied(&mut self, seq: i64) -> Result<(), Overtaken> {
        self.last_seen = self.last_seen.max(seq);
        self.newest = Some(self.newest.map_or(seq, |newest| newest.max(seq)));
        if self.floor().is_some_and(|floor| seq > floor) && !self.applied.insert(seq) {
            return Err(Overtaken);
        }
        Ok(())
    }

    /// The largest number that was received.
    pub fn last_seen(&self) -> i64 {
        self.last_seen
    }

    /// The number to reconnect from, if the client's own last number is `own`.
    pub fn reconnect_from(&self, own: i64) -> i64 {
        self.floor().map_or(own, |floor| floor.min(own))
    }

    /// The client reconnects from this number. Until it has caught up, all received actions are
    /// remembered, since they may overtake the answer.
    pub fn reconnecting(&mut self, from: i64) {
        self.lost = Some(self.floor().map_or(from, |floor| floor.min(from)));
    }

    /// Whether the client, whose own last number is `own`, has this action already. An action that was
    /// delivered to it just before the connection dropped may be larger than `own`; it is not removed
    /// from the replay.
    pub fn has_applied(&self, seq: i64, own: i64) -> bool {
        match self.floor() {
            Some(floor) => seq <= own && (seq <= floor || self.applied.contains(seq)),
            None => seq <= own,
        }
    }

    /// The client has received all actions up to this number. Groups that began over this transport
    /// before have overtaken the answer, so their actions have larger numbers.
    pub fn caught_up(&mut self, seq: i64) {
        self.last_seen = self.last_seen.max(seq);
        self.lost = None;
        for seen in self.open.values_mut() {
            *seen = (*seen).max(seq);
        }
        self.forget();
    }

    fn floor(&self) -> Option<i64> {
        self.open.values().copied().chain(self.lost).min()
    }

    fn forget(&mut self) {
        match self.floor() {
            None => self.applied.clear(),
            Some(floor) => self.applied.forget_upto(floor),
        }
    }
}

/// A set of numbers, stored as runs: first to last.
#[derive(Clone, Debug, Default)]
struct Runs(BTreeMap<i64, i64>);

impl Runs {
    /// Adds a number; false if there is no room for another run.
    fn insert(&mut self, number: i64) -> bool {
        if self.contains(number) {
            return true;
        }
        let before = self.0.range(..number).next_back();
        let before = before.and_then(|(&first, &last)| (last == number - 1).then_some(first));
        let after = number.checked_add(1).and_then(|next| self.0.remove(&next));
        if before.is_none() && after.is_none() && self.0.len() >= RUNS {
            return false;
        }
        self.0
            .insert(before.unwrap_or(number), after.unwrap_or(number));
        true
    }

    fn contains(&self, number: i64) -> bool {
        let run = self.0.range(..=number).next_back();
        run.is_some_and(|(_, &last)| number <= last)
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn forget_upto(&mut self, floor: i64) {
        while let Some(run) = self.0.first_entry() {
            let (first, last) = (*run.key(), *run.get());
            if first > floor {
                break;
            }
            run.remove();
            if last > floor {
                self.0.insert(floor + 1, last);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name.as_bytes())
    }

    #[test]
    fn an_overtaken_action_comes_again_and_nothing_else_does() {
        let mut defence = Defence::default();
        defence.start(420);
        defence.opened(key("421"));
        for seq in [422, 423] {
            defence.applied(seq).unwrap();
        }
        defence.disconnected();
        assert_eq!(defence.last_seen(), 423);
        assert_eq!(defence.reconnect_from(423), 420);
        let again: Vec<_> = (419..=425)
            .filter(|&seq| !defence.has_applied(seq, 423))
            .collect();
        assert_eq!(again, [421, 424, 425]);
        // The client itself says that it has not seen 423, so 423 stays in the replay.
        assert!(!defence.has_applied(423, 422));
        // A second disconnect before the answer changes nothing.
        defence.disconnected();
        assert_eq!(defence.reconnect_from(423), 420);
        defence.caught_up(425);
        assert_eq!(defence.reconnect_from(425), 425);
    }

    // AHP-16
    #[test]
    fn the_smallest_of_several_groups_counts() {
        let mut defence = Defence::default();
        defence.start(10);
        defence.opened(key("a"));
        defence.applied(12).unwrap();
        defence.opened(key("b"));
        defence.applied(14).unwrap();
        assert_eq!(defence.reconnect_from(14), 10);
        defence.applied(11).unwrap();
        defence.whole(&key("a"));
        assert_eq!(defence.reconnect_from(14), 12);
        assert!(defence.has_applied(14, 14) && !defence.has_applied(13, 14));
        // A failed group counts like an incomplete one: it is unknown which action was in it.
        defence.failed(&key("b"));
        assert_eq!(defence.reconnect_from(14), 12);
        defence.start(20);
        assert_eq!(defence.reconnect_from(20), 20);
    }

    #[test]
    fn what_overtakes_the_first_answer_is_not_forgotten_by_it() {
        let mut defence = Defence::default();
        // Actions 101 and 102 overtake the answer that says 100, and 101 is not whole yet.
        defence.opened(key("answer"));
        defence.opened(key("101"));
        defence.applied(102).unwrap();
        defence.start(100);
        defence.whole(&key("answer"));
        assert_eq!(defence.last_seen(), 102);
        defence.disconnected();
        assert_eq!(defence.reconnect_from(102), 100);
        assert!(defence.has_applied(102, 102) && !defence.has_applied(101, 102));
        // If a host starts over with smaller numbers, those count.
        defence.start(3);
        assert_eq!((defence.last_seen(), defence.reconnect_from(3)), (3, 3));
    }

    // AHP-16
    #[test]
    fn what_overtakes_the_replay_is_no_reason_to_skip_it() {
        let mut defence = Defence::default();
        defence.start(100);
        // 101 to 109 are in the answer; 110 overtakes it, and the connection drops.
        defence.reconnecting(defence.reconnect_from(100));
        defence.applied(110).unwrap();
        defence.opened(key("answer"));
        defence.disconnected();
        assert_eq!(defence.reconnect_from(110), 100);
        assert!(defence.has_applied(110, 110) && !defence.has_applied(105, 110));
    }

    #[test]
    fn what_was_replayed_does_not_come_again_for_a_group_that_overtook_the_replay() {
        let mut defence = Defence::default();
        defence.start(100);
        defence.reconnecting(100);
        defence.opened(key("answer"));
        defence.opened(key("live"));
        // The answer has 101 to 109 in it.
        defence.caught_up(109);
        defence.whole(&key("answer"));
        defence.applied(111).unwrap();
        defence.disconnected();
        assert_eq!(defence.reconnect_from(111), 109);
        assert!(defence.has_applied(105, 111) && !defence.has_applied(110, 111));
    }

    #[test]
    fn runs_are_a_set_of_numbers() {
        let mut seed = 0x9e37_79b9_u64;
        let (mut runs, mut oracle) = (Runs::default(), std::collections::BTreeSet::new());
        for round in 0..2000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = i64::try_from(seed >> 56).unwrap();
            if round % 100 == 99 {
                runs.forget_upto(number / 2);
                oracle.retain(|&one| one > number / 2);
            } else {
                assert!(runs.insert(number));
                oracle.insert(number);
            }
            for one in 0..256 {
                assert_eq!(runs.contains(one), oracle.contains(&one), "{one}");
            }
        }
    }

    #[test]
    fn scattered_numbers_are_bounded() {
        let mut defence = Defence::default();
        defence.opened(key("stuck"));
        let all = i64::try_from(RUNS).unwrap();
        for number in 1..=all {
            defence.applied(number * 2).unwrap();
        }
        assert_eq!(defence.applied(all * 2 + 2), Err(Overtaken));
        // A number that extends an existing run needs no room for another.
        defence.applied(3).unwrap();
    }
}
