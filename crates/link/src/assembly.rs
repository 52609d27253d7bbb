//! One transfer on its way in: an in-order buffer, a stash for what came early, and a frontier.
//!
//! A piece is decoded straight into the buffer if it is the next one, else into the stash. The
//! frontier only moves forward and the stash is drained from its front, so a piece costs the same
//! however many there are.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::budget::{Charge, PIECE_CHARGE, Short, TRANSFER_CHARGE};
use crate::rules::{Duplicate, Numbering, Order, Rules};
use crate::wire::{Assembled, Opening, Piece, Wire};
use crate::{Carries, FaultKind, Key};

/// No coding makes data more than this much longer: a control character becomes six.
const MOST_ESCAPED: usize = 6;

/// Beside the message itself, a transfer in free order may hold a quarter more for what waits.
const STASH_SLACK: usize = 64 << 10;

/// What an assembly needs to know of its surroundings.
pub(crate) struct Site<'a> {
    pub(crate) wire: &'a dyn Wire,
    pub(crate) rules: &'a Rules,
    /// Bytes of the largest message that is taken.
    pub(crate) limit: usize,
    /// For data whose size is only known once it is decoded.
    pub(crate) scratch: &'a mut Vec<u8>,
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// It is kept.
    Kept,
    /// It was there already, with the same content.
    Again,
}

pub(crate) struct Assembly {
    pub(crate) key: Key,
    pub(crate) opening: Option<Opening>,
    pub(crate) opened: Instant,
    pub(crate) last: Instant,
    /// Where it stands in the table of deadlines.
    pub(crate) deadline: Option<crate::timers::TimerKey>,
    /// Bytes at which progress was last told.
    pub(crate) told: usize,
    count: u64,
    declared: Option<u64>,
    /// The position of the first piece; unknown while both layouts are possible.
    first: Option<u64>,
    /// The position of the first missing piece.
    next: u64,
    buffer: Vec<u8>,
    /// Whether all in the buffer is known to be ASCII.
    ascii: bool,
    /// Where each piece in the buffer ends, kept only where duplicates are compared.
    ends: Vec<usize>,
    stash: BTreeMap<u64, Box<[u8]>>,
    stashed_bytes: usize,
    charge: Charge,
    /// Whose limit stood in the way last.
    short: Option<Short>,
}

impl Assembly {
    /// A transfer that begins with a piece.
    pub(crate) fn from_piece(piece: &Piece<'_>, now: Instant, charge: Charge) -> Self {
        Self::new(
            piece.key.clone(),
            piece.count.unwrap_or(1),
            piece.bytes,
            Some(0),
            now,
            charge,
        )
    }

    /// A transfer that begins with an opening frame.
    pub(crate) fn from_opening(
        opening: Opening,
        rules: &Rules,
        now: Instant,
        charge: Charge,
    ) -> Self {
        let first = (rules.numbering == Numbering::FromZero).then_some(0);
        let mut new = Self::new(
            opening.key.clone(),
            opening.count,
            Some(opening.bytes),
            first,
            now,
            charge,
        );
        new.opening = Some(opening);
        new
    }

    fn new(
        key: Key,
        count: u64,
        declared: Option<u64>,
        first: Option<u64>,
        now: Instant,
        charge: Charge,
    ) -> Self {
        Self {
            key,
            opening: None,
            opened: now,
            last: now,
            deadline: None,
            told: 0,
            count,
            declared,
            first,
            next: first.unwrap_or(1),
            buffer: Vec::new(),
            ascii: true,
            ends: Vec::new(),
            stash: BTreeMap::new(),
            stashed_bytes: 0,
            charge,
            short: None,
        }
    }

    /// Bytes received so far, in order or not.
    pub(crate) fn received(&self) -> usize {
        self.buffer.len() + self.stashed_bytes
    }

    /// Bytes that were declared, where they were.
    pub(crate) fn declared(&self) -> Option<u64> {
        self.declared
    }

    /// How many pieces are here.
    pub(crate) fn pieces(&self) -> u64 {
        self.next - self.first.unwrap_or(self.next) + self.stash.len() as u64
    }

