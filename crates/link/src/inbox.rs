//! The peer's unfinished transfers: admission, eviction, discarding and deadlines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::assembly::{Assembly, PlaceContext, Placed};
use crate::budget::{Charge, Exhausted, LinkBudget, TRANSFER_CHARGE};
use crate::rules::{Config, Full, Unknown};
use crate::timers::{Timer, Timers};
use crate::wire::{Opening, Piece, RunningDigest, Wire};
use crate::{FaultKind, Key};

/// What was done with a frame of a transfer.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It was stored, and its transfer is not complete.
    Pending,
    /// It is a duplicate, or its transfer is discarded.
    Ignored,
    /// It belongs to no open transfer; if it is of one that was ended early, this is why.
    Unmatched(Option<FaultKind>),
    /// It was the last frame of a discarded transfer.
    LastDiscarded,
    /// It completed the transfer with this serial number.
    Complete(u64),
}

/// The largest scratch buffer that is kept between pieces.
const SCRATCH_KEPT: usize = 64 << 10;

/// What the first frame of a transfer declares.
struct Declared<'a> {
    key: &'a Key,
    count: u64,
    bytes: Option<u64>,
    /// It ends all unfinished transfers, and so makes room for itself.
    supersedes: bool,
}

#[derive(Default)]
pub(crate) struct Inbox {
    /// By serial number: the first is the oldest.
    open: BTreeMap<u64, Assembly>,
    /// A tree rather than a hash table, since it releases its memory after a flood.
    by_key: BTreeMap<Key, u64>,
    serial: u64,
    /// Received bytes of all unfinished transfers.
    pending: usize,
    discarded: DiscardSet,
    /// Transfers that timed out or were evicted: their late pieces are answered with the reason.
    ended: EndedEarly,
    scratch: Vec<u8>,
    /// Transfers that were evicted; the link reports them.
    evicted: Vec<Assembly>,
}

impl Inbox {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// All unfinished transfers, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Assembly> {
        self.open.values()
    }

    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending
    }

    pub(crate) fn take_evicted(&mut self) -> Vec<Assembly> {
        std::mem::take(&mut self.evicted)
    }

    /// Handles an opening frame.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        opening: Opening,
        digest: Option<Box<dyn RunningDigest>>,
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
        self.ended.remove(&opening.key);
        let assembly = Assembly::from_opening(opening, digest, &config.rules, now, charge);
        self.insert(assembly, config, timers);
        Ok(())
    }

    /// Handles a piece. A fault leaves the tables unchanged, except for evicted transfers.
    pub(crate) fn piece(
        &mut self,
        now: Instant,
        piece: &Piece<'_>,
        wire: &dyn Wire,
        config: &Config,
        budget: &LinkBudget,
        timers: &mut Timers,
    ) -> Result<Taken, FaultKind> {
        if let Some(taken) = self.discarded.check(piece) {
            return Ok(taken);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut context = PlaceContext {
            wire,
            rules: &config.rules,
            limit: config.limits.message,
            scratch: &mut scratch,
        };
        let taken = match self.by_key.get(&piece.key).copied() {
            Some(serial) => self.add(now, serial, piece, &mut context, config, timers),
            None => self.begin(now, piece, &mut context, config, budget, timers),
        };
        // The buffer is not charged to the budget, so only a small one is kept.
        if scratch.capacity() <= SCRATCH_KEPT {
            scratch.clear();
            self.scratch = scratch;
        }
        taken
    }

    /// Handles the closing frame of a transfer.
    pub(crate) fn close(
        &mut self,
        key: &Key,
        seq: u64,
        config: &Config,
    ) -> Result<Taken, FaultKind> {
        let Some((serial, assembly)) = self.find(key) else {
            return Ok(Taken::Unmatched(self.ended.get(key)));
        };
        assembly.close(seq, &config.rules)?;
        Ok(Taken::Complete(serial))
    }

    /// Drops the unfinished transfer of this key, and its frames that still come.
    pub(crate) fn discard(&mut self, key: Key, config: &Config, timers: &mut Timers) {
        self.remove_key(&key, timers);
        // If transfers need an opening, late pieces are ignored anyway.
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

    /// Remembers why a transfer was ended, for its pieces that still come.
    pub(crate) fn remember_end(&mut self, key: &Key, kind: &FaultKind, config: &Config) {
        if config.rules.unknown == Unknown::Ignored {
            self.ended.insert(key, kind);
        }
    }

    /// Removes a transfer.
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

    /// Removes all transfers except `keep`, oldest first.
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

    /// Handles a deadline: returns which timeout has expired, or sets the timer again if none has.
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

    /// Handles a piece of an open transfer.
    fn add(
        &mut self,
        now: Instant,
        serial: u64,
        piece: &Piece<'_>,
        context: &mut PlaceContext<'_>,
        config: &Config,
        timers: &mut Timers,
    ) -> Result<Taken, FaultKind> {
        let Some(assembly) = self.open.get_mut(&serial) else {
            return Ok(Taken::Ignored);
        };
        assembly.check_totals(piece)?;
        // A piece that will not be stored must not evict anything.
        if assembly.is_missing(piece.seq, &config.rules) {
            self.make_room(serial, context.wire.decoded_max(piece), config, timers)?;
        }
        let Some(assembly) = self.open.get_mut(&serial) else {
            return Ok(Taken::Ignored);
        };
        let before = assembly.received();
        let mut placed = assembly.place(piece, context);
        // If the link's own budget is exhausted, its older transfers may be evicted. If it is the
        // process's, evicting them would only make room for other links.
        while placed == Err(FaultKind::Busy)
            && config.rules.full == Full::EvictOldest
            && self
                .open
                .get(&serial)
                .is_some_and(Assembly::link_budget_exhausted)
            && self.evict_oldest_but(serial, timers)
        {
            let Some(assembly) = self.open.get_mut(&serial) else {
                return Ok(Taken::Ignored);
            };
            placed = assembly.place(piece, context);
        }
        let Some(assembly) = self.open.get_mut(&serial) else {
            return Ok(Taken::Ignored);
        };
        if placed? == Placed::Duplicate {
            return Ok(Taken::Ignored);
        }
        assembly.last = now;
        self.pending += assembly.received() - before;
        Ok(self.completion(serial, config))
    }

    /// Handles a piece of an unknown transfer.
    fn begin(
        &mut self,
        now: Instant,
        piece: &Piece<'_>,
        context: &mut PlaceContext<'_>,
        config: &Config,
        budget: &LinkBudget,
        timers: &mut Timers,
    ) -> Result<Taken, FaultKind> {
        match config.rules.unknown {
            Unknown::Ignored => return Ok(Taken::Unmatched(self.ended.get(&piece.key))),
            Unknown::OpensFirst if piece.seq != 0 => {
                return Err(FaultKind::OutOfOrder {
                    index: piece.seq,
                    expected: 0,
                });
            }
            Unknown::OpensFirst | Unknown::Opens => {}
        }
        self.make_room(u64::MAX, context.wire.decoded_max(piece), config, timers)?;
        let declared = Declared {
            key: &piece.key,
            count: piece.count.unwrap_or(1),
            bytes: piece.bytes,
            supersedes: config.rules.contiguous && piece.seq == 0,
        };
        let charge = self.admit(declared, config, budget, timers)?;
        let mut assembly = Assembly::from_piece(piece, now, charge);
        assembly.place(piece, context)?;
        self.pending += assembly.received();
        let serial = self.insert(assembly, config, timers);
        Ok(self.completion(serial, config))
    }

    /// Decides whether a transfer may begin, by what it declares, before any memory is allocated
    /// for it.
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
                Err(Exhausted::Link) if evicts && self.evict_oldest_but(u64::MAX, timers) => {}
                Err(_) => return Err(FaultKind::Busy),
            }
        }
    }

    /// Makes room under the limit on received bytes of all transfers. Formats that evict drop the
    /// oldest transfer, which may be this one.
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
                // The returned fault reports this transfer.
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
            self.evicted.push(assembly.without_data());
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

    fn completion(&mut self, serial: u64, config: &Config) -> Taken {
        match self.open.get(&serial) {
            Some(assembly) if assembly.is_complete() && !config.rules.closing => {
                Taken::Complete(serial)
            }
            _ => Taken::Pending,
        }
    }

    /// Moves stashed pieces into the buffer; see [`Assembly::drain`].
    pub(crate) fn drain(&mut self, key: &Key, config: &Config) -> Result<Taken, FaultKind> {
        let Some((serial, assembly)) = self.find(key) else {
            return Ok(Taken::Ignored);
        };
        assembly.drain(&config.rules)?;
        Ok(self.completion(serial, config))
    }
}

