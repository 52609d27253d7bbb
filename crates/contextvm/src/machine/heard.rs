//! The events that were heard, so that none is heard twice. Events whose author's time is too far from
//! ours are refused, so only those of a limited time must be remembered; where even these are too many,
//! older ones are refused rather than forgotten.

use std::collections::{BTreeMap, BTreeSet};

use super::{EventId, PublicKey};

/// An event that was heard, for a store that outlives the process.
///
/// An id of zeros stands for a limit: events of this author before `created_at` are refused, and if the
/// key is zeros too, those of all authors that no other entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Heard {
    /// The key that signed it.
    pub author: PublicKey,
    /// Its id; for a gift wrap the inner event's.
    pub id: EventId,
    /// When it was made, in Unix seconds by its author's clock.
    pub created_at: u64,
}

/// Whether an event is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    New,
    Duplicate,
    /// It was made too long ago, or before the oldest that is remembered.
    TooOld,
    /// Its author's clock is too far ahead.
    TooNew,
}

/// The ids of all events within a window of time, by author.
#[derive(Debug)]
pub(super) struct HeardEvents {
    /// How far an event's time may be from ours, in seconds.
    window: u64,
    /// The most ids of all authors.
    limit: usize,
    /// How many there are.
    count: usize,
    authors: BTreeMap<PublicKey, Author>,
    /// Authors by when they were heard last, the one silent for longest first.
    order: BTreeMap<u64, PublicKey>,
    serial: u64,
    /// Events of authors that are not in the table must not be older.
    floor: u64,
}

#[derive(Debug, Default)]
struct Author {
    ids: BTreeSet<(u64, EventId)>,
    /// Its events must not be older.
    floor: u64,
    /// Its place in `order`.
    serial: u64,
}

impl HeardEvents {
    pub(super) fn new(window: u64, limit: usize) -> Self {
        Self {
            window,
            limit: limit.max(2),
            count: 0,
            authors: BTreeMap::new(),
            order: BTreeMap::new(),
            serial: 0,
            floor: 0,
        }
    }

    /// Refuses events that were made before this time.
    pub(super) fn refuse_before(&mut self, time: u64) {
        self.floor = self.floor.max(time);
    }

    /// Checks an event, and remembers it if it is new. `now` is our clock in Unix seconds.
    pub(super) fn insert(&mut self, now: u64, event: Heard) -> Verdict {
        let time = event.created_at;
        if time > now.saturating_add(self.window) {
            return Verdict::TooNew;
        }
        let oldest = now.saturating_sub(self.window);
        let floor = match self.authors.get(&event.author) {
            Some(author) if author.ids.contains(&(time, event.id)) => return Verdict::Duplicate,
            Some(author) => author.floor,
            None => self.floor,
        };
        if time < oldest.max(floor) {
            return Verdict::TooOld;
        }
        self.remember(oldest, event);
        Verdict::New
    }

    /// Restores an entry that a store kept.
    pub(super) fn restore(&mut self, now: u64, event: Heard) {
        let oldest = now.saturating_sub(self.window);
        let time = event.created_at;
        let limits = event.id == EventId::from_byte_array([0; 32]);
        if limits && event.author == PublicKey::from_byte_array([0; 32]) {
            self.refuse_before(time);
        } else if limits {
            let author = self.authors.entry(event.author).or_default();
            author.floor = author.floor.max(time);
            self.touch(&event.author);
        } else if time >= oldest {
            self.remember(oldest, event);
        }
    }

    /// All that a store must keep, without what is refused by its age anyway.
    pub(super) fn all(&self) -> impl Iterator<Item = Heard> {
        let limit = |author: PublicKey, created_at| Heard {
            author,
            id: EventId::from_byte_array([0; 32]),
            created_at,
        };
        let nobody = limit(PublicKey::from_byte_array([0; 32]), self.floor);
        // Authors in the order of their last event, which stays the same after a restart.
        let authors = self.order.values();
        let authors = authors.filter_map(|key| Some((*key, self.authors.get(key)?)));
        let all = authors.flat_map(move |(key, author)| {
            let ids = author.ids.iter().map(move |&(created_at, id)| Heard {
                author: key,
                id,
                created_at,
            });
            std::iter::once(limit(key, author.floor)).chain(ids)
        });
        std::iter::once(nobody).chain(all)
    }

    fn remember(&mut self, oldest: u64, event: Heard) {
        let floor = self.floor;
        let author = self.authors.entry(event.author).or_insert(Author {
            floor,
            ..Author::default()
        });
        self.count += usize::from(author.ids.insert((event.created_at, event.id)));
        // No author uses more than a quarter: its own oldest ids are dropped, and older events refused.
        let share = (self.limit / 4).max(1);
        while let Some(&(time, id)) = author.ids.first()
            && (time < oldest || author.ids.len() > share)
        {
            author.ids.remove(&(time, id));
            self.count -= 1;
            if time >= oldest {
                author.floor = author.floor.max(time.saturating_add(1));
            }
        }
        // Either all events of one second are remembered or none.
        while let Some(&(time, id)) = author.ids.first()
            && time < author.floor
        {
            author.ids.remove(&(time, id));
            self.count -= 1;
        }
        self.touch(&event.author);
        self.forget_silent(oldest, &event.author);
    }

