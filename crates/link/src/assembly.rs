//! One incoming transfer: a buffer for the pieces that are in order, a stash for pieces that came
//! early, and the position of the first missing piece.
//!
//! A piece is decoded straight into the buffer if it is the next one, otherwise into the stash. The
//! position only moves forward and the stash is drained from its front, so the cost of a piece does not
//! depend on how many there are.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::budget::{Charge, Exhausted, PIECE_CHARGE, TRANSFER_CHARGE};
use crate::rules::{Duplicate, Numbering, Order, Rules};
use crate::wire::{Assembled, Opening, Piece, RunningDigest, Wire};
use crate::{Carries, FaultKind, Key, Unit};

/// The most that any coding expands data by: JSON escapes a control character as six bytes.
const MOST_ESCAPED: usize = 6;

/// What a transfer whose pieces come in any order may hold in its stash, in addition to the message's
/// limit and a quarter of it.
const STASH_SLACK: usize = 64 << 10;

/// What an assembly needs from its link to place a piece.
pub(crate) struct PlaceContext<'a> {
    pub(crate) wire: &'a dyn Wire,
    pub(crate) rules: &'a Rules,
    /// The largest message that is accepted, in bytes.
    pub(crate) limit: usize,
    /// A buffer for data whose size is only known once it is decoded.
    pub(crate) scratch: &'a mut Vec<u8>,
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// It was stored.
    Kept,
    /// It was received before, with the same content.
    Duplicate,
}

