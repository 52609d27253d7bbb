//! The peer's unfinished transfers: admission, eviction, discarding and deadlines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use crate::assembly::{Assembly, Placed, Site};
use crate::budget::{Charge, LinkBudget, Short, TRANSFER_CHARGE};
use crate::rules::{Config, Full, Unknown};
use crate::timers::{Timer, Timers};
use crate::wire::{Opening, Piece, Wire};
use crate::{FaultKind, Key};

/// What became of a frame of a transfer.
#[derive(Debug)]
pub(crate) enum Taken {
    /// There is more to come.
    Pending,
    /// It belongs to nothing that we still want.
    Ignored,
    /// It was the last of what nobody wanted any more.
    Drained,
    /// The transfer with this serial number has all its pieces.
    Complete(u64),
}

/// The buffer for odd pieces that is kept between them.
const SCRATCH_KEPT: usize = 64 << 10;

/// What a new transfer says of itself.
struct Declared<'a> {
    key: &'a Key,
    count: u64,
    bytes: Option<u64>,
    /// It ends all that is unfinished, and so makes room for itself.
    supersedes: bool,
}

#[derive(Default)]
pub(crate) struct Inbox {
    /// By age: the first is the oldest.
    open: BTreeMap<u64, Assembly>,
    /// A tree, which gives its memory back when a flood is over.
    by_key: BTreeMap<Key, u64>,
    serial: u64,
    /// Received bytes of all unfinished transfers.
    pending: usize,
    discarded: DiscardSet,
    scratch: Vec<u8>,
    /// Transfers that made room for others; the link reports them.
    evicted: Vec<Assembly>,
}