    /// How many pieces there will be.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether every piece is there and in order.
    pub(crate) fn is_complete(&self) -> bool {
        self.first
            .is_some_and(|first| self.next - first == self.count)
    }

    /// Whether it was the link's own limit that stood in the way last.
    pub(crate) fn link_is_short(&self) -> bool {
        self.short == Some(Short::Link)
    }

    /// A later frame must say the same as the first one.
    pub(crate) fn agrees(&self, piece: &Piece<'_>) -> Result<(), FaultKind> {
        if piece.count.is_some_and(|count| count != self.count) {
            return Err(FaultKind::Inconsistent { field: "total" });
        }
        if piece.bytes.is_some() && piece.bytes != self.declared {
            return Err(FaultKind::Inconsistent {
                field: "totalBytes",
            });
        }
        Ok(())
    }

    /// Whether a piece with this number would be kept: neither here already nor out of place.
    pub(crate) fn lacks(&self, seq: u64, rules: &Rules) -> bool {
        let Ok(position) = self.position(seq) else {
            return false;
        };
        let in_range = self.first_given(position, rules).is_none_or(|first| {
            let index = position.checked_sub(first);
            index.is_some_and(|index| index < self.count)
        });
        let passed = self.first.is_some() && position < self.next;
        in_range && !passed && !self.stash.contains_key(&position)
    }

    /// Puts a piece in its place. On a fault nothing has changed.
    pub(crate) fn place(
        &mut self,
        piece: &Piece<'_>,
        site: &mut Site<'_>,
    ) -> Result<Placed, FaultKind> {
        let position = self.position(piece.seq)?;
        let first = self.first_given(position, site.rules);
        let next = first.filter(|_| self.first.is_none()).unwrap_or(self.next);
        if let Some(first) = first {
            if position < first {
                // The slot before the first piece was given up: it is too late for it.
                return Err(FaultKind::OutOfOrder {
                    index: position,
                    expected: self.next,
                });
            }
            if position - first >= self.count {
                return Err(FaultKind::BadIndex {
                    index: position - first,
                    count: self.count,
                });
            }
        }
        if position < next || self.stash.contains_key(&position) {
            return self.compare(position, piece, site);
        }
        // While the layout is unknown nothing is in order yet.
        if first.is_some() && position == next {
            self.append(piece, site)?;
            self.next = next + 1;
        } else {
            self.check_order(position, next, site.rules)?;
            self.stash_piece(position, piece, site)?;
            self.next = next;
        }
        self.first = first;
        Ok(Placed::Kept)
    }

    /// Moves what the last piece made contiguous out of the stash.
    pub(crate) fn drain(&mut self, rules: &Rules) -> Result<(), FaultKind> {
        if self.first.is_none() {
            return Ok(());
        }
        while let Some((&position, data)) = self.stash.first_key_value() {
            if position != self.next {
                break;
            }
            let size = data.len();
            self.grow(size, self.bound(usize::MAX))?;
            self.reserve_end(rules)?;
            if let Some((_, data)) = self.stash.pop_first() {
                self.ascii &= data.is_ascii();
                self.buffer.extend_from_slice(&data);
            }
            self.stashed_bytes -= size;
            self.charge.shrink(size + PIECE_CHARGE);
            self.next += 1;
            self.note_end(rules);
        }
        Ok(())
    }

    /// The closing frame came: is all there?
    pub(crate) fn close(&mut self, seq: u64, rules: &Rules) -> Result<(), FaultKind> {
        let position = self.position(seq)?;
        if self.first.is_none() {
            // The closing frame's number tells the layout where the pieces did not.
            self.set_first(position.saturating_sub(self.count).clamp(1, 2));
            self.drain(rules)?;
        }
        if !self.is_complete() {
            let have = self.pieces();
            return Err(FaultKind::Incomplete {
                have,
                want: self.count,
            });
        }
        if position != self.next {
            return Err(FaultKind::OutOfOrder {
                index: position,
                expected: self.next,
            });
        }
        Ok(())
    }