/// When a transfer times out, and by which timeout.
fn deadline(assembly: &Assembly, config: &Config) -> Option<(Instant, &'static str)> {
    let timeouts = &config.rules.timeouts;
    let idle = timeouts
        .idle
        .and_then(|idle| Some((assembly.last.checked_add(idle)?, "idle")));
    let age = timeouts.age.and_then(|age| {
        let rate = timeouts.age_rate.filter(|rate| *rate > 0);
        let more = rate.map_or(0, |rate| assembly.received() / rate);
        let age = age.checked_add(Duration::from_secs(more as u64))?;
        Some((assembly.opened.checked_add(age)?, "age"))
    });
    idle.into_iter().chain(age).min_by_key(|(at, _)| *at)
}

/// How many transfers that were ended early are remembered, and the longest key of one.
const ENDED: usize = 32;
const ENDED_KEY: usize = 64;

/// The last transfers that timed out or were evicted. It is small, and not charged to the budget.
#[derive(Default)]
struct EndedEarly(VecDeque<(Key, FaultKind)>);

impl EndedEarly {
    fn insert(&mut self, key: &Key, kind: &FaultKind) {
        let early = matches!(kind, FaultKind::TimedOut { .. } | FaultKind::Evicted);
        if !early || key.as_bytes().len() > ENDED_KEY {
            return;
        }
        self.0.retain(|(known, _)| known != key);
        if self.0.len() == ENDED {
            self.0.pop_front();
        }
        self.0.push_back((key.clone(), kind.clone()));
    }

    fn get(&self, key: &Key) -> Option<FaultKind> {
        let (_, kind) = self.0.iter().find(|(known, _)| known == key)?;
        Some(kind.clone())
    }

    /// Forgets a key, because a new transfer has it.
    fn remove(&mut self, key: &Key) {
        self.0.retain(|(known, _)| known != key);
    }
}

/// Keys whose frames are dropped until the last one came in; the oldest keys are forgotten first.
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

    /// Whether to drop a piece; `None` if its key is not discarded.
    fn check(&mut self, piece: &Piece<'_>) -> Option<Taken> {
        if self.keys.is_empty() || !self.keys.contains(&piece.key) {
            return None;
        }
        if piece
            .count
            .is_some_and(|count| piece.seq.checked_add(1) == Some(count))
        {
            self.keys.remove(&piece.key);
            self.order.retain(|key| *key != piece.key);
            return Some(Taken::LastDiscarded);
        }
        Some(Taken::Ignored)
    }
}