impl Inbox {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// All that is unfinished, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Assembly> {
        self.open.values()
    }

    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending
    }

    pub(crate) fn take_evicted(&mut self) -> Vec<Assembly> {
        std::mem::take(&mut self.evicted)
    }

    /// An opening frame.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        opening: Opening,
        config: &Config,
        budget: &LinkBudget,
        timers: &mut Timers,
    ) -> Result<(), FaultKind> {
        if self.by_key.contains_key(&opening.key) {
            return Err(FaultKind::Reopened);
        }
        let declared = Declared {
            key: &opening.key,
            count: opening.count,
            bytes: Some(opening.bytes),
            supersedes: false,
        };
        let charge = self.admit(declared, config, budget, timers)?;
        let assembly = Assembly::from_opening(opening, &config.rules, now, charge);
        self.insert(assembly, config, timers);
        Ok(())
    }

    /// A piece. On a fault the tables are as they were, save what was evicted.
    pub(crate) fn piece(
        &mut self,
        now: Instant,
        piece: &Piece<'_>,
        wire: &dyn Wire,
        config: &Config,
        budget: &LinkBudget,
        timers: &mut Timers,
    ) -> Result<Taken, FaultKind> {
        if let Some(taken) = self.discarded.drops(piece) {
            return Ok(taken);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut site = Site {
            wire,
            rules: &config.rules,
            limit: config.limits.message,
            scratch: &mut scratch,
        };
        let taken = match self.by_key.get(&piece.key).copied() {
            Some(serial) => self.add(now, serial, piece, &mut site, config, timers),
            None => self.begin(now, piece, &mut site, config, budget, timers),
        };
        // What is kept for the next piece is not charged, so it is little.
        if scratch.capacity() <= SCRATCH_KEPT {
            scratch.clear();
            self.scratch = scratch;
        }
        taken
    }

    /// The closing frame of a transfer.
    pub(crate) fn close(
        &mut self,
        key: &Key,
        seq: u64,
        config: &Config,
    ) -> Result<Taken, FaultKind> {
        let Some((serial, assembly)) = self.find(key) else {
            return Ok(Taken::Ignored);
        };
        assembly.close(seq, &config.rules)?;
        Ok(Taken::Complete(serial))
    }

    /// Late frames with this key are dropped, and what is unfinished of it too.
    pub(crate) fn discard(&mut self, key: Key, config: &Config, timers: &mut Timers) {
        self.remove_key(&key, timers);
        // Where a transfer needs an opening its late pieces are dropped anyway.
        if config.rules.unknown != Unknown::Ignored {
            self.discarded.insert(key, config.limits.discarded);
        }
    }

    pub(crate) fn is_discarded(&self, key: &Key) -> bool {
        self.discarded.keys.contains(key)
    }

    pub(crate) fn discarded(&self) -> usize {
        self.discarded.keys.len()
    }

    /// Takes a transfer out of the tables.
    pub(crate) fn remove(&mut self, serial: u64, timers: &mut Timers) -> Option<Assembly> {
        let assembly = self.open.remove(&serial)?;
        self.by_key.remove(&assembly.key);
        self.pending -= assembly.received();
        timers.remove(assembly.deadline);
        Some(assembly)
    }

    pub(crate) fn remove_key(&mut self, key: &Key, timers: &mut Timers) -> Option<Assembly> {
        let serial = self.by_key.get(key).copied()?;
        self.remove(serial, timers)
    }

    /// All that is unfinished, oldest first, but for `keep`.
    pub(crate) fn remove_others(
        &mut self,
        keep: Option<&Key>,
        timers: &mut Timers,
    ) -> Vec<Assembly> {
        let others = self
            .open
            .iter()
            .filter(|(_, open)| Some(&open.key) != keep)
            .map(|(&serial, _)| serial);
        let others: Vec<u64> = others.collect();
        others
            .into_iter()
            .filter_map(|serial| self.remove(serial, timers))
            .collect()
    }

    pub(crate) fn get(&self, serial: u64) -> Option<&Assembly> {
        self.open.get(&serial)
    }

    pub(crate) fn find(&mut self, key: &Key) -> Option<(u64, &mut Assembly)> {
        let serial = *self.by_key.get(key)?;
        Some((serial, self.open.get_mut(&serial)?))
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// A deadline came: is the transfer really out of time, and by which timer? If not it gets a new one.
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        serial: u64,
        config: &Config,
        timers: &mut Timers,
    ) -> Option<&'static str> {
        let assembly = self.open.get_mut(&serial)?;
        assembly.deadline = None;
        let (at, timer) = deadline(assembly, config)?;
        if at <= now {
            return Some(timer);
        }
        assembly.deadline = Some(timers.set(at, Timer::Incoming(serial)));
        None
    }

    /// A piece of a transfer that is under way.
    fn add(
        &mut self,
        now: Instant,
        serial: u64,
        piece: &Piece<'_>,
        site: &mut Site<'_>,
        config: &Config,
        timers: &mut Timers,
    ) -> Result<Taken, FaultKind> {
        let Some(assembly) = self.open.get_mut(&serial) else {
            return Ok(Taken::Ignored);
        };
        assembly.agrees(piece)?;
        // Nothing makes room for what will not be kept.
        if assembly.lacks(piece.seq, &config.rules) {
            self.make_room(serial, site.wire.decoded_max(piece), config, timers)?;
        }
        let Some(assembly) = self.open.get_mut(&serial) else {
            return Ok(Taken::Ignored);
        };
        let before = assembly.received();
        let mut placed = assembly.place(piece, site);
        // With the link's own memory short, older transfers of the same link may have to go; with
        // the process's, they would go for the sake of others.
        while placed == Err(FaultKind::Busy)
            && config.rules.full == Full::EvictOldest
            && self.open.get(&serial).is_some_and(Assembly::link_is_short)
            && self.evict_oldest_but(serial, timers)
        {
            let Some(assembly) = self.open.get_mut(&serial) else {
                return Ok(Taken::Ignored);
            };
            placed = assembly.place(piece, site);
        }
        let Some(assembly) = self.open.get_mut(&serial) else {
            return Ok(Taken::Ignored);
        };
        if placed? == Placed::Again {
            return Ok(Taken::Ignored);
        }
        assembly.last = now;
        self.pending += assembly.received() - before;
        Ok(self.settle(serial, config))
    }

    /// A piece of a transfer that nobody knows.
    fn begin(
        &mut self,
        now: Instant,
        piece: &Piece<'_>,
        site: &mut Site<'_>,
        config: &Config,
        budget: &LinkBudget,
        timers: &mut Timers,
    ) -> Result<Taken, FaultKind> {
        match config.rules.unknown {
            Unknown::Ignored => return Ok(Taken::Ignored),
            Unknown::OpensFirst if piece.seq != 0 => {
                return Err(FaultKind::OutOfOrder {
                    index: piece.seq,
                    expected: 0,
                });
            }
            Unknown::OpensFirst | Unknown::Opens => {}
        }
        self.make_room(u64::MAX, site.wire.decoded_max(piece), config, timers)?;
        let declared = Declared {
            key: &piece.key,
            count: piece.count.unwrap_or(1),
            bytes: piece.bytes,
            supersedes: config.rules.contiguous && piece.seq == 0,
        };
        let charge = self.admit(declared, config, budget, timers)?;
        let mut assembly = Assembly::from_piece(piece, now, charge);
        assembly.place(piece, site)?;
        self.pending += assembly.received();
        let serial = self.insert(assembly, config, timers);
        Ok(self.settle(serial, config))
    }

    /// May another transfer begin? By what it declares, before any memory is taken for it.
    fn admit(
        &mut self,
        declared: Declared<'_>,
        config: &Config,
        budget: &LinkBudget,
        timers: &mut Timers,
    ) -> Result<Charge, FaultKind> {
        let limits = &config.limits;
        let evicts = config.rules.full == Full::EvictOldest;
        if self.open.len() >= limits.transfers && !evicts && !declared.supersedes {
            return Err(FaultKind::TooManyTransfers {
                limit: limits.transfers,
            });
        }
        if let Some(size) = declared.bytes
            && size > limits.message as u64
        {
            return Err(FaultKind::MessageTooLarge {
                size,
                limit: limits.message as u64,
            });
        }
        if declared.count > limits.pieces {
            return Err(FaultKind::TooManyPieces {
                pieces: declared.count,
                limit: limits.pieces,
            });
        }
        while evicts
            && self.open.len() >= limits.transfers
            && self.evict_oldest_but(u64::MAX, timers)
        {}
        loop {
            match budget.charge(TRANSFER_CHARGE + 2 * declared.key.allocated()) {
                Ok(charge) => return Ok(charge),
                Err(Short::Link) if evicts && self.evict_oldest_but(u64::MAX, timers) => {}
                Err(_) => return Err(FaultKind::Busy),
            }
        }
    }

    /// Formats that bound the received bytes of all transfers let the oldest go, be it this one.
    fn make_room(
        &mut self,
        serial: u64,
        more: usize,
        config: &Config,
        timers: &mut Timers,
    ) -> Result<(), FaultKind> {
        let limit = config.limits.pending_bytes;
        if config.rules.full != Full::EvictOldest {
            return if self.pending.saturating_add(more) > limit {
                Err(FaultKind::Busy)
            } else {
                Ok(())
            };
        }
        while self.pending.saturating_add(more) > limit {
            let Some((&oldest, _)) = self.open.first_key_value() else {
                break;
            };
            if oldest == serial {
                // The fault tells of this one.
                self.remove(oldest, timers);
                return Err(FaultKind::Evicted);
            }
            self.evict(oldest, timers);
        }
        Ok(())
    }

    fn evict_oldest_but(&mut self, keep: u64, timers: &mut Timers) -> bool {
        let Some(&oldest) = self.open.keys().find(|&&serial| serial != keep) else {
            return false;
        };
        self.evict(oldest, timers);
        true
    }

    fn evict(&mut self, serial: u64, timers: &mut Timers) {
        if let Some(assembly) = self.remove(serial, timers) {
            self.evicted.push(assembly.emptied());
        }
    }

    fn insert(&mut self, mut assembly: Assembly, config: &Config, timers: &mut Timers) -> u64 {
        self.serial += 1;
        let serial = self.serial;
        assembly.deadline =
            deadline(&assembly, config).map(|(at, _)| timers.set(at, Timer::Incoming(serial)));
        self.by_key.insert(assembly.key.clone(), serial);
        self.open.insert(serial, assembly);
        serial
    }

    fn settle(&mut self, serial: u64, config: &Config) -> Taken {
        match self.open.get(&serial) {
            Some(assembly) if assembly.is_complete() && !config.rules.closing => {
                Taken::Complete(serial)
            }
            _ => Taken::Pending,
        }
    }

    /// Moves what became contiguous into the buffer; see [`Assembly::drain`].
    pub(crate) fn drain(&mut self, key: &Key, config: &Config) -> Result<Taken, FaultKind> {
        let Some((serial, assembly)) = self.find(key) else {
            return Ok(Taken::Ignored);
        };
        assembly.drain(&config.rules)?;
        Ok(self.settle(serial, config))
    }
}