pub(crate) struct Assembly {
    pub(crate) key: Key,
    pub(crate) opening: Option<Opening>,
    pub(crate) opened: Instant,
    pub(crate) last: Instant,
    /// Its entry in the table of timers.
    pub(crate) deadline: Option<crate::timers::TimerKey>,
    /// How many bytes were received when progress was last reported.
    pub(crate) reported: usize,
    count: u64,
    declared: Option<u64>,
    /// The position of the first piece; unknown while both numberings are possible (see
    /// [`Numbering::AfterOpening`]).
    first: Option<u64>,
    /// The position of the first missing piece.
    next: u64,
    buffer: Vec<u8>,
    /// Whether the buffer is known to be ASCII.
    ascii: bool,
    /// The digest of the buffer, if the opening frame announced one.
    digest: Option<Box<dyn RunningDigest>>,
    /// Where each piece in the buffer ends; kept only if the rules compare duplicates.
    ends: Vec<usize>,
    stash: BTreeMap<u64, Box<[u8]>>,
    stashed_bytes: usize,
    charge: Charge,
    /// Which budget was exhausted when memory was last refused.
    exhausted: Option<Exhausted>,
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
        digest: Option<Box<dyn RunningDigest>>,
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
        new.digest = digest;
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
            reported: 0,
            count,
            declared,
            first,
            next: first.unwrap_or(1),
            buffer: Vec::new(),
            ascii: true,
            digest: None,
            ends: Vec::new(),
            stash: BTreeMap::new(),
            stashed_bytes: 0,
            charge,
            exhausted: None,
        }
    }

    /// Bytes received so far, in order or not.
    pub(crate) fn received(&self) -> usize {
        self.buffer.len() + self.stashed_bytes
    }

    /// The declared size, if there is one.
    pub(crate) fn declared(&self) -> Option<u64> {
        self.declared
    }

    /// How many pieces were received.
    pub(crate) fn pieces(&self) -> u64 {
        self.next - self.first.unwrap_or(self.next) + self.stash.len() as u64
    }

    /// How many pieces there will be.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether every piece was received and is in the buffer.
    pub(crate) fn is_complete(&self) -> bool {
        self.first
            .is_some_and(|first| self.next - first == self.count)
    }

    /// Whether memory was last refused by the link's own budget.
    pub(crate) fn link_budget_exhausted(&self) -> bool {
        self.exhausted == Some(Exhausted::Link)
    }

    /// Checks that a piece declares the same totals as the first frame.
    pub(crate) fn check_totals(&self, piece: &Piece<'_>) -> Result<(), FaultKind> {
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

    /// Whether a piece with this number would be stored: it is in range and was not received before.
    pub(crate) fn is_missing(&self, seq: u64, rules: &Rules) -> bool {
        let Ok(position) = self.position(seq) else {
            return false;
        };
        let in_range = self.first_after(position, rules).is_none_or(|first| {
            let index = position.checked_sub(first);
            index.is_some_and(|index| index < self.count)
        });
        let passed = self.first.is_some() && position < self.next;
        in_range && !passed && !self.stash.contains_key(&position)
    }

    /// Stores a piece in the buffer or the stash. A fault leaves everything unchanged.
    pub(crate) fn place(
        &mut self,
        piece: &Piece<'_>,
        context: &mut PlaceContext<'_>,
    ) -> Result<Placed, FaultKind> {
        let position = self.position(piece.seq)?;
        let first = self.first_after(position, context.rules);
        let next = first.filter(|_| self.first.is_none()).unwrap_or(self.next);
        if let Some(first) = first {
            if position < first {
                // The numbering is known by now, and has no piece at this position.
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
            return self.compare(position, piece, context);
        }
        // While the numbering is unknown no piece can be called the next one.
        if first.is_some() && position == next {
            self.append(piece, context)?;
            self.next = next + 1;
        } else {
            self.check_order(position, next, context.rules)?;
            self.stash_piece(position, piece, context)?;
            self.next = next;
        }
        self.first = first;
        Ok(Placed::Kept)
    }

    /// Moves the pieces that follow the buffer without a gap from the stash to the buffer.
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
                if let Some(digest) = &mut self.digest {
                    digest.update(&data);
                }
                self.buffer.extend_from_slice(&data);
            }
            self.stashed_bytes -= size;
            self.charge.shrink(size + PIECE_CHARGE);
            self.next += 1;
            self.note_end(rules);
        }
        Ok(())
    }

    /// Handles the closing frame: checks that all pieces were received.
    pub(crate) fn close(&mut self, seq: u64, rules: &Rules) -> Result<(), FaultKind> {
        let position = self.position(seq)?;
        if self.first.is_none() {
            // The closing frame's number determines the numbering if the pieces did not.
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

    /// Checks the size of a complete message against the declared one.
    pub(crate) fn check_size(&self) -> Result<(), FaultKind> {
        let size = self.buffer.len() as u64;
        match self.declared {
            Some(declared) if declared != size => Err(FaultKind::SizeMismatch { size, declared }),
            _ => Ok(()),
        }
    }

    /// Releases the data of a transfer that failed; keeps its key, and enough of its charge to
    /// report it.
    pub(crate) fn without_data(mut self) -> Self {
        self.buffer = Vec::new();
        self.digest = None;
        self.ends = Vec::new();
        self.stash.clear();
        let least = TRANSFER_CHARGE.min(self.charge.amount());
        self.charge.shrink(self.charge.amount() - least);
        self
    }

    /// The assembled message, for the wire's final checks.
    pub(crate) fn whole(&self) -> Assembled<'_> {
        Assembled {
            opening: self.opening.as_ref(),
            bytes: &self.buffer,
            ascii: self.ascii,
            digest: self.digest.as_ref().map(|digest| digest.value()),
        }
    }

    /// The key and the charge, for reporting the end of the transfer.
    pub(crate) fn into_charge(self) -> (Key, Charge) {
        (self.key, self.charge)
    }

    /// The key, the message and its charge.
    pub(crate) fn into_message(self) -> (Key, Vec<u8>, Charge) {
        (self.key, self.buffer, self.charge)
    }

    /// The position of a piece by its number on the wire: from 0, or relative to the opening frame.
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

    /// The position of the first piece, given that there is a piece at `position`. A piece at 1 is
    /// the first; a piece that lies past the end of a transfer that begins at 1, or far ahead of its
    /// beginning, shows that this one begins at 2.
    fn first_after(&self, position: u64, rules: &Rules) -> Option<u64> {
        let reserved = match rules.numbering {
            Numbering::AfterOpening { reserved } => reserved,
            Numbering::FromZero => u64::MAX - 1,
        };
        match self.first {
            None if position == 1 => Some(1),
            None if position > self.count.min(reserved + 1) => Some(2),
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
                    Err(FaultKind::StashFull {
                        waiting: self.stash.len() + 1,
                        limit: stashed,
                        unit: Unit::Pieces,
                    })
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Handles a piece that was received before.
    fn compare(
        &self,
        position: u64,
        piece: &Piece<'_>,
        context: &mut PlaceContext<'_>,
    ) -> Result<Placed, FaultKind> {
        let index = position - self.first.unwrap_or(1).min(position);
        if context.rules.duplicate == Duplicate::Fault {
            return Err(FaultKind::Duplicate { index });
        }
        context.scratch.clear();
        context.wire.decode(piece, context.scratch)?;
        let known = self.stash.get(&position).map(|data| &**data).or_else(|| {
            let index = usize::try_from(index).ok()?;
            let start = index
                .checked_sub(1)
                .map_or(Some(0), |before| self.ends.get(before).copied())?;
            self.buffer.get(start..*self.ends.get(index)?)
        });
        if known == Some(context.scratch.as_slice()) {
            Ok(Placed::Duplicate)
        } else {
            Err(FaultKind::Conflict { index })
        }
    }

    /// Decodes the next piece into the buffer.
    fn append(
        &mut self,
        piece: &Piece<'_>,
        context: &mut PlaceContext<'_>,
    ) -> Result<(), FaultKind> {
        let most = context.wire.decoded_max(piece);
        let before = self.buffer.len();
        self.reserve_end(context.rules)?;
        if self.received() + most <= self.bound(context.limit) {
            self.grow(most, self.bound(context.limit))?;
            if let Err(fault) = context.wire.decode(piece, &mut self.buffer) {
                self.buffer.truncate(before);
                return Err(fault);
            }
        } else {
            // Escapes make the coded data longer than the decoded data: decode it to learn its size.
            self.check_room(most / MOST_ESCAPED, context.limit)?;
            context.scratch.clear();
            context.wire.decode(piece, context.scratch)?;
            self.check_room(context.scratch.len(), context.limit)?;
            self.grow(context.scratch.len(), self.bound(context.limit))?;
            self.buffer.extend_from_slice(context.scratch);
        }
        let text = context.wire.carries() == Carries::Text;
        self.ascii = self.ascii && text && self.buffer[before..].is_ascii();
        if let Some(digest) = &mut self.digest {
            digest.update(&self.buffer[before..]);
        }
        self.note_end(context.rules);
        Ok(())
    }

    fn stash_piece(
        &mut self,
        position: u64,
        piece: &Piece<'_>,
        context: &mut PlaceContext<'_>,
    ) -> Result<(), FaultKind> {
        self.check_room(
            context.wire.decoded_max(piece) / MOST_ESCAPED,
            context.limit,
        )?;
        context.scratch.clear();
        context.wire.decode(piece, context.scratch)?;
        self.check_room(context.scratch.len(), context.limit)?;
        let cost = context.scratch.len() + PIECE_CHARGE;
        let held = self.buffer.capacity() + self.stashed_bytes + self.stash.len() * PIECE_CHARGE;
        let limit = context
            .limit
            .saturating_add(context.limit / 4)
            .saturating_add(STASH_SLACK);
        if held + cost > limit {
            return Err(FaultKind::StashFull {
                waiting: held + cost,
                limit,
                unit: Unit::Bytes,
            });
        }
        self.add_charge(cost)?;
        self.stash
            .insert(position, context.scratch.as_slice().into());
        self.stashed_bytes += context.scratch.len();
        Ok(())
    }

    /// The most bytes that this transfer may have.
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

    /// Makes room for `more` bytes; grows by a quarter, but not past `bound`.
    fn grow(&mut self, more: usize, bound: usize) -> Result<(), FaultKind> {
        let (capacity, needed) = (self.buffer.capacity(), self.buffer.len() + more);
        if needed <= capacity {
            return Ok(());
        }
        let roomy = (capacity + capacity / 4).min(bound).max(needed);
        let target = match self.charge.grow(roomy - capacity) {
            Ok(()) => roomy,
            Err(_) => {
                self.add_charge(needed - capacity)?;
                needed
            }
        };
        self.buffer.reserve_exact(target - self.buffer.len());
        Ok(())
    }

    /// Charges `amount` bytes to the budget.
    fn add_charge(&mut self, amount: usize) -> Result<(), FaultKind> {
        self.charge.grow(amount).map_err(|exhausted| {
            self.exhausted = Some(exhausted);
            FaultKind::Busy
        })
    }

    /// Makes room to record where one more piece ends.
    fn reserve_end(&mut self, rules: &Rules) -> Result<(), FaultKind> {
        if rules.duplicate == Duplicate::IgnoreIfEqual && self.ends.len() == self.ends.capacity() {
            let more = (self.ends.len() / 4).max(16);
            self.add_charge(more * size_of::<usize>())?;
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
