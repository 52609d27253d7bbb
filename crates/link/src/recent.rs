//! Remembers a limited number of recent ids, to recognize duplicates in bounded memory.

use std::collections::{BTreeSet, VecDeque};

/// A set of the most recent ids. The oldest are forgotten first.
#[derive(Debug)]
pub struct Recent<T> {
    known: BTreeSet<T>,
    order: VecDeque<T>,
    limit: usize,
}

impl<T: Copy + Ord> Recent<T> {
    /// Remembers at most `limit` ids.
    pub fn new(limit: usize) -> Self {
        Self {
            known: BTreeSet::new(),
            order: VecDeque::new(),
            limit: limit.max(1),
        }
    }

    /// Adds an id; returns false if it is known already.
    pub fn insert(&mut self, id: T) -> bool {
        if !self.known.insert(id) {
            return false;
        }
        self.order.push_back(id);
        while self.order.len() > self.limit {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
        true
    }

    /// How many ids are remembered.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no id is remembered.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counts_once_and_memory_is_bounded() {
        let mut recent = Recent::new(3);
        for (id, fresh) in [(1, true), (1, false), (2, true), (3, true), (2, false)] {
            assert_eq!(recent.insert(id), fresh, "{id}");
        }
        for id in 4..10_000 {
            assert!(recent.insert(id));
        }
        assert_eq!((recent.len(), recent.is_empty()), (3, false));
        assert!(recent.insert(1), "the oldest was forgotten");
    }
}
