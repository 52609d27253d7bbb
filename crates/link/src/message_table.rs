//! The outgoing messages by their id. A slot is used again for the next message, so that a message that is
//! sent at once costs no allocation.

use crate::TransferId;
use crate::outbox::{Entry, Outgoing};

/// How many slots an empty table keeps.
const KEPT: usize = 16;

struct Slot {
    /// The serial number of its message; 0 if it is free.
    serial: u64,
    /// If it is free, the next free one.
    next: Option<u32>,
    /// Changed in place: moving an entry in and out would cost more than everything else in this table.
    entry: Entry,
}

#[derive(Default)]
pub(crate) struct MessageTable {
    slots: Vec<Slot>,
    free: Option<u32>,
    len: usize,
    serial: u64,
}

impl MessageTable {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a message; ids grow.
    pub(crate) fn insert(&mut self, message: Outgoing) -> TransferId {
        self.serial += 1;
        self.len += 1;
        let serial = self.serial;
        let slot = match self.free {
            Some(slot) => {
                let place = &mut self.slots[slot as usize];
                self.free = place.next;
                place.serial = serial;
                place.entry.set(message);
                slot
            }
            None => {
                let entry = Entry::new(message);
                let next = None;
                self.slots.push(Slot {
                    serial,
                    next,
                    entry,
                });
                // Cannot overflow: the limit on queued messages is far below, and memory would run out first.
                (self.slots.len() - 1) as u32
            }
        };
        TransferId { serial, slot }
    }

    pub(crate) fn get(&self, id: TransferId) -> Option<&Entry> {
        let slot = self.slots.get(id.slot as usize)?;
        (slot.serial == id.serial).then_some(&slot.entry)
    }

    pub(crate) fn get_mut(&mut self, id: TransferId) -> Option<&mut Entry> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        (slot.serial == id.serial).then_some(&mut slot.entry)
    }

    /// Removes a message, and drops what it holds; returns false if there is none with this id.
    pub(crate) fn remove(&mut self, id: TransferId) -> bool {
        let slot = self.slots.get_mut(id.slot as usize);
        let Some(slot) = slot.filter(|slot| slot.serial == id.serial) else {
            return false;
        };
        slot.entry.clear();
        (slot.serial, slot.next) = (0, self.free);
        self.free = Some(id.slot);
        self.len -= 1;
        // Releases the memory that many messages took.
        if self.len == 0 && self.slots.capacity() > KEPT {
            (self.slots, self.free) = (Vec::new(), None);
        }
        true
    }

    /// Drops all messages; their ids are not used again.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            serial: self.serial,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u64) -> Outgoing {
        Outgoing::new(Vec::new()).tagged(tag)
    }

    fn tag(table: &MessageTable, id: TransferId) -> Option<u64> {
        table.get(id).map(|entry| entry.message.tag)
    }

    #[test]
    fn slots_are_used_again_and_ids_are_not() {
        let mut table = MessageTable::default();
        let [one, two] = [1, 2].map(|tag| table.insert(message(tag)));
        assert!(one < two);
        assert!(table.remove(one));
        assert!(!table.remove(one));
        let three = table.insert(message(3));
        assert!(three > two && three.slot == one.slot);
        assert_eq!(tag(&table, one), None);
        assert_eq!((tag(&table, two), tag(&table, three)), (Some(2), Some(3)));
        assert_eq!(table.len(), 2);
        table.clear();
        assert!(table.is_empty() && tag(&table, three).is_none());
        assert!(table.insert(message(4)) > three);
    }

    #[test]
    fn an_empty_table_keeps_little_memory() {
        let mut table = MessageTable::default();
        let ids: Vec<_> = (0..1000).map(|tag| table.insert(message(tag))).collect();
        for id in ids {
            assert!(table.remove(id));
        }
        assert!(table.slots.capacity() <= KEPT && table.is_empty());
    }
}