    /// The checks of the declared size, once complete.
    pub(crate) fn check_size(&self) -> Result<(), FaultKind> {
        let size = self.buffer.len() as u64;
        match self.declared {
            Some(declared) if declared != size => Err(FaultKind::SizeMismatch { size, declared }),
            _ => Ok(()),
        }
    }

    /// What is left of a transfer that is given up: its name, and enough of its charge to tell of it.
    pub(crate) fn emptied(mut self) -> Self {
        self.buffer = Vec::new();
        self.ends = Vec::new();
        self.stash.clear();
        let least = TRANSFER_CHARGE.min(self.charge.amount());
        self.charge.shrink(self.charge.amount() - least);
        self
    }

    /// What was put together.
    pub(crate) fn whole(&self) -> Assembled<'_> {
        Assembled {
            opening: self.opening.as_ref(),
            bytes: &self.buffer,
            ascii: self.ascii,
        }
    }

    /// What it is charged, for telling of its end.
    pub(crate) fn into_charge(self) -> (Key, Charge) {
        (self.key, self.charge)
    }

    /// The message and what it is charged.
    pub(crate) fn into_message(self) -> (Key, Vec<u8>, Charge) {
        (self.key, self.buffer, self.charge)
    }

    /// The place of a wire number: from 0, or relative to the opening frame.
    fn position(&self, seq: u64) -> Result<u64, FaultKind> {
        match &self.opening {
            Some(opening) if self.first != Some(0) => match seq.checked_sub(opening.seq) {
                Some(position) if position > 0 => Ok(position),
                _ => Err(FaultKind::BadIndex {
                    index: seq,
                    count: self.count,
                }),
            },
            _ => Ok(seq),
        }
    }

    /// The layout, once a piece at `position` is there: 1 tells it, and so does one past the end or
    /// the window of the layout that has a piece at 1.
    fn first_given(&self, position: u64, rules: &Rules) -> Option<u64> {
        let ahead = match rules.order {
            Order::Window { ahead, .. } => ahead,
            Order::Strict | Order::Any => u64::MAX - 1,
        };
        match self.first {
            None if position == 1 => Some(1),
            None if position > self.count.min(ahead + 1) => Some(2),
            known => known,
        }
    }

    fn set_first(&mut self, first: u64) {
        self.first = Some(first);
        self.next = first;
    }

    fn check_order(&self, position: u64, next: u64, rules: &Rules) -> Result<(), FaultKind> {
        match rules.order {
            Order::Strict => Err(FaultKind::OutOfOrder {
                index: position,
                expected: next,
            }),
            Order::Any => Ok(()),
            Order::Window { ahead, stashed } => {
                let gap = position - next;
                if gap > ahead {
                    Err(FaultKind::BeyondWindow { gap, limit: ahead })
                } else if self.stash.len() >= stashed {
                    Err(FaultKind::StashFull)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// A piece that is here already.
    fn compare(
        &self,
        position: u64,
        piece: &Piece<'_>,
        site: &mut Site<'_>,
    ) -> Result<Placed, FaultKind> {
        let index = position - self.first.unwrap_or(1).min(position);
        if site.rules.duplicate == Duplicate::Fault {
            return Err(FaultKind::Duplicate { index });
        }
        site.scratch.clear();
        site.wire.decode(piece, site.scratch)?;
        let known = self.stash.get(&position).map(|data| &**data).or_else(|| {
            let index = usize::try_from(index).ok()?;
            let start = index
                .checked_sub(1)
                .map_or(Some(0), |before| self.ends.get(before).copied())?;
            self.buffer.get(start..*self.ends.get(index)?)
        });
        if known == Some(site.scratch.as_slice()) {
            Ok(Placed::Again)
        } else {
            Err(FaultKind::Conflict { index })
        }
    }

    /// Decodes the next piece onto the buffer.
    fn append(&mut self, piece: &Piece<'_>, site: &mut Site<'_>) -> Result<(), FaultKind> {
        let most = site.wire.decoded_max(piece);
        let before = self.buffer.len();
        self.reserve_end(site.rules)?;
        if self.received() + most <= self.bound(site.limit) {
            self.grow(most, self.bound(site.limit))?;
            if let Err(fault) = site.wire.decode(piece, &mut self.buffer) {
                self.buffer.truncate(before);
                return Err(fault);
            }
        } else {
            // Escapes make the coded data longer than what it holds: decode it to learn its size.
            self.check_room(most / MOST_ESCAPED, site.limit)?;
            site.scratch.clear();
            site.wire.decode(piece, site.scratch)?;
            self.check_room(site.scratch.len(), site.limit)?;
            self.grow(site.scratch.len(), self.bound(site.limit))?;
            self.buffer.extend_from_slice(site.scratch);
        }
        let text = site.wire.carries() == Carries::Text;
        self.ascii = self.ascii && text && self.buffer[before..].is_ascii();
        self.note_end(site.rules);
        Ok(())
    }

    fn stash_piece(
        &mut self,
        position: u64,
        piece: &Piece<'_>,
        site: &mut Site<'_>,
    ) -> Result<(), FaultKind> {
        self.check_room(site.wire.decoded_max(piece) / MOST_ESCAPED, site.limit)?;
        site.scratch.clear();
        site.wire.decode(piece, site.scratch)?;
        self.check_room(site.scratch.len(), site.limit)?;
        let cost = site.scratch.len() + PIECE_CHARGE;
        let held = self.buffer.capacity() + self.stashed_bytes + self.stash.len() * PIECE_CHARGE;
        if held + cost
            > site
                .limit
                .saturating_add(site.limit / 4)
                .saturating_add(STASH_SLACK)
        {
            return Err(FaultKind::StashFull);
        }
        self.take(cost)?;
        self.stash.insert(position, site.scratch.as_slice().into());
        self.stashed_bytes += site.scratch.len();
        Ok(())
    }

    /// The most bytes that may ever be here.
    fn bound(&self, limit: usize) -> usize {
        self.declared.map_or(limit, |declared| {
            usize::try_from(declared).unwrap_or(usize::MAX).min(limit)
        })
    }

    fn check_room(&self, more: usize, limit: usize) -> Result<(), FaultKind> {
        let size = (self.received() + more) as u64;
        if size > limit as u64 {
            return Err(FaultKind::MessageTooLarge {
                size,
                limit: limit as u64,
            });
        }
        match self.declared {
            Some(declared) if size > declared => Err(FaultKind::Overrun { size, declared }),
            _ => Ok(()),
        }
    }

    /// Makes room for `more` bytes: by a quarter of what is there, never past `bound`.
    fn grow(&mut self, more: usize, bound: usize) -> Result<(), FaultKind> {
        let (capacity, needed) = (self.buffer.capacity(), self.buffer.len() + more);
        if needed <= capacity {
            return Ok(());
        }
        let roomy = (capacity + capacity / 4).min(bound).max(needed);
        let target = match self.charge.grow(roomy - capacity) {
            Ok(()) => roomy,
            Err(_) => {
                self.take(needed - capacity)?;
                needed
            }
        };
        self.buffer.reserve_exact(target - self.buffer.len());
        Ok(())
    }

    fn take(&mut self, amount: usize) -> Result<(), FaultKind> {
        self.charge.grow(amount).map_err(|short| {
            self.short = Some(short);
            FaultKind::Busy
        })
    }

    /// Makes room to note where one more piece ends.
    fn reserve_end(&mut self, rules: &Rules) -> Result<(), FaultKind> {
        if rules.duplicate == Duplicate::IgnoreIfEqual && self.ends.len() == self.ends.capacity() {
            let more = (self.ends.len() / 4).max(16);
            self.take(more * size_of::<usize>())?;
            self.ends.reserve_exact(more);
        }
        Ok(())
    }

    fn note_end(&mut self, rules: &Rules) {
        if rules.duplicate == Duplicate::IgnoreIfEqual {
            self.ends.push(self.buffer.len());
        }
    }
}