    /// Makes this author the last one that was heard.
    fn touch(&mut self, key: &PublicKey) {
        self.serial += 1;
        if let Some(author) = self.authors.get_mut(key) {
            self.order.remove(&author.serial);
            author.serial = self.serial;
            self.order.insert(self.serial, *key);
        }
    }

    /// Drops the authors whose events the window refuses anyway and, while the table is too full, those
    /// that were silent for longest: their events so far are refused from now on.
    fn forget_silent(&mut self, oldest: u64, keep: &PublicKey) {
        while let Some((&serial, &key)) = self.order.first_key_value()
            && key != *keep
        {
            let Some(author) = self.authors.get(&key) else {
                self.order.remove(&serial);
                continue;
            };
            let last = author.ids.last().map_or(0, |(time, _)| *time);
            let expired = last < oldest && author.floor <= oldest;
            let full = self.count > self.limit || self.authors.len() > self.limit;
            if !expired && !full {
                return;
            }
            if !expired {
                self.floor = self.floor.max(author.floor).max(last.saturating_add(1));
            }
            self.count -= author.ids.len();
            self.authors.remove(&key);
            self.order.remove(&serial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn event(author: u8, number: u32, created_at: u64) -> Heard {
        let mut id = [0xee; 32];
        id[..4].copy_from_slice(&number.to_be_bytes());
        Heard {
            author: PublicKey::from_byte_array([author; 32]),
            id: EventId::from_byte_array(id),
            created_at,
        }
    }

    // CEP22-17
    #[test]
    fn an_event_is_heard_once_and_only_in_its_time() {
        let mut heard = HeardEvents::new(600, 100);
        for (author, number, age, verdict) in [
            (1, 1, 0, Verdict::New),
            (1, 1, 0, Verdict::Duplicate),
            (1, 2, 600, Verdict::New),
            (1, 3, 601, Verdict::TooOld),
            (1, 4, -600, Verdict::New),
            (1, 5, -601, Verdict::TooNew),
            (2, 1, 0, Verdict::New),
        ] {
            let event = event(author, number, NOW.saturating_add_signed(-age));
            assert_eq!(heard.insert(NOW, event), verdict, "{author} {number} {age}");
        }
        // A known event is a duplicate as long as it is remembered, and too old afterwards.
        let first = event(1, 1, NOW);
        assert_eq!(heard.insert(NOW + 600, first), Verdict::Duplicate);
        assert_eq!(
            heard.insert(NOW + 601, event(1, 9, NOW + 601)),
            Verdict::New
        );
        assert_eq!(heard.insert(NOW + 601, first), Verdict::TooOld);
    }

    #[test]
    fn what_is_too_much_is_refused_by_age_and_never_heard_again() {
        let mut heard = HeardEvents::new(600, 40);
        // One author floods the table: only that author's own oldest events are dropped.
        let friend = event(9, 0, NOW);
        assert_eq!(heard.insert(NOW, friend), Verdict::New);
        for number in 0..1000 {
            let made = NOW + u64::from(number) / 10;
            assert_eq!(heard.insert(made, event(1, number, made)), Verdict::New);
        }
        assert!(heard.count <= 11, "{}", heard.count);
        for number in 0..1000 {
            let again = event(1, number, NOW + u64::from(number) / 10);
            assert_ne!(heard.insert(NOW + 100, again), Verdict::New, "{number}");
        }
        assert_eq!(heard.insert(NOW + 100, friend), Verdict::Duplicate);

        // Many authors flood the table: an active author stays in it, and no event is accepted twice.
        for number in 0..200_u32 {
            let stranger = event(10 + number as u8, 5000 + number, NOW + 100);
            heard.insert(NOW + 100, stranger);
            let verdict = heard.insert(NOW + 100, event(9, 7000 + number, NOW + 101));
            assert_ne!(verdict, Verdict::Duplicate);
        }
        assert!(heard.count <= 40 && heard.authors.len() <= 40);
        for number in 0..200_u32 {
            let stranger = event(10 + number as u8, 5000 + number, NOW + 100);
            assert_ne!(heard.insert(NOW + 100, stranger), Verdict::New, "{number}");
        }
        assert_ne!(heard.insert(NOW + 100, friend), Verdict::New);
    }

    #[test]
    fn a_store_brings_back_all_that_counts() {
        for limit in [8, 40, 1000] {
            let mut before = HeardEvents::new(600, limit);
            before.refuse_before(NOW - 300);
            let events: Vec<Heard> = (0..60)
                .map(|number| event(number as u8 % 7, number, NOW + u64::from(number)))
                .collect();
            for event in &events {
                before.insert(NOW + 60, *event);
            }
            let mut after = HeardEvents::new(600, limit);
            for kept in before.all() {
                after.restore(NOW + 61, kept);
            }
            for event in &events {
                assert_ne!(after.insert(NOW + 61, *event), Verdict::New, "{event:?}");
            }
            let old = event(77, 1, NOW - 301);
            assert_eq!(after.insert(NOW + 61, old), Verdict::TooOld);
            let new = event(1, 1000, NOW + 61);
            assert_eq!(after.insert(NOW + 61, new), Verdict::New);
        }
    }
}