/// When a transfer is out of time, and by which timer.
fn deadline(assembly: &Assembly, config: &Config) -> Option<(Instant, &'static str)> {
    let timeouts = &config.rules.timeouts;
    let idle = timeouts
        .idle
        .and_then(|idle| Some((assembly.last.checked_add(idle)?, "idle")));
    let age = timeouts
        .age
        .and_then(|age| Some((assembly.opened.checked_add(age)?, "age")));
    idle.into_iter().chain(age).min_by_key(|(at, _)| *at)
}

/// Keys whose frames are dropped until the last of them came by; the oldest keys are forgotten first.
#[derive(Default)]
struct DiscardSet {
    keys: BTreeSet<Key>,
    order: VecDeque<Key>,
}

impl DiscardSet {
    fn insert(&mut self, key: Key, limit: usize) {
        if self.keys.insert(key.clone()) {
            self.order.push_back(key);
        }
        while self.keys.len() > limit {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            self.keys.remove(&oldest);
        }
    }

    fn drops(&mut self, piece: &Piece<'_>) -> Option<Taken> {
        if self.keys.is_empty() || !self.keys.contains(&piece.key) {
            return None;
        }
        if piece
            .count
            .is_some_and(|count| piece.seq.checked_add(1) == Some(count))
        {
            self.keys.remove(&piece.key);
            self.order.retain(|key| *key != piece.key);
            return Some(Taken::Drained);
        }
        Some(Taken::Ignored)
    }
}
